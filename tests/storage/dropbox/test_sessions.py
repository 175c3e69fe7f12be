"""Whole sessions of the command line on the fake Dropbox: begun once, gone on by another account, the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.storage.dropbox.handle import ROOT, Fake, Person
from tests.storage.dropbox.redirect import PORT

TRAINING = ("--target-steps", "12", "--checkpoint-every", "4")


class Desk:
    """A person's machine: a working folder of its own and the credentials in the environment."""

    def __init__(self, folder: Path, person: Person | None, store: str) -> None:
        folder.mkdir()
        self.folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RELAY_", "ACCOUNT_", "RUN_"))}
        site = ROOT / "tests/storage/dropbox/site"
        path = os.pathsep.join([str(site), str(ROOT)] if person else [str(ROOT)])
        homes = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.environ = {**kept, **homes, **(person.environ if person else {}), "PYTHONPATH": path}
        self.environ |= {"RELAY_STORE": store, "RELAY_EPHEMERAL": "1"}

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command prints; the test fails if it ends with another code."""
        command = [sys.executable, "-m", "tests.processes.program", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self("status", "--run", "r", "--json").strip().splitlines()[-1]))


@pytest.mark.slow
def test_a_run_begun_by_one_person_is_ended_by_another_in_the_same_bytes(fake: Fake, tmp_path: Path) -> None:
    ana, ben = fake.account(), fake.account()
    fake.control("share", id="4711", accounts={ana.name: "/Relay", ben.name: "/Ana's relay"})
    assert os.environ[PORT] == str(fake.port)
    first = Desk(tmp_path / "ana", ana, "dropbox://ns:4711/team")
    said = first("init", "--run", "r")
    (address,) = (line for line in said.splitlines() if line.startswith("dropbox://"))
    for person in (ana, ben):  # a bad line: some requests get no answer, some are asked to wait
        for kind in ("drop-after", "500-before", "429"):
            person.fault(kind, route="files/", chance=0.02, times=-1, retry_after=0)
    first.environ["RELAY_STORE"] = address
    for account, label in (("account_1", "Ana"), ("account_2", "Ben")):
        first("register", account, label, "--owner", account, "--provider", "local", "--yes")
    first("run", "--run", "r", "--account", "account_1", "--target-steps", "6", "--checkpoint-every", "4")
    second = Desk(tmp_path / "ben", ben, address)
    second("run", "--run", "r", "--account", "account_2", *TRAINING)
    found = second.status()
    alone = Desk(tmp_path / "alone", None, f"file://{tmp_path}/store")
    alone("run", "--run", "r", "--account", "account_1", "--new", *TRAINING)
    assert (found["step"], found["head"]["state_hash"]) == (12, alone.status()["head"]["state_hash"])
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    second("verify", "--run", "r")
    for secret in (*ana.environ.values(), *ben.environ.values()):
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()
