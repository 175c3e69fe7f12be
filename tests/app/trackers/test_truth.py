"""Every tracker shows the ledger's data: one contract, a rollback of 200 steps, kills, two people, no network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import wandb

from relay.app.dashboard.history import Commits
from relay.app.dashboard.sessions import redone_steps, standing_steps
from relay.app.trackers.choose import TITLES, Places
from relay.app.trackers.feed import Feed
from relay.app.trackers.line import USUAL, points_of
from relay.core.checkpoint.retention import Keep
from relay.core.errors import Exit
from relay.core.events import Committed, WentBack
from relay.core.ledger.sessionreport import about_itself
from tests.app.shown import curves
from tests.app.trackers.readback import Rows, of_tensorboard, of_trackio, of_wandb
from tests.app.trackers.relays import Kept, committed, ledger_of, tracked, truth
from tests.core.lab import PROJECT, RUN, Lab, Session
from tests.core.toy import MEASURES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the trackers' own packages
KEYS = tuple(TITLES)


@dataclass
class Shown:
    """All trackers on one machine, fed by the same sessions, and their readers."""

    lab: Lab
    places: Places

    def rows(self, key: str, rewinds: int = 0) -> Rows:
        """The contents of a tracker for that line."""
        ending = f"-rewind-{rewinds}" if rewinds else ""
        name = f"{RUN}-{self.lab.state().run_id[:12]}{ending}"
        if key == "tensorboard":
            return of_tensorboard(self.places.tensorboard / PROJECT / f"{RUN}{ending}")
        return of_trackio(PROJECT, name) if key == "trackio" else of_wandb(self.places.memory.parent, name)

    def show(self, expected: Rows, rewinds: int = 0) -> None:
        """Each step once, in order, with all reported values, in every tracker; TensorBoard keeps 32-bit numbers."""
        for key in KEYS:
            found = self.rows(key, rewinds)
            assert [step for step, _ in found] == [step for step, _ in expected], key
            for (step, values), (_, told) in zip(found, expected, strict=True):
                assert values == pytest.approx(told, rel=1e-6), (key, step)

    def session(self, account: str, target: int) -> Session:
        session = self.lab.session(
            account, target_steps=target, every_steps=50, evaluate_every=2, keep=Keep(8), wait_s=400.0
        )
        return tracked(self.lab, session, self.places, KEYS)

    def run(self, account: str, target: int) -> Session:
        time.sleep(1.0)  # W&B names a folder by the second, and a session here takes less
        session = self.session(account, target)
        assert self.lab.run(session).exit_code == Exit.OK
        return session


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.world.close()


@pytest.fixture
def shown(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    home = tmp_path / "machine"
    home.mkdir()
    monkeypatch.setenv("WANDB_DIR", str(home))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for module in ("trackio.utils", "trackio.sqlite_storage"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", home / "trackio")
    return Shown(lab, Places(home / "memory", home / "boards", {"WANDB_MODE": "offline"}))


def test_the_same_relay_gives_the_same_curve_in_every_tracker(shown: Shown) -> None:
    for account, target in (("ana", 150), ("ben", 220), ("ana", 300)):
        told = shown.run(account, target).told
        assert len([line for line in told if line.startswith(tuple(TITLES.values()))]) == len(KEYS), told
    expected = truth(shown.lab)
    shown.show(expected)
    names = {name for _, values in expected for name in values}
    assert expected[-1][0] == 300 and {"loss", "valid/exact_accuracy", "relay/goodput"} <= names
    assert {name for name in names if name.startswith("relay/")} <= {f"relay/{name}" for name in USUAL}
    assert all(next(iter(values)) == "loss" for _, values in expected if values), "no group, so it is shown first"


def test_every_measurement_of_the_session_is_shown_if_asked_for(lab: Lab) -> None:
    made = lab.session("ana", target_steps=60)
    assert lab.run(made).exit_code == Exit.OK
    own = committed(lab)[-1]
    *_, usual = points_of(own, MEASURES)
    *_, whole = points_of(own, MEASURES, details=True)
    assert usual.values.items() < whole.values.items()
    assert {f"relay/{name}" for name in own.metrics if about_itself(name)} <= {*whole.values}


def test_a_rollback_of_200_steps_loses_none_and_doubles_none(shown: Shown) -> None:
    lab = shown.lab
    shown.run("ana", 400)
    shown.run("ben", 600)
    before = truth(lab)
    for step in (450, 500, 550, 600):
        if any(c.step == step for c in lab.state().retained):
            lab.damage(f"step_{step}.e2/state.json", lambda data: data[:-2] + b"9}")
    shown.run("ana", 700)
    assert lab.state().links[-1].from_step == 400, "200 steps were lost and done again"
    shown.run("ben", 750)
    shown.show(truth(lab), rewinds=1)
    shown.show(before)
    steps = [step for step, _ in truth(lab)]
    assert steps == sorted(set(steps)) and steps[-1] == 750
    assert {step for step in steps if 400 < step <= 600} and before[-1][0] == 600


def test_the_dashboard_shows_the_same_rollback(lab: Lab) -> None:
    for account, target in (("ana", 400), ("ben", 600)):
        assert lab.run(lab.session(account, target_steps=target, every_steps=50, keep=Keep(8))).exit_code == Exit.OK
    lost = {step for one in committed(lab) if one.epoch == 2 for step in (one.samples.steps if one.samples else ())}
    for one in list(lab.state().retained):
        if one.step > 400:
            lab.damage(f"step_{one.step}.e2/state.json", lambda data: data[:-2] + b"9}")
    assert lab.run(lab.session("ana", target_steps=700, every_steps=50)).exit_code == Exit.OK
    commits = Commits(ledger_of(lab))
    commits.read(ledger_of(lab).read(), lambda: True)
    found = curves(commits.events, lab.state().links)
    line, redone = found["line"]["step"], found["redone"]["step"]
    assert line == sorted(set(line)) == [step for step, _ in truth(lab)]
    assert set(redone) == lost and min(redone) > 400, "what was trained again is hollow, all of it"


def sent_again(lab: Lab) -> Callable[[str, int], Session]:
    """Ana trains to 300 and keeps a copy of that; all but step 200 is damaged in the store."""

    def session(account: str, target: int) -> Session:
        return lab.session(account, machine=account, target_steps=target, every_steps=50, keep=Keep(8), wait_s=400.0)

    assert lab.run(session("ana", 200)).exit_code == lab.run(session("ana", 300)).exit_code == Exit.OK
    for step in (250, 300):
        lab.damage(f"step_{step}.e2/state.json", lambda data: data[:-2] + b"9}")
    return session


def test_what_a_copy_brings_back_was_never_lost(lab: Lab) -> None:
    session = sent_again(lab)
    before = truth(lab)
    told = session("ana", 350)
    assert lab.run(told).exit_code == Exit.OK
    assert Committed(300, "copy") in told.heard.events
    assert truth(lab)[: len(before)] == before, "every sample that led there stands, with its own numbers"
    commits = Commits(ledger_of(lab))
    commits.read(ledger_of(lab).read(), lambda: True)
    found = curves(commits.events, lab.state().links)
    assert found["redone"]["step"] == [] and found["commits"] == 7
    assert dict(zip(found["line"]["step"], found["line"]["epoch"], strict=True))[250] == 2, "by whom it was trained"
    assert standing_steps(lab.state().links) == {1: 200, 2: 100, 3: 50} and redone_steps(lab.state().links) == 0


@pytest.mark.parametrize("known", ["all", "up to the damage", "up to the rewind"])
def test_a_tracker_is_told_what_a_copy_brought_back(lab: Lab, tmp_path: Path, known: str) -> None:
    session, kept, memory = sent_again(lab), Kept({}, {}), tmp_path / "mark.json"
    before = truth(lab)
    if known != "all":
        Feed(ledger_of(lab), memory, MEASURES).update(kept)
    if known == "up to the rewind":
        one = session("ana", 350)
        one.ctx.listener.event = lambda event: (
            Feed(ledger_of(lab), memory, MEASURES).update(kept) if isinstance(event, WentBack) else None
        )
    else:
        one = session("ana", 350)
    assert lab.run(one).exit_code == Exit.OK
    Feed(ledger_of(lab), memory, MEASURES).update(kept)
    assert kept.lines[f"{RUN}-rewind-1"] == truth(lab) and truth(lab)[: len(before)] == before


def test_a_kill_in_the_middle_is_caught_up_by_the_next_session(shown: Shown) -> None:
    session = shown.session("ana", 1000)
    shown.lab.world.at(shown.lab.world.now + 30.0, session.process.kill)
    session.start()
    shown.lab.world.run()
    assert session.process.outcome is None and shown.lab.state().holder is not None
    wandb.teardown()  # its own process outlives ours, and ends when it sees that
    shown.run("ben", shown.lab.state().step + 120)
    shown.show(truth(shown.lab))


def test_a_tracker_is_built_from_the_ledger_alone(shown: Shown) -> None:
    lab = shown.lab
    assert lab.run(lab.session("ana", target_steps=120, every_steps=50)).exit_code == Exit.OK
    for key in KEYS:
        for _ in range(2):
            feed, sink = (
                Feed(ledger_of(lab), shown.places.memory / f"{key}.json", MEASURES),
                shown.places.sink(key, None),
            )
            feed.update(sink)
            sink.close()
        assert feed.told == 0, "what is there already is not written again"
    shown.show(truth(lab))
