"""The demonstration on real S3 servers: killed, resumed by a second account, the same bytes as never interrupted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.names import Names
from tests.acceptance.processes import Relay, run_args
from tests.storage.s3.conftest import opened
from tests.storage.s3.servers import BUCKET, ENVIRONMENT, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    relay = Relay(tmp_path)
    yield relay
    for process in relay.started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", os.environ.get("RELAY_S3_SERVERS", "ministack").split(","))
def test_a_killed_session_is_gone_on_with_by_another_account_bit_for_bit(relay: Relay, name: str, prefix: str) -> None:
    bare = server(name).address(f"{prefix}-demo")
    relay.call("register", "account_1", "Ana", "--provider", "local", "--yes", code=78, RELAY_STORE=bare)
    assert "init" in relay.last_error, "only init begins a run here"
    relay.call("init", "--run", "unbroken", RELAY_STORE=bare)
    begun = json.loads(relay.call("init", "--run", "relayed", "--json", RELAY_STORE=bare))
    assert begun["address"].startswith(bare + "#")
    place = {"RELAY_STORE": begun["address"]}
    for number in (1, 2, 3):
        relay.call("register", f"account_{number}", "Somebody", "--provider", "local", "--yes", **place)
    session = relay.start(*run_args("relayed", "account_1", 100_000, 6), **place)

    def status(run: str) -> dict[str, object]:
        return dict(json.loads(relay.call("status", "--run", run, "--json", **place)))

    while session.poll() is None and int(str(status("relayed")["step"])) < 12:
        time.sleep(1)
    session.kill()
    _, errors = session.communicate()
    assert session.returncode == -9, errors
    durable = int(str(status("relayed")["step"]))
    relay.call(*run_args("relayed", "account_2", durable + 8, 1000), **place)  # no wait: one machine
    relay.call(*run_args("unbroken", "account_3", durable + 8, 1000), **place)
    heads = [status(run)["head"] for run in ("relayed", "unbroken")]
    assert heads[0]["state_hash"] == heads[1]["state_hash"]  # type: ignore[index]
    relay.call("verify", "--run", "relayed", **place)
    names, sdk = Names("sudoku_pretrain_multiaccount", "relayed"), server(name).sdk()
    for key in (names.checkpoint(1, 1), names.checkpoint(1, 2)):
        sdk.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}-demo/{key}model.safetensors")
    relay.call("gc", "--run", "relayed", **place)
    assert [left for left, _ in opened(bare).unfinished("")] == [names.checkpoint(1, 2) + "model.safetensors"], (
        "parts of a superseded epoch go, those of the newest may still become a file"
    )
    found = relay.call("doctor", "--run", "relayed", **place)
    assert "credentials: environment variables" in found and "MB/s" in found and "self-test passed" in found
    assert "put-if-absent: works" in found and "sessions until full: unknown: the store does not tell" in found
    assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in found
    written = [path for path in relay.folder.rglob("*") if path.is_file()]
    secret = ENVIRONMENT["AWS_SECRET_ACCESS_KEY"].encode()
    assert all(secret not in path.read_bytes() for path in written), "no secret on any disk"
