"""Whole sessions of the command line on the fake Drive: begun once, gone on by another account, the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.storage.drive.handle import ROOT, Fake
from tests.storage.drive.stores import holding

TRAINING = ("--target-steps", "12", "--checkpoint-every", "4")


class Desk:
    """A person's machine: a working folder of its own and the credentials in the environment."""

    def __init__(self, folder: Path, environ: dict[str, str], store: str) -> None:
        folder.mkdir()
        self.folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RELAY_", "ACCOUNT_", "RUN_"))}
        homes = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.environ = {**kept, **homes, "PYTHONPATH": str(ROOT), **environ}
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
    owner = fake.person()
    owner.change(list_lag=1e6, name_lag=1e6)  # no listing shows anything, ever
    environ = {**fake.environ(), **holding(owner)}
    first = Desk(tmp_path / "ana", environ, "drive://new")
    said = first("init", "--run", "r")
    (address,) = (line for line in said.splitlines() if line.startswith("drive://"))
    for kind in ("drop-after", "500-before", "429", "userRateLimit"):  # a bad line, and requests to wait
        owner.fault(kind, route="v3.", chance=0.02, times=-1, retry_after=0)
    first.environ["RELAY_STORE"] = address
    for account, label in (("account_1", "Ana"), ("account_2", "Ben")):
        first("register", account, label, "--owner", account, "--provider", "local", "--yes")
    first("run", "--run", "r", "--account", "account_1", "--target-steps", "6", "--checkpoint-every", "4")
    second = Desk(tmp_path / "ben", environ, address)
    second("run", "--run", "r", "--account", "account_2", *TRAINING)
    found = second.status()
    alone = Desk(tmp_path / "alone", {}, f"file://{tmp_path}/store")
    alone("run", "--run", "r", "--account", "account_1", "--new", *TRAINING)
    assert (found["step"], found["head"]["state_hash"]) == (12, alone.status()["head"]["state_hash"])
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    second("verify", "--run", "r")
    secrets = [owner.holds["refresh_token"], owner.holds["client_secret"]]
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or not any(secret.encode() in file.read_bytes() for secret in secrets)


@pytest.mark.slow
def test_a_wrong_address_token_or_scope_is_one_line_and_78_or_69(fake: Fake, tmp_path: Path) -> None:
    owner, stranger, broad = fake.person(), fake.person(), fake.person(("drive",))
    desk = Desk(tmp_path / "ana", {**fake.environ(), **holding(owner)}, "drive://new")
    assert "drive://new" in desk("status", "--run", "r", code=78)
    address = next(line for line in desk("init", "--run", "r").splitlines() if line.startswith("drive://"))
    desk.environ |= {"RELAY_STORE": address, **holding(stranger)}
    assert "narrow token" in desk("status", "--run", "r", code=78)
    desk.environ |= holding(broad)
    assert "can do more than it should" in desk("status", "--run", "r", code=78)
    del desk.environ["RELAY_DRIVE_TOKEN"]
    assert "no Google Drive credentials" in desk("status", "--run", "r", code=69)
