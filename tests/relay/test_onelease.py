"""One account, one lease over all runs of a store; another run's trouble stays its own (P12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.canonical import digest, dumps
from relay.entry import FORMAT
from relay.errors import Exit
from tests.relay.cli import Desk


@pytest.mark.parametrize("newest", ["newer", "rotted"])
def test_a_run_that_cannot_be_read_stops_no_other_run(tmp_path: Path, newest: str) -> None:
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": str(tmp_path / "store")})
    desk.train(10, run="other")
    slots = sorted((tmp_path / "store").glob("runs/*/other/ledger/*.json"))
    data = slots[-1].read_bytes()
    if newest == "newer":
        body = json.loads(data)["body"]
        body |= {"seq": len(slots), "base": len(slots) - 1, "parent": digest(data), "format": FORMAT + 1}
        slots[-1].with_name(f"{len(slots):020d}.json").write_bytes(dumps({"body": body, "sha256": digest(dumps(body))}))
    else:
        for slot in slots:
            slot.chmod(0o600)
            slot.write_bytes(b"rot")
    desk.train(10)
    assert desk.status()["step"] == 10
    assert desk("status", "--run", "other", code=None).code in (Exit.BAD_CONFIG, Exit.BAD_DATA)
