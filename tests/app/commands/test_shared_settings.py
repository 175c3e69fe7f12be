"""Each row of docs/reference/shared.md: who may change what for everybody, and where the others see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from relay.core.ledger import frozen
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.base import open_store
from tests.app.cli import PROJECT, Desk

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "shared.md"
LINES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
ROWS = [line.split("|")[1].strip() for line in LINES[1:]]


def state(desk: Desk) -> RunState:
    store = open_store((desk.folder / "relay_store").as_uri())
    return RunLedger(store, PROJECT, "r", RealRuntime()).read().state


def session(desk: Desk, account: str, *words: str, code: int = 75, **environ: str) -> str:
    """One session; returns its lines."""
    done = desk("run", "--run", "r", "--account", account, "--new", *words, code=code, **environ)
    return done.err + done.out


def changed(desk: Desk) -> str | None:
    found = desk.status()["target_changed"]
    return found["text"] if found else None


def a_new_run(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "30", "--until-step", "5")
    assert (desk.status()["target_steps"], changed(desk)) == (30, None)
    assert "/30 steps" in desk("report", "--run", "r").out
    session(desk, "ben", "--until-step", "6")
    assert desk.status()["target_steps"] == 30


def a_higher_number(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "800", "--until-step", "5")
    lines = session(desk, "ben", "--target-steps", "1600", "--until-step", "6")
    assert "800 → 1,600 by ben" in lines and changed(desk) == "target raised 800 → 1,600 by ben"
    assert "800 → 1,600 by ben" in desk("report", "--run", "r").out
    assert "800 → 1,600 by ben" in session(desk, "cleo", "--until-step", "7"), "every session begins with it"
    assert "800 \\u2192 1,600 by ben" in desk("dashboard", "--run", "r", "--json").out
    assert desk.status()["target_steps"] == 1600


def a_lower_number(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "50000", "--until-step", "5")
    before = desk("status", "--run", "r", "--json").out
    refused = session(desk, "ben", "--target-steps", "2600", code=78)
    assert "--until-step 2600" in refused and "--new-target 2600" in refused
    assert desk("status", "--run", "r", "--json").out == before, "nothing is written"


def other_sources(desk: Desk) -> None:
    session(desk, "ana", "--until-step", "5", RELAY_TARGET_STEPS="50")
    session(desk, "ben", code=78, RELAY_TARGET_STEPS="40")
    (desk.folder / "config_multi_account.yaml").write_text("target_steps: 45\n")
    session(desk, "ben", code=78)
    (desk.folder / "config_multi_account.yaml").write_text("target_steps: 60\n")
    session(desk, "ben", "--until-step", "6")
    assert changed(desk) == "target raised 50 → 60 by ben"


def this_session(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "40", "--until-step", "5")
    session(desk, "ben", code=75, RELAY_UNTIL_STEP="9")
    seen = desk.status()
    assert (seen["step"], seen["target_steps"], changed(desk)) == (9, 40, None)
    assert "to end at 9" in session(desk, "ben", "--until-step", "9", code=0), "nothing to do"
    assert state(desk).links[-1].end == frozen.UNTIL_REACHED
    session(desk, "ben", "--until-step", "1000", code=0)
    assert desk.status()["step"] == 40


def on_purpose(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "50000", "--until-step", "20")
    assert "--new-target 20" in session(desk, "ben", "--new-target", "19", code=78)
    session(desk, "ben", "--new-target", "30", code=0)
    assert (desk.status()["step"], changed(desk)) == (30, "target lowered 50,000 → 30 by ben")
    assert "50,000 → 30 by ben" in desk("report", "--run", "r").out
    session(desk, "ben", "--new-target", "9", "--target-steps", "9", code=2)


def retention(desk: Desk) -> None:
    for step in ("10", "20", "30"):
        session(desk, "ana", "--target-steps", "90", "--until-step", step)
    session(desk, "ben", "--until-step", "40", "checkpoint.keep_last=2")
    (noted,) = [one for one in state(desk).incidents if one.cause == frozen.RETENTION]
    assert noted.account == "ben" and "step 10" in noted.text
    assert noted.text in desk("verify", "--run", "r", "--json").json["incidents"][0]["text"]


def evaluations(desk: Desk) -> None:
    words = ("--checkpoint-every", "10", "evaluation.every_commits=1")
    session(desk, "ana", "--target-steps", "90", "--until-step", "20", *words)
    found = desk.status()["evaluation"]
    assert found["newest"]["step"] == found["best"]["step"] == 20
    for step in ("30", "40", "50", "60"):
        session(desk, "ben", "--until-step", step, "evaluation.every_commits=0")
    after = desk.status()["evaluation"]
    assert after == found, "it stays, although its checkpoint is not among the newest"
    assert "at step 20" in desk("report", "--run", "r").out


def per_session(desk: Desk) -> None:
    words = ("checkpoint.every_steps=2", "checkpoint.every_minutes=5", "evaluation.every_commits=0")
    session(desk, "ana", "--target-steps", "40", "--until-step", "4", *words)
    session(desk, "ben", "--until-step", "8")
    assert [link.to_step for link in state(desk).links] == [4, 8] and not state(desk).incidents


def lease(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "40", "--until-step", "4", "lease.ttl_s=60")
    session(desk, "ben", "--until-step", "8")
    assert not state(desk).incidents


def training(desk: Desk) -> None:
    session(desk, "ana", "--target-steps", "40", "--until-step", "4")
    assert "fork --run r" in session(desk, "ben", "batch_size=8", code=78)


TESTS: dict[str, Callable[[Desk], None]] = {
    "`--target-steps N`, a new run": a_new_run,
    "`--target-steps N`, a higher number": a_higher_number,
    "`--target-steps N`, a lower number": a_lower_number,
    "`RELAY_TARGET_STEPS`, `target_steps` in the file": other_sources,
    "`--until-step N`, `RELAY_UNTIL_STEP`": this_session,
    "`--new-target N`": on_purpose,
    "`checkpoint.keep_last`, `checkpoint.keep_every`": retention,
    "`evaluation.rows`": evaluations,
    "`evaluation.every_commits`, `checkpoint.every_steps`, `checkpoint.every_minutes`": per_session,
    "`lease.ttl_s`": lease,
    "settings of the training": training,
}


def test_every_row_has_a_test() -> None:
    assert list(TESTS) == ROWS


@pytest.mark.parametrize("row", TESTS, ids=lambda row: re.sub(r"[^a-z_]+", "-", row.lower()))
def test_the_row_is_true(row: str, desk: Desk) -> None:
    TESTS[row](desk)
