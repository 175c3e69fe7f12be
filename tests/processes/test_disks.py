"""Disks that are full, read-only or gone while real processes train on them: training goes on, commits catch up.

A full disk is a small tmpfs where this user may mount one, and everywhere the kernel's limit on the length of files.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.processes.field import Field, Session, until
from tests.processes.limits import mount_small

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
MB, TARGET = 1_000_000, 250
CHUNKS = 4 * (8 << 20)
"""What four transfers hold in memory (storage/transfer.py)."""
OWN = 24 * MB
"""Of the interpreter and its allocator, which on a busy machine frees a block of 16 MB late. How many snapshots are
alive is counted in tests/core/session/test_faults.py."""
MANY = 12
"""Snapshots while the store is gone, of which a session that kept them all would need four times the memory."""
Kind = Literal["disk", "limit"]
REFUSALS = (errno.ENOSPC, errno.EFBIG, errno.EACCES, errno.EROFS)
"""Full, full by the kernel's limit, forbidden, read-only."""


class Fullness:
    """A folder whose disk can be filled and freed."""

    def __init__(self, folder: Path, kind: Kind, flag: Path) -> None:
        self.folder, self._flag = folder, flag
        self.mounted = kind == "disk" and mount_small(folder, 8 * MB)

    def fill(self) -> None:
        if not self.mounted:
            self._flag.touch()
            return
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (100_000, 1_000):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self._flag.unlink(missing_ok=True)
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def store_disk(request: pytest.FixtureRequest, field: Field) -> Iterator[Fullness]:
    disk = Fullness(field.store, getattr(request, "param", "disk"), field.folder / "store-is-full")
    yield disk
    field.end()
    disk.close()


@pytest.fixture
def sync_disk(request: pytest.FixtureRequest, field: Field) -> Iterator[Fullness]:
    disk = Fullness(field.home("one") / "sync", getattr(request, "param", "disk"), field.folder / "sync-is-full")
    yield disk
    field.end()
    disk.close()


def start(field: Field, target: int, *words: str, **toy: object) -> Session:
    flags = {"store_full_while": field.folder / "store-is-full", "sync_full_while": field.folder / "sync-is-full"}
    return field.train(target, *words, weights=MB, step_s=0.01, **flags, **toy)


def trains_on(session: Session, field: Field, seconds: float) -> None:
    """Steps go on, commits do not, and the disk's own word for it is shown."""
    session.until("landed-commit")
    until(lambda: any(os.strerror(code) in session.err for code in REFUSALS), 30)
    durable, trained = field.step(), len(session.noted("step"))
    time.sleep(seconds)
    assert len(session.noted("step")) - trained >= seconds / 0.01 / 10, "training waited for the disk"
    assert field.step() == durable


def catches_up(session: Session, field: Field) -> None:
    field.call(session)
    assert field.assert_whole().step == TARGET
    assert session.document()["snapshots_replaced"] > 0, "newer snapshots took the place of those that had to wait"


@pytest.mark.parametrize("store_disk", ["disk", "limit"], indirect=True)
def test_a_full_store_is_waited_out(field: Field, store_disk: Fullness) -> None:
    session = start(field, TARGET)
    session.until("landed-commit")
    store_disk.fill()
    trains_on(session, field, 0.7)
    store_disk.free()
    catches_up(session, field)


def test_a_store_that_holds_few_checkpoints_is_never_full(field: Field) -> None:
    """Retired checkpoints go at once where space is short; elsewhere they stay for an hour."""
    disk = Fullness(field.store, "disk", field.folder / "unused")
    try:
        session = start(field, 10**9)
        session.until("landed-commit", 12)
        session.send(signal.SIGTERM)
        assert session.wait() == 143, session.err
        field.assert_whole()
        if disk.mounted:
            assert len(list((field.store / "checkpoints").rglob("manifest.json"))) <= 8
    finally:
        disk.close()


def test_a_store_full_to_the_end_is_74_and_the_next_session_here_commits(field: Field, store_disk: Fullness) -> None:
    began = time.monotonic()
    field.call(start(field, 10, ttl_s=1))
    budget_s = 9 + 3 * (time.monotonic() - began)  # of a budget that starting up ate, the first commit is the last
    session = start(field, 10**9, f"budget_minutes={budget_s / 60}", ttl_s=1)
    session.until("landed-commit")
    store_disk.fill()
    began = time.monotonic()
    assert session.wait(budget_s + 60) == 74, session.err
    assert time.monotonic() - began <= budget_s
    assert "push --run" in session.err
    here = field.sync("one").glob("step_*.json")
    kept = max(int(path.name.partition(".")[0].removeprefix("step_")) for path in here)
    assert f"{kept:,}" in session.err
    assert kept > field.step()
    store_disk.free()
    field.call(start(field, kept + 10, ttl_s=1, wait_s=60))
    assert field.assert_whole().step == kept + 10
    assert list((field.store / "checkpoints").rglob(f"step_{kept}.e*/manifest.json")), "what was kept here is committed"


