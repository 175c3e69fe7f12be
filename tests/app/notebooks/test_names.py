"""Each person is an account of their own, whatever machine and however often: names in notebooks on one store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relay.app.notebooks import cellstore, notebook
from relay.app.notebooks.notebook import Notebook, Stopped
from relay.core.errors import Exit
from relay.people import turns
from relay.people.owners import account_id, account_label, same_person
from tests.app.cli import Desk, ToyPlugin

COLAB, KAGGLE = {"COLAB_RELEASE_TAG": "x"}, {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}
SHELL = re.compile(r"rotate_accounts|trm-relay| --[a-z]|RELAY_OWNER")


class Lab:
    """Machines of several people that share one store; a notebook's commands run in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said = folder, dict[str, list[str]]()
        self.store = {"RELAY_STORE": (folder / "store").as_uri()}
        self.looker = Desk(folder / "looker", self.store)
        monkeypatch.setattr(notebook, "follow", self.follow)
        monkeypatch.setattr(cellstore, "evaporates", lambda path: False)
        monkeypatch.setattr(cellstore, "default_plugin", ToyPlugin)

    def book(self, machine: str, environ: Mapping[str, str]) -> Notebook:
        """A notebook on a fresh machine."""
        home = self.folder / machine
        home.mkdir()
        return Notebook(folder=home, environ={"HOME": str(home), **self.store, **environ})

    def follow(
        self, words: Sequence[str], environ: Mapping[str, str], folder: Path, line: Any, runtime: Any, document: bool
    ) -> tuple[int, str]:
        done = Desk(folder, dict(environ))(*words[words.index("trm_relay") + 1 :], code=None)
        self.said.setdefault(folder.name, []).extend(done.err.splitlines())
        return done.code, done.out

    def accounts(self) -> dict[str, Any]:
        rows = self.looker("accounts", "list", "--json").json["accounts"]
        return {row["id"]: row for row in rows}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


@pytest.mark.slow
def test_three_names_are_three_accounts_with_their_own_hours_and_turns(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "EQUAL_S", 1e-3)  # these sessions take less than an hour
    people = {"Ana": COLAB, "Ben": COLAB, "Cem": KAGGLE}
    for number, (name, machine) in enumerate(people.items(), 1):
        book = lab.book(name, machine)
        book.settings(name, coauthor=True)
        book.train(target_steps=100, until_step=10 * number)
        first = next(line for line in lab.said[name] if line)
        account = account_id(name, "colab" if machine is COLAB else "kaggle")
        assert first == f"Training as {account} ({name}'s {account.partition('-')[2].capitalize()}), owner {name}"
    found = lab.accounts()
    assert {key: (row["owner"], row["provider"], row["sessions"], row["steps"]) for key, row in found.items()} == {
        "ana-colab": ("Ana", "colab", 1, 10),
        "ben-colab": ("Ben", "colab", 1, 10),
        "cem-kaggle": ("Cem", "kaggle", 1, 10),
    }
    assert found["cem-kaggle"]["quota"] and not found["ana-colab"]["quota"], "only Kaggle gives known hours"
    status = lab.looker.status("sudoku_rotation")
    assert [link["account"] for link in status["links"]] == list(found) and status["session"]["account"] == "cem-kaggle"
    proposed = lab.looker("next", "--run", "sudoku_rotation", "--json").json
    assert {proposed["account"], *(one["account"] for one in proposed["others"])} == set(found)

    again = lab.book("fourth", COLAB)
    again.settings(" ana ")
    again.train(until_step=40)
    assert lab.accounts().keys() == found.keys(), "the same person, on another machine: the same account"
    assert (lab.accounts()["ana-colab"]["sessions"], lab.accounts()["ana-colab"]["steps"]) == (2, 20)


