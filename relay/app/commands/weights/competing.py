"""`arc`: makes, checks, scores and bundles the submission of a competition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say
from relay.app.commands.weights.subject import StepOption, WeightsOption, of_run
from relay.app.demo import prepare
from relay.app.messages.wording import counted, duration
from relay.app.models import competition
from relay.app.tour import Tour
from relay.core.errors import Exit, UsageError
from relay.core.folders import scratch_folder
from relay.core.settings.config import Resolved

VARIANTS = 256
"""Nearly as good as a thousand, at a quarter of the time."""
MOST = 100_000
"""Variants, and rows at once."""
EVERY_S = 10.0
"""Seconds between lines of progress."""
SHOWN = 20
"""Lines of a long list that are printed; --json has all."""
Submitted = Annotated[Path, typer.Argument(metavar="SUBMISSION", help="submission.json.")]
TasksOption = Annotated[
    Path, typer.Option("--tasks", metavar="FILE", help="Challenges, or a folder with one JSON file a task.")
]


@subcommand("overrides run config")
def solve(
    call: Call,
    tasks: TasksOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The submission; valid from the first second on.")] = Path(
        "submission.json"
    ),
    weights: WeightsOption = None,
    step: StepOption = None,
    variants: Annotated[
        int, typer.Option(min=1, max=MOST, help="Variants of each task at most: votes of an input.", metavar="N")
    ] = VARIANTS,
    steps: Annotated[
        int | None, typer.Option(help="Steps of recursion for each row; default: as trained.", show_default=False)
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Rows at once; default: by the device.", show_default=False, metavar="N"),
    ] = None,
    adapt_minutes: Annotated[
        float | None, typer.Option(min=0, help="Train on the demonstrations first, so long.", show_default=False)
    ] = None,
    adapt_steps: Annotated[
        int | None, typer.Option(min=1, help="So many steps instead: always the same result.", show_default=False)
    ] = None,
    adapt_share: Annotated[float, typer.Option(min=0, max=1, help="Of it, for the table of tasks alone.")] = 0.25,
    adapt_batch: Annotated[int, typer.Option(min=1, max=MOST, help="Rows of a step of it.")] = 128,
    adapt_lr: Annotated[float, typer.Option(min=0, max=1, help="Its learning rate.")] = 1e-4,
    adapt_table_lr: Annotated[float, typer.Option(min=0, max=1, help="The same of the table of tasks.")] = 1e-2,
    budget_minutes: Annotated[
        float | None, typer.Option(min=0, help="End after so many minutes, from the start.", show_default=False)
    ] = None,
) -> Answer:
    """Solve tasks into a submission that is valid at every instant. Exit 0 with all votes, 75 if the budget ended it.

    The same command goes on after any end. With --weights it needs no store and no network.
    """
    app, resolved = call.app, _settled(call, weights, step)
    told, adapting = Telling(app.runtime.monotonic), None
    if adapt_minutes is not None or adapt_steps is not None:
        seconds = math.inf if adapt_minutes is None else 60 * adapt_minutes
        rates = {"lr": adapt_lr, "table_lr": adapt_table_lr}
        adapting = {"seconds": seconds, "steps": adapt_steps, "share": adapt_share, "batch": adapt_batch, **rates}
    with competition.begun(app.cwd / out, app.cwd / tasks) as begun:
        holds = "fallbacks" if begun.fresh else "answers of an earlier solve"
        say(f"{out} is valid: {holds} for {counted(begun.inputs, 'test input')}.")
        trained = _trained(call, resolved, weights, step)
        wanted = competition.Wanted(
            variants=variants,
            steps=steps,
            threads=getattr(resolved.workload, "threads", 2),
            chunk=chunk,
            device=app.plugin.device(resolved.settings.device),
            now=app.runtime.monotonic,
            deadline=math.inf if budget_minutes is None else app.started + 60 * budget_minutes,
            report=told,
            adapting=adapting,
            trained=told.step,
        )
        found = competition.solved(begun, trained, wanted)
    return Answer(found, "\n".join(_told(found)), Exit.OK if found["complete"] else Exit.HANDOFF)


def _settled(call: Call, weights: Path | None, step: int | None) -> Resolved[BaseModel]:
    if weights and step is not None:
        raise UsageError("--weights names a file: --step belongs to a run.")
    return call.settle(store=weights is None, joins=True)


def _trained(call: Call, resolved: Resolved[BaseModel], weights: Path | None, step: int | None) -> competition.Trained:
    """The weights of a file, or of a run's checkpoint. Raises BadConfig, BadData, StorageUnreachable."""
    if weights:
        data = resolved.path(resolved.settings.data_dir)
        return competition.weights_of_file(call.app.cwd / weights, resolved.training.given, resolved.workload, data)
    subject = of_run(call, step)
    return competition.weights_of_run(subject.workload, subject.about)


