"""Objects of accounts: damaged, hostile or newer ones, and what of a person lies where (P12)."""

from __future__ import annotations

import pytest

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.registry import PutAccount
from relay.people.account import MAX_BYTES, Account, confirmed, decode, object_name
from relay.people.accounts import AccountDamaged, AccountForgotten
from storage.memory import MemoryStore
from tests.core.making import id_of
from tests.people.registering import accounts, register


def test_forget_empties_an_account_everywhere() -> None:
    store = MemoryStore()
    known = accounts(store)
    register(known, "account_1", "Zebulon's Colab", owner="Zebulon")
    known.edit("account_1", contact="zeb@example.org")
    known.forget("account_1")
    for stat in store.list(""):
        content = store.get(stat.ref).lower()
        assert b"zeb" not in content, stat.name
    assert known.all()["account_1"].label == "account_1"
    known.forget("account_1")
    for act in (lambda: known.get("account_1"), lambda: known.edit("account_1", label="x")):
        with pytest.raises(AccountForgotten):
            act()


def test_a_damaged_object_hides_one_account_only() -> None:
    store = MemoryStore()
    known = accounts(store)
    register(known, "account_1", "Ana's Colab")
    register(known, "account_2", "Ben's Colab")
    name = next(stat.name for stat in store.list("registry/accounts/account_1/"))
    for data in (b"{}", b"\xff", b"x" * 5000, store.get(store.ref(name)).replace(b"Ana", b"Eve")):
        store.put(name, data)
        fresh = accounts(store, 3)
        assert fresh.all()["account_1"].account is None
        assert fresh.all()["account_2"].label == "Ben's Colab"
        with pytest.raises(AccountDamaged):
            fresh.get("account_1")


def test_texts_from_strangers_are_short_and_printable() -> None:
    known = accounts(MemoryStore())
    account, _ = register(known, "account_1", "Ana\x1b[31m's\n" + "Colab " * 50, owner="\u202eA\x00na")
    assert account.owner == "A na" and "\x1b" not in account.label and len(account.label) <= 60
    with pytest.raises(BadConfig, match="at most 1000"):
        register(known, "account_2", "\U0001f600" * 60, owner="\U0001f600" * 40)
    assert len(known.store.get(next(iter(known.store.list("registry/accounts/"))).ref)) <= MAX_BYTES


def test_texts_in_a_stranger_s_object_are_cleaned_when_read() -> None:
    store = MemoryStore()
    known = accounts(store)
    account, _ = register(known, "account_1", "Ana's Colab")
    evil = account.model_copy(update={"owner": "\x1b[2JEve\nfake line", "contact": "\u202e" + "c" * 200})
    known.registry.append("account", lambda s: known.objects.put(evil, s.accounts["account_1"], None))
    read = accounts(store, 3).get("account_1")
    assert (read.owner, read.contact) == ("[2JEve fake line", "c" * 40)


def test_the_registry_s_entries_hold_no_names() -> None:
    store = MemoryStore()
    register(accounts(store), "account_1", "Zebulon's Colab")
    for stat in store.list("registry/ledger/"):
        assert b"Zeb" not in store.get(stat.ref)


@pytest.mark.parametrize("number", [-100.0, 0.0, 1e300])
@pytest.mark.parametrize("key", ["session_minutes", "weekly_hours"])
def test_a_stranger_s_numbers_are_within_what_people_may_say(key: str, number: float) -> None:
    plain = Account(id="a", label="a", owner="a", provider="lab").model_dump(mode="json")
    for value, read in ((5.0, True), (number, False)):
        data = dumps(plain | {key: value})
        assert (decode(data, "a", digest(data)) is not None) == read


def test_words_for_many_runs_fit_and_the_newest_stay() -> None:
    store = MemoryStore()
    known = accounts(store)
    register(
        known,
        "account_1",
        "\U0001f600" * 20,
        owner="Ana",
        contact="c" * 40,
        availability="mon-fri 18:00-23:00; sat,sun 09:00-22:00",
    )
    for number in range(40):
        known.change("account_1", lambda old, n=number: confirmed(old, id_of(n)[::-1], "0" * 16, 1.7e9 + n))  # type: ignore[misc]
    found = accounts(store, 3).get("account_1")
    assert found.has_confirmed(id_of(39)[::-1], "0" * 16) and not found.has_confirmed(id_of(0)[::-1], "0" * 16)
    assert not found.has_confirmed(id_of(39)[::-1], "1" * 16), "another text is asked about again"
    assert all(stat.size <= MAX_BYTES for stat in store.list("registry/accounts/"))


def test_an_object_of_a_later_version_is_no_damage() -> None:
    store = MemoryStore()
    known = accounts(store)
    register(known, "account_1", "Ana's Colab")
    row = known.all()["account_1"].row
    data = dumps({"format": 2, "id": "account_1", "colour": "red"})
    store.put(object_name("account_1", digest(data)), data)
    change = PutAccount(id="account_1", sha256=digest(data), replaces=row.sha256)
    known.registry.append("account", lambda state: change)
    for act in (accounts(store, 3).all, lambda: accounts(store, 4).get("account_1")):
        with pytest.raises(NewerFormat):
            act()


def test_an_object_says_nothing_of_what_nobody_told() -> None:
    plain = Account(id="a", label="a", owner="A", provider="colab").model_dump(mode="json")
    assert not {"session_minutes", "weekly_hours", "reset", "quota", "confirmed", "competitions"} & set(plain)
