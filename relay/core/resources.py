"""Recognizes errors that come from a limit of this machine (threads, open files, memory), and names the limit."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relay.core.clock import Runtime, Task
from relay.core.errors import BadConfig, OfStore, RelayError, StorageUnreachable

Resource = Literal["threads or processes", "open files", "memory"]

MOST_CAUSES = 20
"""An error's causes are followed so far."""
ERRNOS: dict[int, Resource] = {
    errno.EAGAIN: "threads or processes",
    errno.ENOMEM: "memory",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
}
WORDS: tuple[tuple[str, Resource], ...] = (
    ("can't start new thread", "threads or processes"),  # threading
    ("Resource temporarily unavailable", "threads or processes"),  # std::system_error out of a C++ library
    ("can't allocate memory", "memory"),  # torch's allocator of the CPU
    ("Cannot allocate memory", "memory"),
)
"""Of a RuntimeError, which names its cause only in its text."""
THREADS, FILES = 8, 16
"""A session needs at least so many at once: heartbeat, commits, transfers, signals, and the device's own threads."""
UNLIMITED = 2**60
"""Larger values stand for no limit."""
_OF_THREAD = 72 << 20
"""Address space that a new thread reserves: its stack, and an arena of the C library."""
_LIMITS_OF_GROUP = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Files of control groups, version 2 (twice) and 1. At memory.high a process is only slowed down, almost to a stop."""
_USED_BY_GROUP = ("memory.current", "memory.usage_in_bytes")
_CACHED = ("inactive_file", "active_file")
"""Lines of memory.stat: pages of files, which the kernel drops before it kills a process."""


class OutOfResource(BadConfig):
    """This machine gives the process no more of a resource. This is not a failure of the run."""

    def __init__(self, resource: Resource, limit: str, value: int | None) -> None:
        """`limit`: the limit that is probably met; `value`: in bytes for memory, None if it cannot be read."""
        known = "" if value is None else f" {limit} is {value:,}{' bytes' if resource == 'memory' else ''}."
        super().__init__(f"This machine gives this process no more {resource}.{known}")
        self.resource, self.limit, self.value = resource, limit, value


def exhausted(error: BaseException) -> OutOfResource | None:
    """The limit of this machine behind an error or one of its causes; None if there is none.

    A relay error keeps its own meaning, unless it only states that storage did not answer.
    """
    if isinstance(error, OutOfResource):
        return error
    if isinstance(error, RelayError) and not isinstance(error, StorageUnreachable):
        return None
    kinds = (_kind(one) for one in _causes(error))
    found = next((kind for kind in kinds if kind is not None), None)
    return None if found is None else OutOfResource(found, *nearest_limit(found))


@contextmanager
def naming_limits() -> Iterator[None]:
    """Raise the block's error as OutOfResource (78) if a limit of this machine is behind it."""
    try:
        yield
    except Exception as error:
        limit = exhausted(error)
        if limit is None or limit is error:
            raise
        raise limit from error


def try_session(runtime: Runtime) -> None:
    """Find out early whether this machine has enough threads and files for a session. Raises OutOfResource."""
    try_threads(runtime, THREADS)
    try_files(FILES)


def try_threads(runtime: Runtime, count: int) -> None:
    """Start and end so many threads at once. Raises OutOfResource."""
    done, tasks = runtime.event(), list[Task]()

    def stay() -> None:
        done.wait()

    try:
        with naming_limits():
            while len(tasks) < count:
                tasks.append(runtime.spawn("probe", stay))
    finally:
        done.set()
        for task in tasks:
            task.join()


def try_files(count: int) -> None:
    """Open and close so many files at once. Raises OutOfResource."""
    handles: list[int] = []
    try:
        with naming_limits():
            while len(handles) < count:
                handles.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for handle in handles:
            os.close(handle)