@subcommand("overrides run config")
def bundle(
    call: Call,
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new folder.")],
    tasks: Annotated[str, typer.Option(metavar="none|FILE", help="Whose rows of the table of tasks to take along.")],
    weights: WeightsOption = None,
    step: StepOption = None,
    slug: Annotated[str, typer.Option(help="The competition, by its address.")] = "arc-prize-2026-arc-agi-2",
    owner: Annotated[str, typer.Option(help="Kaggle's name of the account that submits.")] = competition.YOUR_NAME,
    title: Annotated[str, typer.Option(help="Of the notebook.")] = "ARC in turns",
    hours: Annotated[float, typer.Option(min=0.05, help="Limit of the notebook.")] = 12.0,
    accelerator: Annotated[str, typer.Option(help="Kaggle's machine_shape; empty for none.")] = "NvidiaL4",
    inputs: Annotated[str, typer.Option("--input", help="Folder of the attached data there.")] = "/kaggle/input",
    working: Annotated[str, typer.Option(help="The writable folder there.")] = "/kaggle/working",
    variants: Annotated[
        int, typer.Option(min=1, max=MOST, help="Variants of each hidden task at most.", metavar="N")
    ] = VARIANTS,
    adapt_minutes: Annotated[float, typer.Option(min=0, help="Train on the hidden demonstrations, so long.")] = 540.0,
) -> Answer:
    """Write a folder that solves on a machine without network: weights, wheels, a supervisor and a notebook."""
    resolved = _settled(call, weights, step)
    adapting = ("--adapt-minutes", f"{adapt_minutes:g}") if adapt_minutes else ()
    place, known = call.app.cwd / out, None if tasks == "none" else call.app.cwd / tasks
    target = competition.target(
        slug=slug, owner=owner, title=title, hours=hours, accelerator=accelerator,
        inputs=inputs, working=working, options=(*("--variants", str(variants)), *adapting),
    )  # fmt: skip
    found = competition.bundled(_trained(call, resolved, weights, step), known, place, target)
    lines = [
        f"{place}: {counted(found['files'], 'file')}, {found['bytes'] / 1e6:,.1f} MB, "
        f"{counted(len(found['packages']), 'wheel')}, rows of {counted(found['weights']['tasks'], 'task')}"
    ]
    return Answer(found, "\n".join(lines))


