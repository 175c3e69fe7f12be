"""Accounts: registering, editing, forgetting, and what a provider allows (P12, DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relay.account import MAX_BYTES, Account, Reading, confirmed, decode, in_team, object_name
from relay.accounts import Accounts
from relay.canonical import digest, dumps
from relay.entry import NewerFormat
from relay.errors import BadConfig, BadData, Exit, PolicyRefused
from relay.owners import infer
from relay.policy import shipped
from relay.quota import left
from relay.registry import PutAccount, Registry, RegistryState, Row
from storage.base import Store
from storage.memory import MemoryStore
from tests.relay.runs import QuietRuntime, id_of


def accounts(store: Store, number: int = 1) -> Accounts:
    registry = Registry(store, QuietRuntime(number), session=id_of(number))
    registry.begin(id_of(5))
    return Accounts(registry, shipped())


def register(known: Accounts, account: str, label: str, login: str = "maria", **flags: Any) -> tuple[Account, bool]:
    found = infer(label, flags.pop("owner", None), flags.pop("provider", None), {}, login, shipped())
    return known.register(account, label, found, **flags)


def test_the_guide_s_lines_register_as_written() -> None:
    known = accounts(MemoryStore())
    john, new = register(known, "account_1", "John's Colab")
    assert (john.owner, john.provider, john.label, new) == ("John", "colab", "John's Colab", True)
    kaggle, _ = register(known, "account_3", "Kaggle - Project 1")
    assert (kaggle.owner, kaggle.provider) == ("maria", "kaggle")
    backup, _ = register(known, "account_11", "Backup Account")
    assert (backup.owner, backup.provider) == ("maria", "unknown")
    assert list(known.all()) == ["account_1", "account_11", "account_3"]


def test_registering_the_same_again_changes_nothing_whoever_does_it() -> None:
    store = MemoryStore()
    first, _ = register(accounts(store), "account_3", "Kaggle - Project 1", gpu="T4")
    before = [stat.name for stat in store.list("")]
    again, new = register(accounts(store, 2), "account_3", "Kaggle - Project 1", login="peter")
    assert (again, new) == (first, False)
    assert [stat.name for stat in store.list("")] == before


@pytest.mark.parametrize(
    ("label", "flags"),
    [
        ("Mary's Colab", {}),
        ("John's Colab", {"owner": "Mary"}),
        ("John's Colab", {"provider": "kaggle"}),
        ("John's Colab", {"tier": "pro"}),
    ],
)
def test_an_id_that_is_taken_is_78_with_the_edit_command(label: str, flags: dict[str, str]) -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "John's Colab")
    with pytest.raises(BadConfig, match="accounts edit account_1") as error:
        register(known, "account_1", label, **flags)
    assert error.value.exit_code == Exit.BAD_CONFIG
    assert known.get("account_1").label == "John's Colab"


def test_a_second_account_of_one_person_where_one_is_allowed_is_77() -> None:
    known = accounts(MemoryStore())
    register(known, "account_3", "Kaggle - Project 1")
    with pytest.raises(PolicyRefused) as error:
        register(known, "account_4", "Kaggle - Project 2", login="  MARIA ")
    text = str(error.value)
    assert error.value.exit_code == Exit.POLICY
    assert all(part in text for part in ("account_3", "Kaggle", "1 per person", "kaggle.com/terms", "--owner"))
    assert list(known.all()) == ["account_3"]
    register(known, "account_4", "Kaggle - Project 2", owner="Peter")
    register(known, "account_5", "Maria's Colab")
    register(known, "account_6", "somewhere else", provider="newcloud", owner="Peter")
    with pytest.raises(PolicyRefused):
        register(known, "account_7", "there again", provider="newcloud", owner="Peter")


def test_own_machines_are_not_limited() -> None:
    known = accounts(MemoryStore())
    for number, label in enumerate(("my laptop", "the lab", "lab 2", "slurm a", "slurm b", "this machine", "old PC")):
        register(known, f"account_{number}", label)
    assert len(known.all()) == 7


def test_an_edit_may_not_go_round_the_policy() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Kaggle")
    register(known, "account_2", "Ben's Kaggle")
    with pytest.raises(PolicyRefused):
        known.edit("account_2", owner="ana")
    register(known, "account_3", "x", owner="Ana", provider="local")
    with pytest.raises(PolicyRefused):
        known.edit("account_3", provider="kaggle")
    assert known.edit("account_2", label="Ben's second try").owner == "Ben"


class Meeting(Accounts):
    """Runs `meanwhile` once, between building a change and sending it."""

    meanwhile: Callable[[], object] | None = None

    def _put(self, account: Account, row: Row | None, claim: str | None) -> Any:
        put = super()._put(account, row, claim)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        return put


def meeting(store: MemoryStore) -> Meeting:
    return Meeting(Registry(store, QuietRuntime(9), session=id_of(9)), shipped())


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
    with pytest.raises(BadConfig, match='registered as "Ben\'s Colab"'):
        register(mine, "account_1", "Ana's Colab")
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
        with pytest.raises(BadConfig, match="forgotten"):
            act()


def test_an_unknown_account_is_78_with_the_nearest() -> None:
    known = accounts(MemoryStore())
    with pytest.raises(BadConfig, match="Registered are: none"):
        known.get("account_1")
    register(known, "account_1", "Ana's Colab")
    with pytest.raises(BadConfig, match="Did you mean account_1"):
        known.get("acount_1")
    with pytest.raises(BadConfig):
        known.set_status("x", "ready")
    with pytest.raises(BadConfig):
        known.edit("x", label="y")
    with pytest.raises(BadConfig):
        known.forget("x")


def test_a_declared_state_is_kept() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Colab")
    known.set_status("account_1", "quota_exceeded", until=1.9e9)
    row = known.all()["account_1"].row
    assert (row.state, row.until) == ("quota_exceeded", 1.9e9)


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
        with pytest.raises(BadData, match="missing or damaged"):
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
    known.registry.append("account", lambda s: known._put(evil, s.accounts["account_1"], None))
    read = accounts(store, 3).get("account_1")
    assert (read.owner, read.contact) == ("[2JEve fake line", "c" * 40)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"password": "x"}, "no field password"),
        ({"label": " \n"}, "label cannot be empty"),
        ({"zone": "Mars/Olympus"}, "IANA"),
        ({"provider": "not a name!"}, "provider"),
    ],
)
def test_a_wrong_edit_is_78(fields: dict[str, str], match: str) -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Colab")
    with pytest.raises(BadConfig, match=match):
        known.edit("account_1", **fields)
    assert known.get("account_1").revision == 1


def test_the_registry_s_entries_hold_no_names() -> None:
    store = MemoryStore()
    register(accounts(store), "account_1", "Zebulon's Colab")
    for stat in store.list("registry/ledger/"):
        assert b"Zeb" not in store.get(stat.ref)


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


def test_a_number_from_a_clock_that_ran_ahead_bars_no_later_one() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Kaggle")
    now = known.store.now()
    ahead = Reading(left_s=1.0, source="declared", read_at=now + 30 * 86400)
    known.set_quota("account_1", ahead)
    estimate = left(known.get("account_1"), shipped().named("kaggle"), lambda interval: 0.0, now)
    assert estimate and (estimate.source, estimate.left_s) == ("estimated", 30 * 3600.0)
    assert known.set_quota("account_1", Reading(left_s=9.0, source="declared", read_at=now)).quota != ahead


def test_a_person_s_word_goes_with_the_person() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Kaggle", owner="Ana")
    run, clause = "a" * 32, shipped().named("kaggle").clause_digest
    known.change("account_1", lambda old: in_team(confirmed(old, run, clause, 5.0), "arc", 5.0))
    assert known.edit("account_1", owner="ANA", label="Ana's").has_confirmed(run, clause), "the same person"
    other = known.edit("account_1", owner="Ben")
    assert not other.has_confirmed(run, clause) and not other.competitions


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
        with pytest.raises(NewerFormat, match="Upgrade"):
            act()


def test_an_object_says_nothing_of_what_nobody_told() -> None:
    plain = Account(id="a", label="a", owner="A", provider="colab").model_dump(mode="json")
    assert not {"session_minutes", "weekly_hours", "reset", "quota", "confirmed", "competitions"} & set(plain)