def nearest_limit(of: Resource, root: Path = Path("/")) -> tuple[str, int | None]:
    """(name, value) of the smallest limit of this process, by the system's own files; the value is None if none is."""
    found = [(value, name) for name, value in _limits(of, root) if value is not None and 0 <= value < UNLIMITED]
    value, name = min(found, default=(None, ""))
    return name, value


@dataclass(frozen=True)
class FreeMemory:
    """Memory that this process may still take, and the limit that allows no more."""

    count: int
    """Bytes, never below 0."""
    limit: str


def free_memory(root: Path = Path("/")) -> FreeMemory | None:
    """The least that this machine, the process's control groups and its own limits leave; None if none is known.

    Pages that only cache files count as free. Swap does not.
    """
    found = [(max(0, count), name) for name, count in _free(root) if count is not None and count < UNLIMITED]
    return FreeMemory(*min(found)) if found else None


def _free(root: Path) -> Iterator[tuple[str, int | None]]:
    memory = _table(root / "proc/meminfo")
    available = memory.get("MemAvailable:")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "this machine's memory", whole if available is None else available * 1024
    for folder in _groups(root, "memory"):
        yield "the container's memory limit", _free_of_group(folder)
    used = _table(root / "proc/self/status")
    for name, line, reserved in (("RLIMIT_AS", "VmSize:", THREADS * _OF_THREAD), ("RLIMIT_DATA", "VmData:", 0)):
        limit = _own(name)
        if limit is not None and 0 <= limit < UNLIMITED:
            yield name, limit - used.get(line, 0) * 1024 - reserved


def _free_of_group(folder: Path) -> int | None:
    """What one control group leaves; None if it has no limit."""
    limits = [value for name in _LIMITS_OF_GROUP if (value := _number(folder / name)) is not None]
    used = next((value for name in _USED_BY_GROUP if (value := _number(folder / name)) is not None), None)
    if not limits or used is None:
        return None
    stat = _table(folder / "memory.stat")
    return min(limits) - used + sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in _CACHED)


def _table(path: Path) -> dict[str, int]:
    """The numbers in a file of lines 'name number …'; {} if it cannot be read."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, newest first."""
    one: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if one is None:
            return
        yield one
        if isinstance(one, OfStore):
            one = one.error
        else:
            one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _kind(error: BaseException) -> Resource | None:
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        # a full pipe has the same number, but other words
        plain = error.errno != errno.EAGAIN or error.strerror == os.strerror(errno.EAGAIN)
        return ERRNOS.get(error.errno or 0) if plain else None
    if isinstance(error, RuntimeError):
        return next((kind for words, kind in WORDS if words in str(error)), None)
    return None


def _limits(of: Resource, root: Path) -> Iterator[tuple[str, int | None]]:
    match of:
        case "threads or processes":
            yield "RLIMIT_NPROC", _own("RLIMIT_NPROC") if os.getuid() != 0 else None
            yield "the container's pids.max", _of_group(root, "pids.max", "pids")
            yield "kernel.threads-max", _number(root / "proc/sys/kernel/threads-max")
        case "open files":
            yield "RLIMIT_NOFILE", _own("RLIMIT_NOFILE")
            yield "fs.file-max", _number(root / "proc/sys/fs/file-max")
        case "memory":
            yield "RLIMIT_AS", _own("RLIMIT_AS")
            yield "RLIMIT_DATA", _own("RLIMIT_DATA")
            yield "the container's memory.max", _of_group(root, "memory.max", "memory")
            yield "the container's memory.limit_in_bytes", _of_group(root, "memory.limit_in_bytes", "memory")
            yield "this machine's memory", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _own(name: str) -> int | None:
    number = getattr(resource, name, None)  # macOS lacks some
    return None if number is None else resource.getrlimit(number)[0]


def _of_group(root: Path, file: str, controller: str) -> int | None:
    """The smallest value in this process's control group and those above it."""
    found = (_number(folder / file) for folder in _groups(root, controller))
    return min((value for value in found if value is not None), default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups with that controller, and of those above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if names else "")
        own = top / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
