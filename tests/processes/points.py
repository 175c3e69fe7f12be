"""Names every moment of a session at which it may die, and kills or slows it there; knows no expectations."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from relay.core.checkpoint.local import LocalFolder
from storage import files
from storage.base import Ref, Stat, Store
from storage.wrapper import Wrapper
from tests.processes.limits import full_while
from tests.processes.trainee import Notes, Trainee

T = TypeVar("T")
_CHECKPOINT = re.compile(r"checkpoints/[^/]+/[^/]+/step_\d+\.e\d+(?:\.[0-9a-f]{16})?/(.+)")
_LABELS = (
    (re.compile(r"runs/.*/ledger/\d+\.json"), "slot"),
    (re.compile(r"runs/.*/ledger\.hint"), "hint"),
    (re.compile(r"runs/.*/heartbeat\.\d+"), "heartbeat"),
    (re.compile(r"runs/.*/stop\.\d+"), "stop"),
    (re.compile(r"registry/ledger/\d+\.json"), "registry"),
    (re.compile(r"registry/.*"), "account"),
    (re.compile(r"trm-relay\.store\.json"), "identity"),
)


class Points:
    """Every moment goes by here, named `before VERB WHAT` or `after VERB WHAT`."""

    def __init__(self, note: Notes, environ: Mapping[str, str]) -> None:
        """TOY_KILL_AT names the moment to die at, TOY_KILL_NTH its how-manieth occurrence; TOY_TRACE lists them all.

        TOY_HANG_AT names one from which no thread that comes there ever returns.
        """
        self.note, self.hang_at = note, environ.get("TOY_HANG_AT", "")
        self.kill_at, self.left = environ.get("TOY_KILL_AT", ""), int(environ.get("TOY_KILL_NTH", "1"))
        self.trace = bool(environ.get("TOY_TRACE"))
        self._lock, self._local = threading.Lock(), threading.local()

    def __call__(self, moment: str) -> None:
        if self.trace:
            self.note(moment.replace(" ", "_"))
        if moment == self.hang_at:
            self.note("hanging")
            time.sleep(10**6)
        if moment != self.kill_at:
            return
        with self._lock:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def around(self, what: str) -> Iterator[None]:
        """The moments before and after something, which smaller moments inside it are named after."""
        outer = getattr(self._local, "what", "")
        self._local.what = what
        try:
            self(f"before {what}")
            yield
            self(f"after {what}")
        finally:
            self._local.what = outer

    def wrap(self, owner: Any, name: str, what: str) -> None:
        """Put both moments around a function of a class or module."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*args: Any, **more: Any) -> Any:
            with self.around(what):
                return inner(*args, **more)

        setattr(owner, name, outer)

    def everywhere(self) -> None:
        """Hook the actions of this machine."""
        for name in ("fresh", "seal", "remove", "arrived", "adopt", "tidy"):
            self.wrap(LocalFolder, name, f"outbox {name}")
        self.wrap(Trainee, "load", "load")
        publish = (files.link, files.replace)

        def halfway(source: BinaryIO, target: BinaryIO, length: int = 0) -> None:
            """`shutil.copyfileobj` with a moment at which half is written."""
            data = source.read()
            target.write(data[: len(data) // 2])
            target.flush()
            self(f"halfway {self._what}")
            target.write(data[len(data) // 2 :])

        def named(inner: Callable[[int, str, str], None]) -> Callable[[int, str, str], None]:
            """A moment at which all is written but has no name, and one at which it has."""

            def outer(folder: int, temporary: str, leaf: str) -> None:
                self(f"unnamed {self._what}")
                inner(folder, temporary, leaf)
                self(f"named {self._what}")

            return outer

        if self.trace or self.kill_at.startswith("halfway"):  # holds a whole file in memory
            shutil.copyfileobj = halfway  # type: ignore[assignment]
        files.link, files.replace = map(named, publish)

    @property
    def _what(self) -> str:
        return str(getattr(self._local, "what", "")) or "clock probe"


class WatchedStore(Wrapper):
    """The real store; every call is a moment, and a checkpoint's files may take long or meet a limit."""

    def __init__(self, inner: Store, points: Points, environ: Mapping[str, str]) -> None:
        super().__init__(inner)
        self._points = points
        self._put_s = float(environ.get("TOY_PUT_S", "0"))
        """Seconds that each file of a checkpoint takes to send."""
        self._ahead_s = float(environ.get("TOY_AHEAD_S", "0"))
        """How far this store's clock goes ahead of what it was."""
        self._full_while = environ.get("TOY_STORE_FULL_WHILE", "")
        """While this file exists, the store's disk takes no file of more than a few kB."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data, self.inner.put)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data, self.inner.put_new)

    def _put(self, name: str, data: bytes | Path, put: Callable[[str, bytes | Path], Ref]) -> Ref:
        with self._points.around(f"put {label(name)}"):
            if name.startswith("checkpoints/") and not name.endswith("manifest.json"):
                time.sleep(self._put_s)
            with full_while(self._full_while):
                return put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        what = label(name)
        kind, step = _entry(data) if what in ("slot", "registry") else ("", 0)
        with self._points.around(f"append {kind or what}"):
            ref = self.inner.put_if_absent(name, data)
            if what == "slot":
                self._points.note(f"landed-{kind}", step)
        return ref

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._do("read", ref, lambda: self.inner.get(ref, limit=limit))

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._do("read", ref, lambda: self.inner.read_range(ref, start, length))

    def delete(self, ref: Ref) -> None:
        return self._do("delete", ref, lambda: self.inner.delete(ref))

    def stat(self, ref: Ref) -> Stat:
        return self._later(self.inner.stat(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return map(self._later, self.inner.list(prefix, after=after))

    def now(self) -> float:
        return self.inner.now() + self._ahead_s

    def _later(self, stat: Stat) -> Stat:
        return Stat(stat.ref, stat.name, stat.size, stat.modified + self._ahead_s, stat.sha256)

    def _do(self, verb: str, name: str, act: Callable[[], T]) -> T:
        with self._points.around(f"{verb} {label(name)}"):
            return act()


def label(name: str) -> str:
    """The kind of object that a name denotes."""
    if found := _CHECKPOINT.fullmatch(name):
        return found[1].removesuffix(".json")
    return next((what for pattern, what in _LABELS if pattern.fullmatch(name)), "probe")


def _entry(data: bytes) -> tuple[str, int]:
    """Kind of an entry, and the step its state is at."""
    body = json.loads(data)["body"]
    return str(body["kind"]), int(body["state"].get("step", 0))
