"""Accounts: registering, editing, forgetting, and what a provider allows (P12, DESIGN 7)."""

from __future__ import annotations

import pytest

from relay.app.messages.errors import paragraph
from relay.app.providers import shipped
from relay.core.errors import BadConfig, Exit, PolicyRefused
from relay.people.account import Reading, confirmed, in_team
from relay.people.accounts import IdTaken, NoAccount
from relay.people.quota import left
from storage.memory import MemoryStore
from tests.people.registering import accounts, register


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
    with pytest.raises(IdTaken) as error:
        register(known, "account_1", label, **flags)
    assert error.value.exit_code == Exit.BAD_CONFIG and "accounts edit account_1" in paragraph(error.value)
    assert known.get("account_1").label == "John's Colab"


def test_a_second_account_of_one_person_where_one_is_allowed_is_77() -> None:
    known = accounts(MemoryStore())
    register(known, "account_3", "Kaggle - Project 1")
    with pytest.raises(PolicyRefused) as error:
        register(known, "account_4", "Kaggle - Project 2", login="  MARIA ")
    text = paragraph(error.value)
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


def test_an_unknown_account_is_78_with_the_nearest() -> None:
    known = accounts(MemoryStore())
    with pytest.raises(NoAccount) as error:
        known.get("account_1")
    assert error.value.known == () and "register account_1" in paragraph(error.value)
    register(known, "account_1", "Ana's Colab")
    with pytest.raises(NoAccount) as error:
        known.get("acount_1")
    assert (error.value.account, error.value.known) == ("acount_1", ("account_1",))
    assert "account_1?" in paragraph(error.value)
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


def test_a_number_from_a_clock_that_ran_ahead_bars_no_later_one() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Kaggle")
    now = known.store.now()
    ahead = Reading(left_s=1.0, source="declared", read_at=now + 30 * 86400)
    known.set_quota("account_1", ahead)
    estimate = left(known.get("account_1"), shipped().named("kaggle"), lambda interval: 0.0, now)
    assert estimate and (estimate.source, estimate.left_s) == ("estimated", 30 * 3600.0)
    assert known.set_quota("account_1", Reading(left_s=9.0, source="declared", read_at=now)).quota != ahead


def test_what_was_read_counts_less_what_was_used_since_and_never_below_nothing() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Ana's Kaggle")
    now = known.store.now()
    account = known.set_quota("account_1", Reading(left_s=100.0, source="declared", read_at=now - 60.0))
    for used, rest in ((30.0, 70.0), (500.0, 0.0)):
        found = left(account, shipped().named("kaggle"), lambda interval, used=used: used, now)
        assert found and (found.left_s, found.of_s, found.age_s(now)) == (rest, 30 * 3600.0, 60.0)
        assert found.age_s(now - 1000.0) == 0.0, "by a clock that went back"


def test_a_week_s_hours_are_what_is_left_of_them() -> None:
    known = accounts(MemoryStore())
    account, _ = register(known, "account_1", "Ana's Kaggle")
    found = left(account, shipped().named("kaggle"), lambda interval: 3600.0, known.store.now())
    assert found and (found.left_s, found.of_s) == (29 * 3600.0, 30 * 3600.0)
    plain, _ = register(known, "account_2", "Ben's Lab", provider="unknown")
    told = known.set_quota("account_2", Reading(left_s=9.0, source="declared", read_at=known.store.now()))
    assert left(plain, shipped().named("unknown"), lambda interval: 0.0, known.store.now()) is None
    read = left(told, shipped().named("unknown"), lambda interval: 0.0, known.store.now())
    assert read and (read.left_s, read.of_s) == (9.0, None)


def test_a_person_s_word_goes_with_the_person() -> None:
    known = accounts(MemoryStore())
    register(known, "account_1", "Kaggle", owner="Ana")
    run, clause = "a" * 32, shipped().named("kaggle").clause_digest
    known.change("account_1", lambda old: in_team(confirmed(old, run, clause, 5.0), "arc", 5.0))
    assert known.edit("account_1", owner="ANA", label="Ana's").has_confirmed(run, clause), "the same person"
    other = known.edit("account_1", owner="Ben")
    assert not other.has_confirmed(run, clause) and not other.competitions
