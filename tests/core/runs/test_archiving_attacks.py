"""Attacks that would delete too much, too early or too little: late and forged entries, races, neighbors, zombies
(docs/decisions/0013, P8).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.core.checkpoint.collect import sweep_signs
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.restore import fetch_unheld
from relay.core.errors import Exit, Fenced, PolicyRefused
from relay.core.ledger.canonical import digest
from relay.core.ledger.changes import Archive, By, Delete, Lease, Refused, Release, Unarchive
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.ledger import EntryLost, RunLedger
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from relay.core.runs.archive import (
    BroughtBack,
    TooEarly,
    archive,
    clear,
    decide,
    mark_deleted,
    refuse_unseen,
    sweep_reports,
    unarchive,
)
from relay.core.runs.opening import Pair, RunHandle
from relay.core.session.session import push, run_session
from storage.base import Ref, Store
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.lab import PROJECT as LAB
from tests.core.lab import RUN, Lab, down, said
from tests.core.making import PROJECT, Client, Clock, QuietRuntime, begun, forged, genesis, id_of, pair_of, raw
from tests.core.runs.test_archiving import NoLocks, put_away, resting

pytestmark = pytest.mark.slow

DELETER = id_of(9)


def forge(store: Store, client: Client, kind: str, change: Any, at: float) -> None:
    """An entry that follows the rules, from a writer that lies about the time."""
    view = client.ledger.read()
    before = raw(store, view.seq)
    by = By(id_of(66), None, view.state.epoch, at)
    plain = change.model_dump(mode="json")
    state = apply(view.state, kind, plain, by).model_dump(mode="json")
    fields = {"kind": kind, "change": plain, "state": state, "at": at, "parent": digest(before)}
    data = forged(before, view.entry, **fields)
    store.put_if_absent(f"{client.ledger.names.ledger}{view.seq + 1:020d}.json", data)


def test_an_archive_that_landed_a_day_after_it_was_written_gives_the_others_their_day() -> None:
    """A laptop is closed between asking for the time and sending the entry."""
    clock = Clock()

    class Sleeps(Wrapper):
        """Falls asleep once, right before an entry is sent."""

        tired = False

        def put_if_absent(self, name: str, data: bytes) -> Ref:
            if self.tired:
                self.tired = False
                clock.now += 3 * WAIT_S
            return super().put_if_absent(name, data)

    inner = MemoryStore(clock=clock)
    store = Sleeps(inner)
    _, client = begun(store)
    client.commit(5)
    client.release()
    store.tired = True
    state = put_away(client)
    assert state.archived is not None and clock.now - state.archived >= 3 * WAIT_S
    with pytest.raises(TooEarly):
        mark_deleted(client.ledger, store, session=DELETER)
    clock.now += WAIT_S
    assert mark_deleted(client.ledger, store, session=DELETER).deleted


def test_entries_that_lie_about_the_time_free_no_file_before_the_day_is_over() -> None:
    clock = Clock()
    store, client = begun(MemoryStore(clock=clock))
    client.commit(5)
    client.release()
    forge(store, client, "archive", Archive(), clock.now - 2 * WAIT_S)
    with pytest.raises(TooEarly):
        mark_deleted(client.ledger, store, session=DELETER)
    forge(store, client, "delete", Delete(), clock.now)
    view = client.ledger.read()
    assert view.state.deleted is not None
    with pytest.raises(PolicyRefused):
        refuse_unseen(client.ledger, view)
    with pytest.raises(PolicyRefused):
        mark_deleted(client.ledger, store, session=DELETER)
    clock.now += WAIT_S
    refuse_unseen(client.ledger, view)


def test_who_brings_back_what_another_just_brought_back_or_deleted_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for first in ("unarchive", "delete"):
        clock = Clock()
        store, client = resting(clock)
        clock.now += WAIT_S
        other = Client(store, 2)
        real = other.ledger.append

        def meanwhile(*args: Any, first: str = first, client: Client = client, real: Any = real, **more: Any) -> Any:
            change = {"unarchive": Unarchive(), "delete": Delete()}[first]
            client.ledger.append(first, lambda _: change, session=id_of(8), account=None)
            return real(*args, **more)

        monkeypatch.setattr(other.ledger, "append", meanwhile)
        if first == "unarchive":
            assert unarchive(other.ledger, session=DELETER).archived is None
        else:
            with pytest.raises(PolicyRefused, match="was deleted"):
                unarchive(other.ledger, session=DELETER)


def test_a_run_brought_back_while_somebody_deletes_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S
    other = Client(store, 2)
    real = other.ledger.check_epochs

    def meanwhile(checkpoints: Store) -> Any:
        seen = real(checkpoints)
        unarchive(client.ledger, session=id_of(8))
        return seen

    monkeypatch.setattr(other.ledger, "check_epochs", meanwhile)
    with pytest.raises(BroughtBack):
        mark_deleted(other.ledger, store, session=DELETER)
    state = client.ledger.read().state
    assert state.archived is None and state.deleted is None and state.retained
    assert Client(store, 3).lease().state.step == 10


# Files: whose they are, and who still writes or reads them.

NEIGHBOURS = ("a", "a_b", "a-b", "a1", "run", "runs", "step_1")
FILES = ("step_1.e1/state.json", "step_1.e1/manifest.json", "step_10.e1/state.json")


def run_of(store: Store, name: str, runtime: QuietRuntime, project: str = PROJECT) -> RunLedger:
    """A run with a released session and files whose names are those of checkpoints."""
    ledger = RunLedger(store, project, name, runtime)
    ledger.begin(genesis(project, name), session=id_of(1))
    ledger.append("lease", lambda _: Lease(target_steps=9), session=id_of(5), account="ann")
    ledger.append("release", lambda _: Release(reason="x"), session=id_of(5), account="ann", epoch=1)
    for file in FILES:
        store.put(ledger.names.checkpoints + file, name.encode())
    store.put(ledger.names.session(1), b"{}")
    store.put(ledger.names.heartbeat(1), b"{}")
    return ledger


def put_off(ledger: RunLedger, runtime: QuietRuntime) -> None:
    archive(ledger, runtime, NoLocks(), session=DELETER)


def sweep(ledger: RunLedger, pair: Pair) -> RunState:
    """The action of the command after the name was typed twice."""
    mark_deleted(ledger, pair.checkpoints, session=DELETER)
    opened = RunHandle(ledger, pair.registry(), ledger.read())
    state, judged = decide(opened, pair, full=True)
    clear(judged, ledger.names, pair, state.epoch + 1)
    sweep_reports(pair.ledger, ledger.names)
    sweep_signs(pair.ledger, ledger.names, state.epoch + 1)
    return state


def contents(store: Store, prefix: str = "") -> dict[str, bytes]:
    return {stat.name: store.get(stat.ref) for stat in store.list(prefix)}


@pytest.fixture(params=["memory", "local"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store on which the day is as good as over."""
    monkeypatch.setattr("relay.core.ledger.atrest.WAIT_S", 0.0)
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")


