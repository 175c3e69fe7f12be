"""A solve in real processes: killed at random moments, and at the end of the tour of ARC."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from relay.app.models.trm import Trm
from tests.acceptance.processes import Relay, Warm
from tests.app.cli import Desk
from tests.trm.competition.conftest import made, votes_of
from tests.trm.data.arc import files
from trm.data.arc import generate
from trm.data.arc.submission import check, read_tasks
from trm.data.arc.tasks import read_subsets
from trm.presets import preset

KILLS = int(os.environ.get("RELAY_ARC_KILLS", "15"))
DATA = os.environ.get("RELAY_ARC_DATA", "")
"""A folder with the competition's files: its first evaluation tasks, by a network of width 64, instead of made ones."""
SEED = int(os.environ.get("RELAY_SEED", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 20 * KILLS)]


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """A solve of 600 rows, or of 30 large ones."""
    if DATA:
        tested, variants = "evaluation2", 3
        some = {tested: read_subsets(Path(DATA), (tested,))[tested][:8]}
        sizes = {"hidden_size": 64, "num_heads": 2, "puzzle_emb_ndim": 64, "forward_dtype": "float32"}
        trained = made(variants - 1, arch=preset("arc1").arch.model_copy(update=sizes), side=30, some=some)
    else:
        tested, variants, some = generate.TEST, 60, files.tasks((1, 1))
        trained = made(variants - 1)
    path = files.kaggle(tmp_path / "tasks", tested, some[tested])
    (tmp_path / "weights").mkdir()
    trained.reduced([task.name for task in some[tested]]).write(tmp_path / "weights")
    return ("arc", "solve", "--weights", str(tmp_path / "weights"), "--tasks", str(path), "--variants", str(variants),
            *(("--steps", "2") if DATA else ()), "--json", "threads=1", "device=cpu")  # fmt: skip


def test_killed_at_random_moments_it_ends_at_the_unbroken_bytes(
    relay: Relay, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = read_tasks(Path(words[5]))
    whole, out = tmp_path / "whole.json", tmp_path / "out" / "submission.json"
    began = time.monotonic()
    unbroken = json.loads(relay.call(*words, "--out", str(whole)))
    took = time.monotonic() - began
    every = unbroken["votes"]
    assert (unbroken["complete"], unbroken["valid"], every) == (True, True, unbroken["planned"]) and every >= 20
    chance, votes, seen, kills = random.Random(SEED), 0, set[int](), 0
    while kills < KILLS:
        process = relay.start(*words, "--out", str(out))
        time.sleep(chance.uniform(0.1, 0.9) * took)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=60)
        assert not out.exists() or check(out, tasks) == [], f"RELAY_SEED={SEED}"
        found = votes_of(out)
        assert len(found) >= votes and {vote.row for vote in found} >= seen, f"RELAY_SEED={SEED}"
        votes, seen = len(found), {vote.row for vote in found}
        if votes == every:  # it was done before the kill: begin again
            out.unlink()
            out.with_name(f"{out.name}.votes").unlink()
            votes, seen = 0, set()
    end = json.loads(relay.call(*words, "--out", str(out)))
    assert (end["complete"], end["resumed"]) == (True, votes)
    for name in ("", ".votes"):
        assert out.with_name(out.name + name).read_bytes() == whole.with_name(whole.name + name).read_bytes()


def test_the_tour_trains_is_killed_resumes_solves_and_scores(
    warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, needed = warm.python(tmp_path / "bin")
    monkeypatch.setattr(sys, "executable", str(python))
    (tmp_path / "here").mkdir()
    environ = {**os.environ, **needed, "HOME": str(tmp_path), "RELAY_CPU": "1"}
    tiny = ("batch_size=4", "arch.hidden_size=16", "arch.num_heads=2", "arch.puzzle_emb_ndim=16", "threads=1")
    desk = Desk(tmp_path / "here", environ, plugin=Trm())  # type: ignore[arg-type]
    found = desk("arc", "tour", "--steps", "160", "--folder", "tour", "--json", *tiny).json
    assert found["resumed_from_step"] < found["killed_at_step"] < found["steps"] == 160
    links = [(link["account"], link["certified"]) for link in found["links"]]
    assert links == [("account_1", "unknown"), ("account_2", "exact")]
    assert (found["valid"], found["complete"], found["votes"], found["outputs"]) == (True, True, 120, 60)
    tasks = read_tasks(tmp_path / "here" / "tour" / "tasks" / "arc-agi_small-test_challenges.json")
    assert check(tmp_path / "here" / "tour" / "submission.json", tasks) == []