@pytest.mark.parametrize("sync_disk", ["disk", "limit"], indirect=True)
def test_a_full_disk_of_this_machine_is_waited_out(field: Field, sync_disk: Fullness) -> None:
    session = start(field, TARGET)
    session.until("landed-commit")
    sync_disk.fill()
    trains_on(session, field, 0.7)
    sync_disk.free()
    catches_up(session, field)


def test_a_session_on_a_machine_whose_disk_is_full_says_so_and_trains_nothing(field: Field) -> None:
    disk = Fullness(field.home("one") / "sync", "disk", field.folder / "unused")
    try:
        field.humble = not disk.mounted
        if disk.mounted:
            disk.fill()
        else:
            disk.folder.chmod(0o500)
        session = start(field, 20)
        assert session.wait() == 78 and str(disk.folder) in session.err, session.err
        assert "Traceback" not in session.err
        assert not session.noted("step") and not session.noted("landed-lease")
    finally:
        disk.folder.chmod(0o700)
        disk.close()


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["nothing-allowed", "reading-allowed"])
def test_permission_on_the_store_lost_and_given_back(field: Field, mode: int) -> None:
    field.humble = True
    session = start(field, TARGET)
    session.until("landed-commit")
    folders = [field.store, *(path for path in field.store.rglob("*") if path.is_dir())]
    for folder in reversed(folders):
        folder.chmod(mode)
    trains_on(session, field, 0.7)
    for folder in folders:
        folder.chmod(0o755)
    catches_up(session, field)


def test_permission_on_this_machines_folder_lost_and_given_back(field: Field) -> None:
    field.humble = True
    session = start(field, TARGET)
    session.until("landed-commit")
    field.sync("one").chmod(0o500)
    trains_on(session, field, 0.7)
    field.sync("one").chmod(0o755)
    catches_up(session, field)


def test_a_store_that_becomes_read_only_and_is_mended(field: Field, store_disk: Fullness) -> None:
    """A disk with errors is remounted read-only; where this user mounts nothing, its folders become so."""
    field.humble = True
    session = start(field, TARGET)
    session.until("landed-commit")
    read_only(field, store_disk, True)
    trains_on(session, field, 0.7)
    read_only(field, store_disk, False)
    catches_up(session, field)


def read_only(field: Field, disk: Fullness, on: bool) -> None:
    if not disk.mounted:
        for path in (field.store, *field.store.rglob("*")):
            if path.is_dir():
                path.chmod(0o555 if on else 0o755)
        return
    command = ["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(disk.folder)]
    until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0)  # busy while one writes


@pytest.mark.parametrize("in_its_place", ["nothing", "an empty folder"])
def test_a_store_that_is_gone_for_a_while_costs_no_step_and_little_memory(field: Field, in_its_place: str) -> None:
    """As on a share that is unmounted. Alive: the state, at most three snapshots
    (relay/core/checkpoint/committer.py)."""
    weights = 16 * MB
    session = field.train(10**9, every=10, weights=weights, step_s=0.01)
    session.until("landed-lease")
    before = session.memory()
    session.until("landed-commit", 2)
    away = field.folder / "away"
    field.store.rename(away)
    if in_its_place == "an empty folder":
        field.store.mkdir()
    taken, most = len(session.noted("snapshot")), 0

    def goes_on() -> bool:
        nonlocal most
        most = max(most, session.memory())
        return len(session.noted("snapshot")) >= taken + MANY

    until(goes_on, 60, lambda: f"training waited for the store\n{session.err}")
    if in_its_place == "an empty folder":
        field.store.rmdir()  # still empty: nothing was written into the wrong place
    away.rename(field.store)
    print(f"memory: {before / MB:.0f} MB at the lease, {most / MB:.0f} MB at most without the store")
    assert most <= before + weights + 3 * weights + CHUNKS + OWN
    durable = field.step()
    until(lambda: field.step() > durable, 90, lambda: session.err)
    assert len(list(field.sync("one").glob("step_*.json"))) <= 3
    session.send(signal.SIGTERM)
    assert session.wait() == 143
    field.assert_whole()