@pytest.mark.parametrize("doomed", NEIGHBOURS)
def test_p8_no_file_of_another_run_goes_whatever_its_name_begins_with(shared: Store, doomed: str) -> None:
    runtime = QuietRuntime()
    runs = {name: run_of(shared, name, runtime) for name in NEIGHBOURS}
    run_of(shared, doomed, runtime, project="other")
    put_off(runs[doomed], runtime)
    before, names = contents(shared), runs[doomed].names
    sweep(runs[doomed], pair_of(shared))
    gone = set(before) - set(contents(shared))
    mine = {names.checkpoints + file for file in FILES} | {names.session(1), names.heartbeat(1)}
    assert gone == mine
    assert set(contents(shared, names.ledger)) > {name for name in before if name.startswith(names.ledger)}


def test_of_two_stores_the_checkpoints_go_from_the_one_and_the_ledger_stays_in_the_other(shared: Store) -> None:
    runtime, files = QuietRuntime(), MemoryStore()
    ledger = run_of(shared, "a", runtime)
    for name in ("a", "b"):
        files.put(f"checkpoints/{PROJECT}/{name}/step_1.e1/state.json", b"x")
    put_off(ledger, runtime)
    kept = contents(shared, ledger.names.ledger)
    sweep(ledger, pair_of(shared, files))
    assert [*contents(files)] == [f"checkpoints/{PROJECT}/b/step_1.e1/state.json"]
    assert kept.items() < contents(shared, ledger.names.ledger).items()


