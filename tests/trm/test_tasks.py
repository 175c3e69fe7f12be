"""A task is whole: its length, its puzzles, its place in the help and on the page that lists tasks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.app.models.trm import Trm
from trm import config
from trm.presets import ARC, PRESETS, target_steps
from trm.tasks import game

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("task", PRESETS)
def test_a_task_has_a_length_puzzles_and_a_place_where_people_look(task: str) -> None:
    assert PRESETS[task].task == task
    assert target_steps(task) > 0, "trm/presets.py: _TARGETS"
    assert task in ARC or game(task).vocab_size > 2, "trm/presets.py: BOX, or trm/tasks.py: game"
    assert re.search(rf"\b{task}\b", Path(config.__file__).read_text()), "trm/config.py: the docstring of `task`"
    assert f"`{task}`" in (ROOT / "docs" / "how-to" / "train.md").read_text(), "docs/how-to/train.md"


@pytest.mark.parametrize(
    ("task", "subsets", "test_set", "steps"),
    [
        ("arc1", ("training", "evaluation", "concept"), "evaluation", 518_071),
        ("arc2", ("training2", "evaluation2", "concept"), "evaluation2", 722_098),
    ],
)
def test_arc_is_trained_as_published(task: str, subsets: tuple[str, ...], test_set: str, steps: int) -> None:
    """reference/arc.md 4: steps that train something, and none that only average afterwards."""
    found = PRESETS[task]
    data, arch = found.data, found.arch
    assert (target_steps(task), found.batch_size, found.lr, found.lr_warmup_steps) == (steps, 768, 1e-4, 2000)
    assert (found.weight_decay, found.puzzle_emb_lr, found.puzzle_emb_weight_decay) == (0.1, 1e-2, 0.1)
    assert (found.ema, found.ema_rate, found.beta1, found.beta2) == (True, 0.999, 0.9, 0.95)
    assert (arch.H_cycles, arch.L_cycles, arch.halt_max_steps, arch.halt_exploration_prob) == (3, 4, 16, 0.1)
    assert (arch.mlp_t, arch.pos_encodings, arch.puzzle_emb_len) == (False, "rope", 16)
    assert (data.subsets, data.test_set, data.num_aug, data.canvas) == (subsets, test_set, 1000, 30)
    by_time = {"checkpoint.every_minutes": "15", "checkpoint.every_steps": "100000"}
    assert by_time.items() <= Trm().defaults(task).items()
