"""A study of toys, and states of its runs with made numbers."""

from __future__ import annotations

from collections.abc import Mapping

from relay.app.studies.experiments import Design, StudyRun, resolve
from relay.app.studies.picking import Seen
from relay.app.studies.studyfile import parse
from relay.core.ledger.state import RunState, Usage
from relay.core.runs.registered import RegisteredRun, Standing
from tests.app.cli import ToyPlugin
from tests.core.rulings import NOW, leased, new

TOYS = """
study: toys
about: a study of toys
task: sudoku4
steps: 40
seeds: [1, 2]
test_rows: 10
metrics:
  test/exact_accuracy: higher
  loss: lower
samples: {batch: batch_size, warmup: batch_size}
cards:
  T4: {base: 100}
experiments:
  base: {why: the control, published: 0.5}
  big:
    set: {batch_size: 8}
  huge:
    set: {batch_size: 16}
    control: big
  twin: {same_as: base}
  raw: {reads: raw}
  longer: {continues: base, steps: 60}
sweeps:
  sizes: [base, big, huge]
"""


def design(text: str = TOYS, **more: object) -> Design:
    """The study resolved for the toy."""
    return resolve(parse(text.encode(), "toys.yaml"), ToyPlugin(), **more)  # type: ignore[arg-type]


def run(of: Design, name: str) -> StudyRun:
    """A run by its name."""
    experiment, _, seed = name.rpartition("-s")
    return StudyRun(of.points[experiment], int(seed))


def state(of: Design, name: str, step: int, metrics: Mapping[str, float] | None = None, **more: object) -> RunState:
    """A run's state at a step, without a holder."""
    usage = {"ana": Usage(sessions=1, steps=step, seconds=36.0 * step, by_gpu=((0, 36 * step, step),))}
    fields = {"project": of.project, "run": name, "step": step, "metrics": dict(metrics or {}), "gpus": ("T4",)}
    return leased(new()).model_copy(update={"holder": None, "usage": usage, **fields, **more})


def registered(one: RunState) -> RegisteredRun:
    """The run of that state."""
    return RegisteredRun(one.project, one.run, 0, Standing(one))


def seen(*states: RunState) -> Seen:
    """What a command has read."""
    return Seen({one.run: registered(one) for one in states}, NOW)


def pinned(of: Design, names: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """What these runs pinned: the study's own settings."""
    return {name: {**run(of, name).point.config.model_dump(mode="json"), "seed": run(of, name).seed} for name in names}
