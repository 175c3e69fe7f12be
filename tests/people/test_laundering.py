"""One person, one account where one is allowed: no renaming, editing, retiring or forgetting makes room for another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.messages.errors import paragraph
from relay.core.errors import PolicyRefused
from relay.core.ledger.changes import Refused
from relay.core.ledger.frozen import MAX_CLAIMS
from relay.core.ledger.registry import Row
from relay.people.accounts import Accounts, NotItsPerson, claim_of
from relay.people.owners import folded, same_person
from relay.people.policy import OneTooMany
from storage.memory import MemoryStore
from tests.facts import raising
from tests.people.registering import accounts, meeting, register


def trained(store: MemoryStore | None = None, owner: str = "John", provider: str = "kaggle") -> Accounts:
    """account_1 of John, who has trained."""
    known = accounts(store or MemoryStore())
    register(known, "account_1", "first", owner=owner, provider=provider)
    known.claim("account_1")
    return known


def second(known: Accounts, account: str = "account_2", owner: str = "John", label: str = "second") -> Any:
    return register(known, account, label, owner=owner, provider="kaggle")


def back_and_forth(known: Accounts) -> None:
    for owner in ("Peter", "John", "Mary"):
        known.edit("account_1", owner=owner)


def forgotten(known: Accounts) -> None:
    known.forget("account_1")


def edited_then_forgotten(known: Accounts) -> None:
    known.edit("account_1", owner="Peter")
    known.forget("account_1")


def damaged(known: Accounts) -> None:
    for stat in list(known.store.list("registry/accounts/account_1/")):
        known.store.delete(stat.ref)


WAYS: dict[str, Callable[[Accounts], object]] = {
    "nothing": lambda known: None,
    "rename": lambda known: known.edit("account_1", label="Somebody else entirely"),
    "edit the owner": lambda known: known.edit("account_1", owner="Peter"),
    "edit the owner back and forth": back_and_forth,
    "edit the provider": lambda known: known.edit("account_1", provider="local"),
    "retire": lambda known: known.set_status("account_1", "retired"),
    "block": lambda known: known.set_status("account_1", "blocked"),
    "forget": forgotten,
    "edit, then forget": edited_then_forgotten,
    "damage": damaged,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("owner", ["John", "  jOHN ", "Ｊｏｈｎ", "Jo\u200bhn", "J\u043ehn", "J\u00f3hn", "John."])
def test_after_training_no_way_makes_room_for_a_second_account(way: str, owner: str) -> None:
    known = trained()
    WAYS[way](known)
    with pytest.raises(PolicyRefused, match="account_1") as error:
        second(known, owner=owner)
    assert error.value.exit_code == 77
    assert "account_2" not in known.all()
    with pytest.raises(PolicyRefused):  # nor by the way of an account that is allowed
        register(known, "account_3", "mine", owner="Zoe", provider="kaggle")
        known.edit("account_3", owner=owner)
    with pytest.raises(PolicyRefused):
        register(known, "account_4", "laptop", owner=owner, provider="local")
        known.edit("account_4", provider="kaggle")


def test_the_refusal_says_the_reason_its_source_and_every_way_out() -> None:
    with pytest.raises(PolicyRefused) as error:
        second(trained())
    text = paragraph(error.value)
    for part in ("John already has account_1 at Kaggle", "allows 1 per person", "https://www.kaggle.com/terms", "2026-",
                 "transcribed", "invite another person", "RELAY_OWNER", '--owner "John S."', "another provider",
                 "a paid tier", "cluster", "grant", "Retired, renamed and forgotten"):  # fmt: skip
        assert part in text, part
    assert "--force" not in text and "override" not in text


@pytest.mark.parametrize("spelled", ["kaggle2", "my-kaggle", "kaggle_gpu", "kagglepro", "KAGGLE"])
def test_a_provider_spelled_otherwise_is_no_other_provider(spelled: str) -> None:
    known = trained()
    with pytest.raises(PolicyRefused, match="account_1"):
        register(known, "account_2", "second", owner="John", provider=spelled)
    register(known, "account_3", "laptop", owner="John", provider="local")
    with pytest.raises(PolicyRefused, match="account_1"):
        known.edit("account_3", provider=spelled)


def test_an_object_that_is_taken_away_and_put_back_makes_no_second_account_either() -> None:
    store = MemoryStore()
    known = accounts(store)
    register(known, "account_1", "first", owner="John", provider="kaggle")
    ((ref, data),) = [(stat.ref, store.get(stat.ref)) for stat in store.list("registry/accounts/account_1/")]
    store.delete(ref)
    other = accounts(store, 2)
    assert second(other)[1], "nothing tells whose the lost one was, and it has not trained"
    store.put(str(ref), data)
    other.claim("account_2")
    with pytest.raises(PolicyRefused, match="account_2"):
        accounts(store, 3).claim("account_1")


def test_two_people_of_one_name_are_told_apart() -> None:
    known = trained()
    assert second(known, owner="John S.")[1]
    assert not same_person("John", "John S.")


def test_a_correction_before_it_ever_trained_gives_the_name_back() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "oops", owner="John", provider="kaggle")
    known.edit("account_1", owner="Peter")
    assert second(known)[1]
    register(known, "account_3", "oops again", owner="Mary", provider="kaggle")
    known.forget("account_3")
    assert second(known, "account_4", owner="Mary")[1]


def test_once_it_has_trained_every_later_owner_is_held_too() -> None:
    known = trained()
    known.edit("account_1", owner="Peter")
    known.edit("account_1", owner="Mary")
    for owner in ("John", "Peter", "Mary"):
        with pytest.raises(PolicyRefused):
            second(known, owner=owner)
    with raising(Refused, "account_1", MAX_CLAIMS):
        for number in range(MAX_CLAIMS):
            known.edit("account_1", owner=f"Person {number}")


def test_a_forgotten_account_comes_back_to_its_person_under_its_id_and_to_nobody_else() -> None:
    known = trained()
    known.forget("account_1")
    with pytest.raises(OneTooMany) as error:
        second(known)
    assert error.value.forgotten == ("account_1",) and "register account_1" in paragraph(error.value)
    for owner, provider in (("Peter", "kaggle"), ("John", "colab"), ("John", "local")):
        with pytest.raises(NotItsPerson):
            register(known, "account_1", "again", owner=owner, provider=provider)
    account, new = register(known, "account_1", "again", owner="JOHN", provider="kaggle")
    assert new and known.get("account_1") == account
    assert known.all()["account_1"].row.state == "ready"
    with pytest.raises(PolicyRefused):
        second(known)


def test_one_that_never_trained_and_was_forgotten_stays_empty() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "x", owner="John", provider="kaggle")
    known.forget("account_1")
    with pytest.raises(NotItsPerson):
        register(known, "account_1", "x", owner="John", provider="kaggle")


@pytest.mark.parametrize("meanwhile", ["edit", "forget", "claim"])
def test_two_editors_at_once_make_no_room_either(meanwhile: str) -> None:
    store = MemoryStore()
    other = trained(store) if meanwhile != "claim" else accounts(store)
    mine = meeting(store)
    if meanwhile == "claim":
        register(other, "account_1", "first", owner="John", provider="kaggle")
        mine.meanwhile = lambda: other.claim("account_1")  # a session begins while somebody corrects the owner
        mine.edit("account_1", owner="Peter")
    elif meanwhile == "edit":
        mine.meanwhile = lambda: other.edit("account_1", owner="Peter")
    else:
        mine.meanwhile = lambda: other.forget("account_1")
    with pytest.raises(PolicyRefused):
        second(mine)
    with pytest.raises(PolicyRefused):
        second(accounts(store, 3))


def test_what_stays_after_forget_names_nobody_and_differs_from_store_to_store() -> None:
    store = MemoryStore()
    known = trained(store, owner="Zebulon")
    known.forget("account_1")
    row: Row = known.all()["account_1"].row
    assert len(row.claims) == 1 and len(row.claims[0]) == 16
    assert not any(b"zeb" in store.get(stat.ref).lower() for stat in store.list(""))
    assert claim_of("0" * 32, "kaggle", "Zebulon") != claim_of("1" * 32, "kaggle", "Zebulon")


def test_claiming_twice_writes_once_and_unlimited_providers_never() -> None:
    store = MemoryStore()
    known = trained(store)
    register(known, "account_2", "PC", owner="John", provider="local")
    entries = len(list(store.list("registry/ledger/")))
    known.claim("account_1")
    known.claim("account_2")
    assert len(list(store.list("registry/ledger/"))) == entries
    assert known.all()["account_2"].row.claims == ()


NAMES = st.text(st.characters(codec="utf-8"), max_size=40)


@given(NAMES)
def test_folding_is_stable_and_blind_to_how_a_name_is_typed(name: str) -> None:
    assert folded(folded(name)) == folded(name)
    assert same_person(name, f"  {name}\t") and same_person(name, name.replace("", "\u200b"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana", "Anna"),
        ("John", "John S."),
        ("कि", "क"),
        ("がく", "かく"),
        ("李", "李四"),
        ("", "Ana"),
        ("🙂", "🙃"),
        ("한", "하"),
    ],
)
def test_different_people_stay_different(one: str, other: str) -> None:
    assert not same_person(one, other)
