"""Starts the processes of this host that share each step, or finds that torchrun has. Does not need torch."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from relay.core.errors import BadConfig
from relay.core.lease.children import Child, start
from relay.core.settings.origins import LEADER

HOST = "127.0.0.1"
COUNTS = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables by which other launchers give the number of processes."""
REAPED_S = 1.0
"""Longest wait for the exit code of a process whose connection is closed."""
MEET_S = 300.0
"""Longest wait for a session's processes to connect; they load torch first."""
PARTING_S = 5.0
"""Longest wait for a script's other processes after the first has ended."""


class NeverMet(BadConfig):
    """A process ended or hung before it could share a step."""


def launched() -> int:
    """How many processes share each step, by this module or by torchrun; 1 without others."""
    known = LEADER in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
    return int(os.environ.get("WORLD_SIZE", "1")) if known else 1


def is_follower() -> bool:
    """Whether this process follows the first one, and has no session."""
    return launched() > 1 and os.environ.get("RANK", "0") != "0"


def is_ranked(environ: Mapping[str, str]) -> bool:
    """Whether another launcher started this process: torchrun, or as one of several Slurm's srun or MPI."""
    several = any(int(count) > 1 for name in COUNTS if (count := environ.get(name, "")).isdecimal())
    return several or "TORCHELASTIC_RUN_ID" in environ


class Followers:
    """The processes of this host but the first, as children of this process."""

    def __init__(
        self, words: Sequence[str], environs: Sequence[Mapping[str, str]], cwd: Path, log: Path | None
    ) -> None:
        """environs: of ranks 1, 2, …; their output is appended to `log` plus .rank1, .rank2, …"""
        self.size, self.listener = len(environs) + 1, -1
        """The socket on which the first process will wait for them; -1: it opens its own."""
        self.until = time.monotonic() + MEET_S
        """The latest time at which they have to be connected."""
        self._logs = [None if log is None else log.with_name(f"{log.name}.rank{rank}") for rank in range(1, self.size)]
        self._children: list[Child] = []
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        try:
            for environ, file in zip(environs, self._logs, strict=True):
                with (file or Path(os.devnull)).open("ab") as output:
                    self._children.append(start(words, environ, cwd, output, alone=True, follows=True))
        except BaseException:
            self.end()
            raise

    def check(self) -> None:
        """While they connect. Raises NeverMet if one has ended, or if it is too late."""
        for rank, child in enumerate(self._children, 1):
            if child.poll() is not None:
                raise NeverMet(f"Process {rank + 1} of {self.size} ended before training began ({self.fate(rank)}).")
        if time.monotonic() > self.until:
            where = "" if self._logs[0] is None else f" The second one's output is in {self._logs[0]}."
            raise NeverMet(f"Not all {self.size} processes were ready in time: one of them hangs.{where}")

    def fate(self, rank: int) -> str:
        """How a process ended, and where its output is."""
        child, log = self._children[rank - 1], self._logs[rank - 1]
        try:
            code = child.wait(REAPED_S)
        except subprocess.TimeoutExpired:
            how = "it still runs"
        else:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how}{'' if log is None else f', output in {log}'}"

    def end(self, patience_s: float = 0.0) -> None:
        """Kill those that do not end by themselves in that time. They have nothing that the first process lacks."""
        until = time.monotonic() + patience_s
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
            child.kill()
            child.wait()


_mine: list[Followers] = []


def followers() -> Followers | None:
    """Those that `gather` started."""
    return _mine[0] if _mine else None


def gather(
    words: Sequence[str],
    environ: Mapping[str, str],
    gpus: Sequence[int],
    cwd: Path,
    log: Path | None,
    deadline: float = math.inf,
) -> None:
    """Make this process the first of several, and start the others.

    gpus: one for each, ignored on a CPU. deadline: the session's end by the monotonic clock.
    """
    listener = socket.create_server((HOST, 0))
    leader = {LEADER: str(os.getpid())}
    ranks = [rank | leader for rank in _ranks(gpus, listener.getsockname()[1])]
    found = Followers(words, [{**environ, **rank} for rank in ranks[1:]], cwd, log)
    found.listener, found.until = listener.detach(), min(found.until, deadline)
    _mine.append(found)
    os.environ.update(ranks[0])


def disband() -> None:
    """End what `gather` began: this process is the only one again."""
    for found in _mine:
        found.end()
        os.close(found.listener)
    _mine.clear()
    for name in (LEADER, *_ranks((0,), 0)[0]):
        os.environ.pop(name, None)


@contextmanager
def beside(
    words: Sequence[str], environ: Mapping[str, str], processes: int, cwd: Path, log: Path | None
) -> Iterator[Mapping[str, str]]:
    """Start a script's processes but the first, for which it yields the variables; end them after the block."""
    with meeting(processes) as ranks:
        others = Followers(words, [{**environ, **rank} for rank in ranks[1:]], cwd, log)
        try:
            yield {**environ, **ranks[0]}
        finally:
            others.end(PARTING_S)


@contextmanager
def meeting(size: int) -> Iterator[list[dict[str, str]]]:
    """The variables of each process of a script, whose port is reserved in the block."""
    with reserved_port() as port:
        yield _ranks(range(size), port)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that no other program gets from the system in the block. A server that is given its number can open it;
    before that, connections are refused."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("", 0))
        yield reserved.getsockname()[1]


def _ranks(gpus: Sequence[int], port: int) -> list[dict[str, str]]:
    """Each process's variables, as torch reads them. Gloo connects them on the loopback interface only."""
    every = {"WORLD_SIZE": str(len(gpus)), "MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
    if sys.platform == "linux":
        every["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return [every | {"RANK": str(rank), "LOCAL_RANK": str(gpu)} for rank, gpu in enumerate(gpus)]
