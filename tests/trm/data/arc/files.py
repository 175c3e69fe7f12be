"""ARC task files for tests: the generated tasks of arc_small, in the shapes that people have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trm.data.arc import generate
from trm.data.arc.tasks import Task


def tasks(each: tuple[int, int] = (1, 1)) -> dict[str, list[Task]]:
    """A few generated tasks."""
    return generate.subsets(each)


def plain(task: Task, solved: bool = True) -> dict[str, Any]:
    demonstrations = [{"input": pair.input, "output": pair.output} for pair in task.demonstrations]
    tests = [{"input": pair.input} | ({"output": pair.output} if solved else {}) for pair in task.tests]
    return {kind: {"train": demonstrations, "test": tests}[kind] for kind in task.order}


def kaggle(folder: Path, subset: str, some: Sequence[Task], solutions: bool = True, prefix: str = "arc-agi") -> Path:
    """Challenges and solutions of one subset; returns the file of challenges."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{prefix}_{subset}_challenges.json"
    path.write_text(json.dumps({task.name: plain(task, solved=False) for task in some}))
    if solutions:
        answers = {task.name: [pair.output for pair in task.tests] for task in some}
        path.with_name(f"{prefix}_{subset}_solutions.json").write_text(json.dumps(answers))
    return path


def github(folder: Path, some: Sequence[Task]) -> Path:
    """One file a task."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in some:
        (folder / f"{task.name}.json").write_text(json.dumps(plain(task)))
    return folder
