"""The disks of simulated machines: no power is cut, but a process may die at each change, and a disk may be full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from storage import transfer
from tests.simulation.fleet import Fleet

CALLS = ("fsync", "replace", "rename", "link", "unlink", "mkdir")
"""Everything by which the relay changes what a machine will find on its disk after a death."""
NEEDS_ROOM = ("fsync", "mkdir")


@contextmanager
def disks_of(fleet: Fleet) -> Iterator[None]:
    """Within it, changes on disk by simulated processes are theirs to die at, and no foreign thread is started."""
    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(mock.patch.object(os, name, _touched(fleet, name, getattr(os, name))))
        stack.enter_context(mock.patch.object(transfer, "in_parallel", _one_by_one))
        yield


def _touched(fleet: Fleet, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **keywords: Any) -> Any:
        command = None if fleet.sky.busy else fleet.here()
        if command is not None:
            command.touches_disk(name)
            if name in NEEDS_ROOM and command.disk_is_full():
                fleet.summary.faults["disk-full"] += 1
                command.actor.disk_full_at = fleet.world.now
                raise OSError(errno.ENOSPC, "No space left on device")
        return None if name == "fsync" else real(*args, **keywords)

    return call


def _one_by_one(work: Callable[[Any], Any], items: Any, workers: int) -> list[Any]:
    """A pool whose order no seed could fix is none."""
    return [work(item) for item in items]
