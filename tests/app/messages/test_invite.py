"""An invitation is one message to copy: it leads a friend into the run, and holds no secret."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from relay.app.messages.invitation import commands, free_id, notebook_line, shell_line, text
from tests.app.cli import Desk


def test_who_follows_it_to_the_letter_trains_in_the_run(desk: Desk, tmp_path: Path) -> None:
    desk("register", "account_1", "Ana's Colab")
    desk.train(3)
    told = desk("invite", "--run", "r").out
    shell, cell = (line.strip() for line in told.splitlines() if line.startswith("  "))
    export, setup, *commands = shell.split(" && ")
    friend = Desk(tmp_path / "friend", dict(word.split("=", 1) for word in shlex.split(export)[1:]), desk.plugin)
    assert setup.split()[1:] == ["multi_account_workflow.sh", "setup"], "a bare one would train as account_1"
    for line in commands:
        words = shlex.split(line)[2:]
        friend(*words, *(["--target-steps", "6"] if words[0] == "run" else []))
    assert cell.startswith('notebook.settings(YOUR_NAME, run="r", store="file://')
    assert "--target-steps" in desk("invite", "--run", "r").err, "it has to be raised first"
    assert desk.status()["step"] == 6 and [link["account"] for link in desk.status()["links"]][-1] == "account_2"


def test_it_writes_nothing_and_says_what_else_is_needed(desk: Desk) -> None:
    desk.train(3)
    before = sorted(path for path in desk.folder.rglob("*"))
    document = desk("invite", "--run", "r", "--json").json
    assert document["schema"] == "relay.invite/1" and list(document["addresses"]) == ["RELAY_STORE"]
    assert sorted(path for path in desk.folder.rglob("*")) == before
    assert document["addresses"]["RELAY_STORE"] in desk("invite", "--run", "r").out


def test_two_stores_are_both_told(desk: Desk) -> None:
    desk("init", "--run", "r", "storage.ledger_url=ledger", "storage.checkpoint_url=checkpoints")
    environ = {"RELAY_LEDGER_STORE": "ledger", "RELAY_CHECKPOINT_STORE": "checkpoints"}
    told = desk("invite", "--run", "r", "--json", **environ).json
    assert list(told["addresses"]) == list(environ) and len(set(told["addresses"].values())) == 2


@pytest.mark.parametrize(("kind", "word"), [("s3", "access key"), ("dropbox", "token"), ("drive", "token")])
def test_what_opens_the_store_goes_another_way(kind: str, word: str) -> None:
    address = f"{kind}://key:hunter2secret@bucket/relay"
    where = {"RELAY_STORE": address}
    lines = [shell_line(commands("r", "account_2", where)), notebook_line("r", where)]
    told = text("r", 5, 10, lines, where)
    assert "hunter2secret" not in told and word in told and f"docs/how-to/{kind}.md" in told


def test_the_proposed_id_is_nobodys() -> None:
    assert free_id([]) == "account_1" and free_id(["account_1", "x", "account_3"]) == "account_2"
