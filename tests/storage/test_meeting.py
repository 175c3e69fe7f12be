"""Machines that share an untried file system: they race when they meet, and the result is kept for all others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from relay.core.clock import RealRuntime
from relay.core.runs.opening import ensure_tested
from storage import meeting
from storage.base import BadAddress, Exists, Missing, Ref, Stat, Unavailable
from storage.local import LocalStore
from storage.meeting import Here, Meeting, Pace, doubt, meet, race
from storage.memory import MemoryStore
from storage.mounts import FILE_SYSTEMS, Mount
from storage.retry import RetryStore
from storage.wrapper import Wrapper
from tests.app.cli import Desk
from tests.facts import raising
from tests.storage.test_open import mounts

pytestmark = pytest.mark.slow

KIND = "fuse.newfs"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = {
        "SETTLE_S": 0.05,
        "ANNOUNCED_S": 0.2,
        "COMES_S": 3.0,
        "PATIENCE_S": 3.0,
        "LONGEST_S": 0.01,
        "ROUNDS": 15,
    }
    for name, value in shorter.items():
        monkeypatch.setattr(meeting, name, value)


def pace() -> Pace:
    runtime = RealRuntime()
    return Pace(runtime.token, runtime.sleep, runtime.monotonic)


def in_background(_: str, body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


class Machine(Wrapper):
    """One machine's client of a store of an untried kind."""

    def __init__(self, inner: Any, number: int) -> None:
        super().__init__(inner)
        self.number = number

    def untried(self) -> str | None:
        return KIND

    def client(self) -> str:
        return f"{self.number:016x}"


@dataclass
class Disk:
    """Memory that every machine sees, some of it late."""

    shared: MemoryStore = field(default_factory=MemoryStore)
    made: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Machine and time of each create."""


class Caching(Machine):
    """As a mount that creates in its own cache: it never sees a name that others created, and the rest after `lag`
    seconds."""

    def __init__(self, disk: Disk, number: int, lag: float = 0.02) -> None:
        super().__init__(disk.shared, number)
        self.disk, self.lag = disk, lag

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        if name in self.disk.made and self.disk.made[name][0] == self.number:
            raise Exists(name)
        self.disk.made.setdefault(name, (self.number, time.monotonic()))
        return self.inner.put(name, data)

    def put(self, name: str, data: bytes | Path) -> Ref:
        self.disk.made[name] = (self.number, time.monotonic())
        return self.inner.put(name, data)

    def stat(self, ref: Ref) -> Stat:
        by, at = self.disk.made.get(str(ref), (self.number, 0.0))
        if by != self.number and time.monotonic() - at < self.lag:
            raise Missing(str(ref))
        return self.inner.stat(ref)


# innermost() must stop at a Machine, which stands for a kind of store and not for a wrapper.
@pytest.fixture(autouse=True)
def machines_are_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    def innermost(store: Any) -> Any:
        while isinstance(store, Wrapper) and not isinstance(store, Machine):
            store = store.inner
        return store

    monkeypatch.setattr(meeting, "innermost", innermost)


def both(first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """The results, or errors, of two calls at once."""
    found: list[Any] = [None, None]

    def call(number: int, body: Callable[[], Any]) -> None:
        try:
            found[number] = body()
        except Exception as error:  # noqa: BLE001 - compared by the test
            found[number] = error

    threads = [threading.Thread(target=call, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_a_race_knows_a_store_that_decides_from_one_that_caches() -> None:
    ana, ben = Here("a" * 16, "1" * 16), Here("b" * 16, "2" * 16)
    shared = MemoryStore()
    assert both(lambda: race(shared, ana, ben, pace()), lambda: race(shared, ben, ana, pace())) == [True, True]
    assert [stat.name.split("/")[2][:4] for stat in shared.list("selftest/")] == ["won.", "won."], "the rest is removed"
    disk = Disk()
    verdicts = both(lambda: race(Caching(disk, 1), ana, ben, pace()), lambda: race(Caching(disk, 2), ben, ana, pace()))
    assert False in verdicts and True not in verdicts


def test_a_race_that_one_side_loses_every_time_is_fair_and_one_without_a_rival_proves_nothing() -> None:
    ana, ben = Here("a" * 16, "1" * 16), Here("b" * 16, "2" * 16)
    assert race(MemoryStore(), ana, ben, pace()) is None
    shared = MemoryStore()
    slow = Pace(lambda: "f" * 32, time.sleep, time.monotonic)
    assert both(lambda: race(shared, ana, ben, slow), lambda: race(shared, ben, ana, pace())) == [True, True]


def test_the_first_machine_goes_on_alone_and_the_second_races_with_it() -> None:
    shared = MemoryStore()
    first, second, third = (RetryStore(Machine(shared, n), sleep=time.sleep, jitter=Random(n).random) for n in range(3))
    assert doubt(first)
    assert meet(first, pace(), in_background) is False
    assert meet(second, pace(), in_background) is True
    assert not doubt(third)
    assert meet(third, pace(), in_background) is True, "one race serves all"
    assert json.loads(shared.get(shared.ref(f"selftest/raced.{KIND}.json"))) == {"format": 1, "exclusive": True}


def test_a_store_that_lets_two_machines_win_is_refused_to_the_second_and_to_all_later_ones() -> None:
    disk = Disk()
    assert meet(Caching(disk, 1), pace(), in_background) is False
    for number in (2, 3, 1):
        with raising(BadAddress, KIND, disk.shared.address):
            meet(Caching(disk, number), pace(), in_background)


def test_no_later_race_takes_back_that_two_won(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = MemoryStore()

    def meanwhile(*_: object) -> bool:
        shared.put(f"selftest/raced.{KIND}.json", b'{"format":1,"exclusive":false}')
        return True

    monkeypatch.setattr(meeting, "race", meanwhile)
    with pytest.raises(BadAddress):
        Meeting(shared, KIND, Here("a" * 16, "1" * 16), pace())._raced([Here("b" * 16, "2" * 16)])
    assert b"false" in shared.get(shared.ref(f"selftest/raced.{KIND}.json"))


def test_two_that_begin_at_once_race_with_each_other() -> None:
    disk = Disk()
    found = both(lambda: meet(Caching(disk, 1), pace(), None), lambda: meet(Caching(disk, 2), pace(), None))
    assert any(isinstance(one, BadAddress) for one in found)
    assert not any(one is True for one in found)


GONE = "selftest/here." + "d" * 16 + "." + "e" * 16


def test_a_machine_that_is_gone_is_soon_forgotten() -> None:
    shared = MemoryStore()
    shared.put(GONE, b"1")
    assert meet(Machine(shared, 1), pace(), None) is False
    assert list(shared.list("selftest/")) == []


def test_a_machine_that_goes_on_announcing_itself_and_never_races_stops_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meeting, "COMES_S", 0.1)
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.5)

    class Hung(Machine):
        """At each look that machine's announcement is new."""

        def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
            self.inner.put(GONE, b"1")
            return self.inner.list(prefix, after=after)

    with raising(Unavailable, KIND):
        meet(Hung(MemoryStore(), 1), pace(), None)