class Telling:
    """Prints a line of progress, not too often."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._next = now, 0.0

    def step(self, number: int, loss: float) -> None:
        """After each step of an adaptation."""
        if self._due():
            say(f"adapting · step {number:,} · loss {loss:.3g}")

    def _due(self) -> bool:
        due = self._now() >= self._next
        self._next = self._now() + EVERY_S if due else self._next
        return due

    def __call__(self, at: competition.Progress) -> None:
        """After each round."""
        if not self._due() and at.rows < at.total:
            return
        parts = [
            f"{at.rows:,}/{at.total:,} votes",
            f"{at.covered:,}/{at.inputs:,} inputs covered",
            f"{at.rows_a_second:,.1f} rows/s",
            f"{duration((at.total - at.rows) / at.rows_a_second)} to go" if at.rows_a_second else "",
            f"{duration(max(at.left, 0))} of the budget left" if at.left < math.inf else "",
        ]
        say(" · ".join(filter(None, parts)))


def _told(found: Mapping[str, Any]) -> list[str]:
    about = found["provenance"]
    lines = [
        f"{found['path']}: valid, {counted(about['outputs'], 'output')} of {counted(about['tasks']['tasks'], 'task')}, "
        f"{found['votes']:,} of {counted(found['planned'], 'vote')} ({found['resumed']:,} of earlier processes), "
        f"coverage {found['coverage']:.1%}, {found['rows_a_second']:,.1f} rows/s",
        f"provenance: {about['training'] or 'no task was trained on'}; list {(about['identifiers'] or 'unknown')[:23]}"
        f", tasks {about['tasks']['content'][:23]}, at most {counted(about['variants'], 'variant')}, "
        f"{counted(about['steps'], 'recursion')}, {counted(about['checkpoints'], 'checkpoint')}",
    ]
    if about["fallback_outputs"]:
        lines.append(f"{counted(about['fallback_outputs'], 'output')} without a valid candidate: the fallback is there")
    lines += [f"WARNING: {text}" for text in about["warnings"]]
    if not found["complete"]:
        lines.append("Run the same command again: it goes on.")
    return lines


@subcommand("")
def check(call: Call, submission: Submitted, tasks: TasksOption) -> Answer:
    """Check a submission as the competition does. Exit 0 if it is valid, else 65 with every fault."""
    found = competition.checked(call.app.cwd / submission, call.app.cwd / tasks)
    lines = [fault["line"] for fault in found["faults"]]
    if not lines:
        text = f"{submission} is valid: {counted(found['tasks'], 'task')}, {counted(found['outputs'], 'output')}."
        return Answer(found, text)
    head = f"{submission} is not valid: {counted(len(lines), 'fault')}."
    return Answer(found, "\n".join([head, *_some(lines)]), Exit.BAD_DATA)


@subcommand("")
def score(
    call: Call,
    submission: Submitted,
    solutions: Annotated[Path, typer.Option(metavar="FILE", help="Solutions of the same tasks.")],
) -> Answer:
    """Score a submission against known solutions: by output, as the competition counts, and by task."""
    found = competition.scored(call.app.cwd / submission, call.app.cwd / solutions)
    lines = _scores(found)
    solved = {name: one for name, one in found["by_task"].items() if one["right_2"]}
    lines += _some([f"  {name}: {one['right_2']} of {one['outputs']}" for name, one in solved.items()])
    lines.append(f"{counted(len(found['by_task']) - len(solved), 'task')} without a right output")
    return Answer(found, "\n".join(lines))


def _scores(found: Mapping[str, Any]) -> list[str]:
    right, outputs = found["right"], found["outputs"]
    return [
        f"score by output: {found['score_outputs']:.2%} ({right['2']} of {outputs}; with one attempt {right['1']})",
        f"score by task: {found['score_tasks']:.2%} (with one attempt {found['pass_at']['1']:.2%})",
    ]


@subcommand("overrides")
def tour(
    call: Call,
    steps: Annotated[int, typer.Option(min=160, help="Steps to train; 6,000 take ten minutes on a laptop.")] = 6000,
    folder: Annotated[
        Path | None, typer.Option(help="Keep everything here; emptied first.", show_default=False)
    ] = None,
) -> Answer:
    """Train on embedded tasks, kill the session, resume under a second account, solve, check and score."""
    app = call.app
    with scratch_folder() as scratch:
        place = app.cwd / folder if folder else scratch / "tour"
        prepare(place)
        found = Tour(place, steps, ("task=arc_small", *(call.overrides or ())), app.environ, say).play()
    lines = [*_told(found), *_scores(found)]
    return Answer(found, "\n".join(lines), Exit.OK if found["complete"] else Exit.BAD_DATA)


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"… and {len(lines) - SHOWN:,} more (--json has all)"]
