"""Two people who change one account at once: both get their way, or one is told (P12)."""

from __future__ import annotations

import pytest

from relay.core.errors import PolicyRefused
from relay.core.ledger.registry import RegistryState
from relay.people.account import Reading
from relay.people.accounts import IdTaken
from storage.memory import MemoryStore
from tests.people.registering import accounts, meeting, register


def test_two_people_editing_at_once_both_get_their_way() -> None:
    store = MemoryStore()
    other = accounts(store)
    register(other, "account_1", "Ana's Colab")
    mine = meeting(store)
    mine.meanwhile = lambda: other.edit("account_1", zone="Europe/Berlin")
    edited = mine.edit("account_1", label="Ana in Berlin")
    assert (edited.zone, edited.label, edited.revision) == ("Europe/Berlin", "Ana in Berlin", 3)
    assert accounts(store, 3).get("account_1") == other.get("account_1") == edited


def test_two_people_changing_and_changing_back_lose_nothing() -> None:
    store = MemoryStore()
    other = accounts(store)
    register(other, "account_1", "one")
    other.edit("account_1", label="two")
    mine = meeting(store)
    mine.meanwhile = lambda: other.edit("account_1", label="one")
    assert mine.edit("account_1", label="two").revision == 4
    assert accounts(store, 3).get("account_1").label == "two"


def test_two_people_registering_one_id_at_once() -> None:
    store = MemoryStore()
    other = accounts(store)
    mine = meeting(store)
    mine.meanwhile = lambda: register(other, "account_1", "Ben's Colab")
    with pytest.raises(IdTaken) as error:
        register(mine, "account_1", "Ana's Colab")
    assert (error.value.account, error.value.label) == ("account_1", "Ben's Colab")
    mine.meanwhile = lambda: register(other, "account_2", "Kaggle A")
    with pytest.raises(PolicyRefused):
        register(mine, "account_3", "Kaggle B")
    assert list(accounts(store, 3).all()) == ["account_1", "account_2"]


def test_an_edit_that_lost_the_object_under_a_reader_is_read_again() -> None:
    store = MemoryStore()
    writer, reader = accounts(store), accounts(store, 2)
    register(writer, "account_1", "Ana's Colab")
    stale: list[RegistryState | None] = [reader.registry.read()]
    writer.edit("account_1", label="new")
    newest = reader.registry.read
    reader.registry.read = lambda: stale.pop() if stale else newest()  # type: ignore[method-assign]
    listed = reader.all()["account_1"]
    assert listed.account and listed.account.label == "new"


def test_a_state_and_an_edit_at_once_both_stay() -> None:
    store = MemoryStore()
    other = accounts(store)
    register(other, "account_1", "Ana's Colab")
    mine = meeting(store)
    mine.meanwhile = lambda: other.set_status("account_1", "paused", 1.9e9)
    mine.edit("account_1", label="new")
    other.set_status("account_1", "blocked")
    found = accounts(store, 3).all()["account_1"]
    assert (found.row.state, found.row.until, found.label) == ("blocked", None, "new")


def test_two_numbers_of_one_quota_at_once_the_newer_one_stays() -> None:
    store = MemoryStore()
    other = accounts(store)
    register(other, "account_1", "Ana's Colab")
    older, newer = (Reading(left_s=at, source="declared", read_at=at) for at in (1000.0, 1300.0))
    mine = meeting(store)
    mine.meanwhile = lambda: other.set_quota("account_1", newer)
    assert mine.set_quota("account_1", older).quota == newer == accounts(store, 3).get("account_1").quota