def test_processes_of_one_mount_do_not_race() -> None:
    shared = MemoryStore()
    assert meet(Machine(shared, 1), pace(), None) is False
    shared.put(f"selftest/here.{1:016x}." + "e" * 16, b"1")
    assert meet(Machine(shared, 1), pace(), None) is False


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"format":2,"exclusive":true}', b'{"exclusive":1,"format":1}', b"[" * 9_000]
)
def test_a_damaged_note_is_no_result(data: bytes) -> None:
    shared = MemoryStore()
    shared.put(f"selftest/raced.{KIND}.json", data)
    assert meet(Machine(shared, 1), pace(), None) is False


def test_what_earlier_days_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time() - 100_000]
    shared = MemoryStore(clock=lambda: now[0])
    left = [GONE, "selftest/meeting.a.b/ready.c.0"]
    for name in left:
        shared.put(name, b"1")
    now[0] = time.time()
    meet(Machine(shared, 1), pace(), None)
    assert list(shared.list("selftest/")) == []


# --- kinds of file system, by doubles of /proc/mounts ---------------------------------------------------------------

DOCUMENTED = [kind for system in FILE_SYSTEMS if system.verdict in ("local", "documented") for kind in system.kinds]


@pytest.mark.parametrize("kind", [*DOCUMENTED, "nfs", "nfs4", "lustre", "gpfs", "ceph", "cifs"])
def test_documented_file_systems_are_used_without_a_race(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "m", mounts=mounts(tmp_path, f"x {tmp_path}/m {kind} rw 0 0"))
    assert store.untried() is None and not doubt(store)
    assert meet(store, pace(), None) is True
    assert not store.root.exists(), "nor written to"


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse.mergerfs", "fuse.glusterfs", "fuse", "afs", "newfs"])
def test_all_others_are_untried(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "m", mounts=mounts(tmp_path, f"x {tmp_path}/m {kind} rw 0 0"))
    assert store.untried() == kind and kind in doubt(store)
    assert meet(store, pace(), None) is False
    assert Mount("x", "/m", kind).system.verdict == "untried"


def test_one_mount_is_one_client_and_another_boot_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "m")
    store.put("a", b"")
    mine = store.client()
    assert mine == LocalStore(tmp_path / "m").client() and len(mine) == 16
    monkeypatch.setattr("storage.local._boot", lambda: "another")
    assert store.client() != mine


def test_a_kind_that_let_two_win_refuses_writing_and_can_be_read(tmp_path: Path) -> None:
    table = mounts(tmp_path, f"127.0.0.1:8888:/ {tmp_path}/m fuse.seaweedfs rw 0 0")
    with raising(BadAddress, "fuse.seaweedfs", f"{tmp_path}/m", "s3://"):
        LocalStore(tmp_path / "m" / "relay", mounts=table)
    assert list(LocalStore(tmp_path / "m", read_only=True, mounts=table).list("")) == []


def test_ensure_tested_races_also_where_the_self_test_is_on_record(tmp_path: Path) -> None:
    table = mounts(tmp_path, f"x {tmp_path}/m {KIND} rw 0 0")
    store = LocalStore(tmp_path / "m", mounts=table)
    ensure_tested(store, RealRuntime())
    store.put(f"selftest/raced.{KIND}.json", b'{"format":1,"exclusive":false}')
    with raising(BadAddress, KIND):
        ensure_tested(store, RealRuntime())


def test_a_session_and_doctor_say_that_a_file_system_is_untried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mounts(tmp_path, f"x {tmp_path}/m {KIND} rw 0 0")
    monkeypatch.setitem(LocalStore.__init__.__kwdefaults__, "mounts", table)
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": f"file://{tmp_path}/m/store"})
    assert KIND in desk.train(20).err
    found = desk("doctor", "--run", "r", "--json").json["findings"]
    assert any(not one["ok"] and KIND in one["text"] and "m/store" in one["text"] for one in found)
    (tmp_path / "m/store" / f"selftest/raced.{KIND}.json").write_text('{"format":1,"exclusive":false}')
    for command in (
        ("run", "--run", "r", "--target-steps", "40"),
        ("init", "--run", "s"),
        ("doctor", "--run", "r"),
    ):
        desk(*command, code=78)
    assert desk.status()["step"] == 20
