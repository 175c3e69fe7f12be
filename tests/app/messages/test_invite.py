"""An invitation is one message to copy: it leads a friend into the run, and holds no secret."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from relay.app.messages.invitation import commands, notebook_line, shell_line, text
from storage.guides import GUIDES
from tests.app.cli import Desk


def test_who_follows_it_to_the_letter_trains_in_the_run(desk: Desk, tmp_path: Path) -> None:
    desk.train(3)
    told = desk("invite", "--run", "r").out
    shell, cell = (line.strip() for line in told.splitlines() if line.startswith("  "))
    export, setup, *commands = shell.split(" && ")
    environ = dict(word.split("=", 1) for word in shlex.split(export)[1:])
    assert setup.split()[1:] == ["multi_account_workflow.sh", "setup"], "a bare one would train, too"
    verbs = [shlex.split(line)[2:] for line in commands]
    verbatim = Desk(tmp_path / "verbatim", environ, desk.plugin)
    assert "YOUR NAME" in verbatim(*verbs[0], code=78).err and "YOUR NAME" in verbatim("run", code=78).err
    for name, target in (("Ben", 6), ("Cleo", 9), ("ben", 12)):
        friend = Desk(tmp_path / f"{name}'s machine", {**environ, "RELAY_OWNER": name}, desk.plugin)
        for words in verbs:
            friend(*words, *(["--target-steps", str(target)] if words[0] == "run" else []))
    assert cell.startswith('notebook.settings(YOUR_NAME, run="r", store="file://')
    assert "--target-steps" in desk("invite", "--run", "r").err, "it has to be raised first"
    links = [link["account"] for link in desk.status()["links"]]
    assert links[1:] == ["ben-local", "cleo-local", "ben-local"], "one line, and each friend's own account"


def test_it_writes_nothing_and_says_what_else_is_needed(desk: Desk) -> None:
    desk.train(3)
    before = sorted(path for path in desk.folder.rglob("*"))
    document = desk("invite", "--run", "r", "--json").json
    assert document["schema"] == "relay.invite/2" and list(document["addresses"]) == ["RELAY_STORE"]
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
    lines = [shell_line(commands("r", where)), notebook_line("r", where)]
    told = text("r", 5, 10, lines, where)
    assert "hunter2secret" not in told and word in told and GUIDES[kind] in told
