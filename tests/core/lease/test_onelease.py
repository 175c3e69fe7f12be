"""One account, one lease over all runs of a store; another run's trouble stays its own (P12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.core.errors import Exit
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.entry import FORMAT
from tests.app.cli import Desk
from tests.core.lab import Lab, said


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


def test_one_account_trains_one_run_at_a_time(lab: Lab) -> None:
    lab.begin("other")
    one = lab.session("alice", run="other", others=("chain",)).start()
    two = lab.session("alice", others=("other",))
    lab.world.at(lab.world.now + 3, lambda: two.start())
    lab.world.run()
    assert one.outcome.exit_code == Exit.OK
    assert two.outcome.exit_code == Exit.LEASE_HELD and "other" in said(two.outcome)


def test_of_one_account_started_on_two_runs_at_once_at_most_one_trains(lab: Lab) -> None:
    lab.begin("other")
    sessions = [lab.session("alice", others=("other",)), lab.session("alice", run="other", others=("chain",))]
    for session in sessions:
        session.start()
    lab.world.run()
    lab.world.run()
    assert sorted(s.outcome.exit_code for s in sessions)[-1] == Exit.LEASE_HELD
    assert sum(bool(s.workload.trained) for s in sessions) == 1


@pytest.mark.parametrize("slow_s", [0.5, 2.0, 20.0])
def test_of_one_account_on_two_runs_at_most_one_trains_though_one_lease_lands_late(lab: Lab, slow_s: float) -> None:
    """The first lease is dated before the second, but lands after the second session has looked at all runs."""
    lab.begin("other")
    one = lab.session("alice", others=("other",), target_steps=300)
    two = lab.session("alice", run="other", others=("chain",), target_steps=300)
    slept: list[str] = []

    def slow(verb: str, name: str) -> None:
        if verb == "put_if_absent" and "/ledger/" in name and not slept:
            slept.append(name)
            one.process.sleep(slow_s)

    one.store.fail = slow
    one.start()
    lab.world.at(lab.world.now + 0.2, two.start)
    lab.world.run()
    assert slept and sorted([one.outcome.exit_code, two.outcome.exit_code]) == [Exit.OK, Exit.LEASE_HELD]
    assert bool(one.workload.trained) != bool(two.workload.trained)
