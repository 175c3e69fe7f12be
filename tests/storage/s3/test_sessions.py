"""Commands on a bucket in the order that a team types them: refused, begun, trained, cleared; no secret anywhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from relay.core.names import Names
from tests.app.cli import Desk, hurry
from tests.storage.s3.conftest import opened
from tests.storage.s3.servers import BUCKET, Server

pytestmark = pytest.mark.slow

PROJECT = "sudoku_pretrain_multiaccount"


@pytest.fixture
def desk(ministack: Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    hurry(monkeypatch)
    return Desk(tmp_path / "desk", {"RELAY_STORE": ministack.address(f"{prefix}-sessions")})


def advised(text: str) -> list[str]:
    """The first command between backquotes, as words for the program."""
    found = re.search(r"`python rotate_accounts\.py ([^`]*)`", text)
    assert found, text
    return shlex.split(found[1])


def test_what_is_advised_leads_from_an_empty_bucket_to_a_trained_run_as_it_is_printed(desk: Desk) -> None:
    """`run` on a store that has not begun names the next command; so does each one after it."""
    words = ["run", "--run", "r", "--account", "account_1", "--target-steps", "3"]
    said = []
    for _ in range(4):
        done = desk(*words, code=None)
        if done.code == 0:
            break
        assert done.code == 78
        command = advised(done.err)
        said.append(command[0])
        desk(*command)
    assert said == ["init", "register"], "in this order: only init begins a store"
    assert desk.status()["step"] == 3


def test_only_init_begins_a_store_and_its_address_is_what_everybody_uses(desk: Desk) -> None:
    bare = desk.environ["RELAY_STORE"]
    assert "init" in desk("register", "account_1", "Ana", "--provider", "local", "--yes", code=78).err
    begun = desk("init", "--run", "r", "--json").json
    assert begun["address"].startswith(bare + "#id=")
    desk.environ["RELAY_STORE"] = begun["address"]
    desk("register", "account_1", "Ana", "--provider", "local", "--yes")
    desk.train(3)
    other = bare.replace("-sessions", "-other")
    identity = begun["address"].partition("#")[2]
    refused = desk.train(6, f"storage.url={other}#{identity}", code=78).err
    assert other in refused and identity.removeprefix("id=") in refused


def test_gc_gives_up_the_parts_of_superseded_epochs_only(desk: Desk, ministack: Server, prefix: str) -> None:
    desk("init", "--run", "r")
    for number in (1, 2):
        desk("register", f"account_{number}", "Somebody", "--provider", "local", "--yes")
        desk.train(3 * number, account=f"account_{number}")
    names, sdk = Names(PROJECT, "r"), ministack.sdk()
    for key in (names.checkpoint(1, 1), names.checkpoint(1, 2)):
        sdk.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}-sessions/{key}model.safetensors")
    desk("gc", "--run", "r")
    left = [name for name, _ in opened(ministack.address(f"{prefix}-sessions")).unfinished("")]
    assert left == [names.checkpoint(1, 2) + "model.safetensors"], "those of the newest may still become a file"
