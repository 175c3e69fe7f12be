"""A task is whole: its length, its puzzles, its place in the help and on the page that lists tasks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
