"""Whether a session may begin under an account on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay.app.messages.admitting import note_text
from relay.app.messages.errors import paragraph
from relay.app.providers import shipped
from relay.core.errors import PolicyRefused
from relay.core.ledger.registry import Row
from relay.people.account import Account, confirmed
from relay.people.accounts import AccountEntry
from relay.people.admission import AccountRetired, AnotherMachine, NotInTeam, Visit, admit
from tests.app.cli import advised

KAGGLE = shipped().named("kaggle")
VISIT = Visit("account_3", "kaggle", "sudoku", run_id="a" * 32)
NOW = 1.7e9


def listed(provider: str = "kaggle", row: Row | None = None, **fields: Any) -> AccountEntry:
    account = Account(id="account_3", label="x", owner="Ana", provider=provider, **fields)
    return AccountEntry("account_3", row or Row(sha256="0" * 64), account)


def said(run_id: str = "a" * 32, clause: str = KAGGLE.clause_digest) -> AccountEntry:
    known = listed()
    assert known.account
    return replace(known, account=confirmed(known.account, run_id, clause, NOW))


def lines(visit: Visit, known: AccountEntry | None) -> str:
    return "\n".join(map(note_text, admit(visit, known, shipped(), NOW)))


@pytest.mark.parametrize("known", [None, listed(), said("b" * 32), said(clause="0" * 16)])
def test_kaggle_asks_for_the_participant_s_word_once_a_run_and_text(known: AccountEntry | None) -> None:
    with pytest.raises(PolicyRefused) as error:
        lines(VISIT, known)
    for part in (KAGGLE.clause, "kaggle.com/terms", "--run sudoku --account account_3 --coauthor", "RELAY_COAUTHOR=1"):
        assert part in paragraph(error.value)
    assert KAGGLE.clause in lines(replace(VISIT, coauthor=True), known)


def test_once_said_it_is_not_asked_again_and_an_unbegun_run_is_another() -> None:
    assert lines(VISIT, said())
    with pytest.raises(PolicyRefused):
        lines(replace(VISIT, run_id=None), said())
    with pytest.raises(PolicyRefused):
        lines(replace(VISIT, machine="local"), listed())  # the account's terms, wherever it says it trains


@pytest.mark.parametrize(("machine", "provider"), [("kaggle", "colab"), ("colab", "kaggle"), ("colab", "local")])
def test_a_notebook_is_the_account_that_is_logged_in_whatever_was_named(machine: str, provider: str) -> None:
    with pytest.raises(AnotherMachine) as error:
        lines(replace(VISIT, machine=machine, coauthor=True), listed(provider))
    assert (error.value.provider.name, error.value.machine.name) == (provider, machine)
    text = paragraph(error.value)
    assert (
        advised(text, "accounts") == [["accounts", "edit", "account_3", "--provider", machine]] and "--account" in text
    )


def test_another_machine_is_told_where_its_time_goes() -> None:
    assert "not theirs" in lines(replace(VISIT, machine="local"), said())
    assert lines(replace(VISIT, machine="slurm"), listed("lab")) == ""
    assert lines(replace(VISIT, machine="local"), None) == ""


def test_a_competition_s_run_takes_its_team_only() -> None:
    visit = replace(VISIT, machine="local", competition="arc-prize-2026")
    for known in (None, listed("local"), listed("local", competitions={"another": 1.0})):
        with pytest.raises(NotInTeam) as error:
            lines(visit, known)
        assert "--competition arc-prize-2026" in paragraph(error.value)
    assert lines(visit, listed("local", competitions={"arc-prize-2026": 1.0})) == ""


def test_a_declared_state_is_told_and_only_a_retired_account_is_refused() -> None:
    for state in ("paused", "quota_exceeded", "blocked"):
        row = Row(sha256="0" * 64, state=state, until=NOW + 60)
        assert f"marked {state} until" in lines(replace(VISIT, machine="local"), listed("local", row))
        over = row.model_copy(update={"until": NOW - 60})
        assert lines(replace(VISIT, machine="local"), listed("local", over)) == ""
    with pytest.raises(AccountRetired):
        lines(replace(VISIT, machine="local"), listed("local", Row(sha256="0" * 64, state="retired")))
