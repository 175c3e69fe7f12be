"""Every command that reads a run refuses a name that does not exist, with the names that do."""

from __future__ import annotations

import inspect

import pytest

from relay.app.commands.table import ACCOUNTS, COMMANDS, RUNS
from tests.app.cli import Desk

BEGINNING = {"run", "exec", "init", "import", "prepare"}
"""They begin a run, or prepare the data of one that may not exist yet."""
OF_PEOPLE = {"register"}
"""Without a run."""
NEEDED = {"fork": ("--to", "other"), "track": ("--to", "tensorboard"), "report": (), "runs archive": (), "repair": ()}
GROUPED = {f"runs {name}": command for name, command in RUNS.items()}
WITH_A_RUN = [
    name
    for name, command in {**COMMANDS, **GROUPED, **{f"accounts {name}": one for name, one in ACCOUNTS.items()}}.items()
    if "run" in inspect.signature(command).parameters
]
READING = [name for name in WITH_A_RUN if name not in BEGINNING | OF_PEOPLE and not name.startswith("accounts ")]


@pytest.fixture
def trained(desk: Desk) -> Desk:
    desk.train(3, run="ours")
    return desk


def test_the_list_is_complete() -> None:
    """A new command with a run is a reader unless it is named above."""
    assert {"report", "status", "next", "plan", "dashboard", "plot", "verify", "doctor", "export", "gc"} <= {*READING}


@pytest.mark.parametrize("name", READING)
def test_a_mistyped_name_is_refused_with_the_names_that_exist(name: str, trained: Desk) -> None:
    store = trained.folder / "relay_store"
    before = sorted(store.rglob("*"))
    done = trained(*name.split(), "--run", "yours", *NEEDED.get(name, ()), code=78)
    assert "ours" in done.out + done.err, done
    assert name == "doctor" or sorted(store.rglob("*")) == before, "nothing is begun"


@pytest.mark.parametrize(
    "words", [("report",), ("status",), ("next",), ("plan",), ("dashboard", "--json"), ("doctor",)]
)
def test_a_store_without_any_run_reports_cleanly(words: tuple[str, ...], desk: Desk) -> None:
    assert desk(*words, "--run", "ours").code == 0
    desk("register", "account_1", "Ana")
    assert desk(*words, "--run", "ours").code == 0


def test_accounts_are_shown_whatever_the_run(trained: Desk) -> None:
    for words in (("accounts", "list"), ("report", "--account", "account_1"), ("accounts", "show", "account_1")):
        assert trained(*words, code=0)