def test_a_used_name_is_attached_or_refused(lab: Lab) -> None:
    lab.looker("register", "account_3", "Ben's Colab")
    ben = lab.book("ben", COLAB)
    ben.settings("Ben")
    assert ben.environ["ACCOUNT_ID"] == "account_3", "registered for him by another person"
    other = lab.book("kaggle", KAGGLE)
    other.settings("Ben", coauthor=True)
    assert other.environ["ACCOUNT_ID"] == "ben-kaggle", "his account at another provider"
    ana = lab.book("ana", COLAB)
    for account in ("account_3", "ben-kaggle"):
        with pytest.raises(Stopped) as stopped:
            ana.settings("Ana", account=account)
        assert "YOUR_NAME" in str(stopped.value) and not SHELL.search(str(stopped.value))
    assert set(lab.accounts()) == {"account_3", "ben-kaggle"}, "a refusal registers nobody"
    ana.settings("Ana")
    assert ana.environ["ACCOUNT_ID"] == "ana-colab"


@pytest.mark.parametrize("name", ["", "  ", "account_1", "account_12"])
def test_what_is_no_name_opens_nothing(lab: Lab, name: str) -> None:
    book = lab.book("one", COLAB)
    with pytest.raises(Stopped) as stopped:
        book.settings(name)
    assert "YOUR_NAME" in str(stopped.value) and "ACCOUNT_ID" not in book.environ
    assert not (lab.folder / "store").exists()


@pytest.mark.parametrize(
    ("environ", "words", "register"),
    [
        ({"RELAY_OWNER": "Ana"}, ["ben-lab"], ["ana-local", "Ana's Local", "Ana", "local"]),
        ({"RELAY_OWNER": "Ana", **COLAB}, ["ben-lab"], ["ana-colab", "Ana's Colab", "Ana", "colab"]),
        ({"RELAY_OWNER": "Ben", **KAGGLE}, ["ben-lab"], ["ben-kaggle", "Ben's Kaggle", "Ben", "kaggle"]),
        ({"RELAY_OWNER": "Ben", "SLURM_JOB_ID": "7"}, ["ben-colab"], ["ben-slurm", "Ben's Slurm", "Ben", "slurm"]),
    ],
    ids=["owner", "owner-and-machine", "notebook", "slurm"],
)
def test_what_does_not_fit_is_refused_with_the_command_that_registers_the_right_one(
    lab: Lab, environ: dict[str, str], words: list[str], register: list[str]
) -> None:
    lab.looker("register", "ben-lab", "Ben's workstation", "--provider", "lab")
    lab.looker("register", "ben-colab", "Ben's Colab")
    one = Desk(lab.folder / "one", {**lab.store, **environ})
    asked = ("run", "--run", "r", "--new", "--target-steps", "5", "--coauthor")
    refused = one(*asked, "--account", words[0], code=Exit.POLICY)
    account, label, owner, provider = register
    wanted = f'register {account} "{label}" --owner {owner} --provider {provider}'
    (line,) = re.findall(r"`python rotate_accounts.py (register [^`]*)`", refused.err.replace("\n", " "))
    assert shlex.split(line) == shlex.split(wanted)
    one(*shlex.split(line))
    assert one(*asked, "--account", account).err.startswith(f"Training as {account} ({label}), owner {owner}\n")
    assert lab.looker.status("r")["links"][-1]["account"] == account


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Ana", "ana-colab"),
        ("  José  Müller ", "jose-muller-colab"),
        ("John S.", "john-s-colab"),
        ("O'Brien", "obrien-colab"),
        ("李", "p"),
        ("x" * 80, "p"),
    ],
)
def test_an_id_follows_from_the_name(name: str, found: str) -> None:
    made = account_id(name, "colab")
    assert made == found or (found == "p" and re.fullmatch(r"p[0-9a-f]{10}-colab", made))
    assert same_person(name, name.upper()) and account_id(name.upper(), "colab") == made
    assert account_label("Ana", "colab") == "Ana's Colab"
