"""What the relay keeps on a store whose names find nothing: accounts, heartbeats, the identity, a run's beginning."""

from __future__ import annotations

import pytest

from relay.app.providers import shipped
from relay.core.lease.heartbeat import place_of_beats, sign_of_life
from relay.core.ledger.changes import Lease
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import Holder
from relay.core.names import Names
from relay.core.runs.opening import begin_run, open_run
from relay.people.accounts import Accounts
from relay.people.owners import infer
from storage.base import Denied, Ref
from storage.memory import MemoryStore
from tests.core.making import QuietRuntime, id_of, pair_of
from tests.storage.drive.stores import Drive

NAMES = Names("p", "r")


def test_an_edited_account_leaves_no_older_copy_and_a_forgotten_one_none(drive: Drive) -> None:
    registry = Registry(drive.store(), QuietRuntime(1), session=id_of(1))
    registry.begin(id_of(5))
    known = Accounts(registry, shipped())
    known.register("account_1", "Ana", infer("Ana", "ana", "local", {}, "ana", shipped()))
    known.edit("account_1", label="Anna")
    again = Accounts(Registry(drive.store(), QuietRuntime(2), session=id_of(2)), shipped())
    assert again.get("account_1").label == "Anna"
    assert len([name for name in drive.names() if name.startswith("registry/accounts/")]) == 1
    again.forget("account_1")
    assert not [name for name in drive.names() if name.startswith("registry/accounts/")]


def test_heartbeats_are_found_though_no_listing_shows_them(drive: Drive) -> None:
    drive.person.change(list_lag=1e6, name_lag=1e6)
    holder, challenger = drive.store(), drive.store()
    beat = place_of_beats(holder)
    assert beat is not None and sign_of_life(challenger, NAMES, 3, beat) is None
    holder.claim(NAMES.heartbeat(3), beat)
    for _ in range(2):
        holder.put(NAMES.heartbeat(3), b"{}")
        seen = sign_of_life(challenger, NAMES, 3, beat)
        assert seen is not None and abs(seen - challenger.now()) < 60
    assert sign_of_life(challenger, NAMES, 3) is None, "by name there is none"
    assert drive.names().count(NAMES.heartbeat(3)) == 1


def test_a_lease_that_names_no_file_for_its_heartbeats_can_be_taken_over(drive: Drive) -> None:
    folder = drive.address.split("/")[2]
    for nothing in ("../../etc", "!", folder, "x" * 33):
        assert sign_of_life(drive.store(), NAMES, 3, nothing) is None
    drive.person.fault("no-scope", route="v3.files")
    with pytest.raises(Denied):
        sign_of_life(drive.store(), NAMES, 3)


def test_where_names_find_objects_a_lease_says_nothing_of_it() -> None:
    assert place_of_beats(MemoryStore()) is None
    assert "beat" not in Lease().model_dump(mode="json") and Lease(beat="x").model_dump(mode="json")["beat"] == "x"
    holder = Holder(session="a" * 32, account="a", epoch=1, since=1.0, ttl_s=9.0, latest_end=None, target_steps=1)
    assert "beat" not in holder.model_dump(mode="json")
    assert Holder.model_validate_json(holder.model_copy(update={"beat": "y"}).model_dump_json()).beat == "y"


@pytest.mark.parametrize("lag", [0.0, 1e6])
def test_a_run_is_begun_once_and_found_by_its_address_alone(drive: Drive, lag: float) -> None:
    drive.person.change(list_lag=lag, name_lag=lag)
    mine = drive.store()
    begun = begin_run(pair_of(mine), "p", "r", {"a": 1}, init=True)
    theirs = drive.store(read_only=True)
    found = open_run(pair_of(theirs, seed=2, expected=begun.view.state.ledger_store), "p", "r")
    assert begun.begun and found is not None and found.view.state == begun.view.state
    assert open_run(pair_of(theirs, seed=2), "p", "other") is None
    again = begin_run(pair_of(drive.store(), drive.store(), seed=3), "p", "r", {"a": 1}, init=True)
    assert not again.begun and again.view.state == begun.view.state
    assert Ref(begun.ledger.chain.log.ref(0)) == again.ledger.chain.log.ref(0)


def test_what_a_status_read_costs(drive: Drive) -> None:
    mine = drive.store()
    begun = begin_run(pair_of(mine), "p", "r", {"a": 1}, init=True)
    identity, theirs = begun.view.state.ledger_store, drive.store(read_only=True)

    def read() -> int:
        before = sum(drive.person.look()["counts"].values())
        found = open_run(pair_of(theirs, seed=2, expected=identity), "p", "r")
        assert found is not None
        return sum(drive.person.look()["counts"].values()) - before

    first, second = read(), read()
    assert first <= 24 and second <= 10, (first, second)