def test_a_file_of_a_later_epoch_proves_a_lost_entry_and_nothing_goes(shared: Store) -> None:
    """A person brought the run back and trained it, and those entries were lost: they would be trained on."""
    runtime = QuietRuntime()
    ledger = run_of(shared, "a", runtime)
    put_off(ledger, runtime)
    shared.put(ledger.names.checkpoints + "step_20.e2/state.json", b"x")
    before = contents(shared)
    with pytest.raises(EntryLost) as error:
        sweep(ledger, pair_of(shared))
    assert error.value.epoch == 2 and error.value.file.endswith("step_20.e2/state.json")
    assert contents(shared) == before


def test_i5_a_zombie_uploads_into_a_deleted_run_and_cannot_commit_and_the_next_sweep_takes_it() -> None:
    clock = Clock()
    store, zombie = begun(MemoryStore(clock=clock))
    zombie.commit(5)
    clock.now += 1000.0
    other = Client(store, 2)
    put_away(other)
    clock.now += WAIT_S
    for file in FILES:
        store.put(f"{other.ledger.names.checkpoints}step_9.e1/{file.rpartition('/')[2]}", b"late")
    state = sweep(other.ledger, pair_of(store))
    store.put(f"{other.ledger.names.checkpoints}step_10.e1/state.json", b"later")
    store.put(other.ledger.names.heartbeat(1), b"{}")
    for act in (lambda: zombie.commit(10), zombie.release):
        with pytest.raises(Fenced):
            act()
    with pytest.raises(Refused, match="deleted"):
        zombie.lease()
    assert sweep(Client(store, 3).ledger, pair_of(store)) == state
    assert not contents(store, other.ledger.names.checkpoints)
    assert Client(store, 4).begin().state == state, "I6: the name begins no other run"


def test_who_reads_a_checkpoint_while_its_run_is_deleted_is_told_so(tmp_path: Path) -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S
    reader = Client(store, 2).ledger
    state = reader.read().state
    assert state.head is not None
    sweep(client.ledger, pair_of(store))
    with pytest.raises(PolicyRefused, match="was deleted"):
        fetch_unheld(state.head, reader, state, store, LocalFolder(tmp_path))


def test_a_link_in_a_deleted_runs_folder_leads_to_no_other_runs_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who may write in the folder lays links; a sync program may, too."""
    monkeypatch.setattr("relay.core.ledger.atrest.WAIT_S", 0.0)
    store, runtime = LocalStore(tmp_path / "store"), QuietRuntime()
    mine, other = run_of(store, "a", runtime), run_of(store, "b", runtime)
    root = tmp_path / "store" / "checkpoints" / PROJECT
    (root / "a" / "step_2.e1").symlink_to(root / "b" / "step_1.e1", target_is_directory=True)
    (root / "a" / "step_3.e1").mkdir()
    (root / "a" / "step_3.e1" / "state.json").symlink_to(root / "b" / "step_1.e1" / "state.json")
    (tmp_path / "store" / "runs" / PROJECT / "a" / "sessions" / "x").symlink_to(
        tmp_path / "store" / "runs" / PROJECT / "b", target_is_directory=True
    )
    before = contents(store, other.names.checkpoints) | contents(store, other.names.home)
    put_off(mine, runtime)
    sweep(mine, pair_of(store))
    assert contents(store, other.names.checkpoints) | contents(store, other.names.home) == before
    assert not (root / "a" / "step_1.e1" / "state.json").exists()


def test_what_a_machine_could_not_send_is_not_pushed_into_a_deleted_run_and_stays_there(lab: Lab) -> None:
    session = lab.session("alice", machine="a", budget_s=40, target_steps=1000, every_steps=50)
    lab.world.at(lab.world.now + 20, lambda: setattr(session.store, "fail", down))
    kept = lab.run(session)
    assert kept.exit_code == Exit.UPLOAD_FAILED and kept.unsent is not None
    lab.world.now += 1000
    ledger = RunLedger(lab.shared, LAB, RUN, lab.world.process())
    archive(ledger, QuietRuntime(), NoLocks(), session=DELETER)
    lab.world.now += WAIT_S + 1
    state = sweep(ledger, pair_of(lab.shared))
    for act in (push, run_session):
        late = lab.session("alice", machine="a", target_steps=1000).start(act)
        lab.world.run()
        assert late.outcome.exit_code == Exit.POLICY and "was deleted" in said(late.outcome)
        assert (kept.unsent / "state.json").exists() and lab.state() == state
    assert not contents(lab.shared, ledger.names.checkpoints)
