"""ARC-AGI for the application: checks, scores and makes the submission of a competition, in the application's errors.

torch is imported only by the functions that solve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from relay.app.messages.wording import counted
from relay.app.models.trm import _speaking_our_errors
from relay.core.errors import BadConfig, BadData
from relay.core.workload import Workload
from trm.competition import bundle
from trm.competition.begin import Begun
from trm.competition.begin import begin as begin_solve
from trm.competition.bundle import YOUR_NAME as YOUR_NAME  # for the command
from trm.competition.bundle import Target
from trm.config import TrainConfig
from trm.data.arc import submission
from trm.data.arc.submission import document
from trm.presets import ARC

if TYPE_CHECKING:
    from trm.competition.solver import Progress as Progress  # for the command
    from trm.competition.weights import Trained as Trained


@contextmanager
def _unreadable_is_bad_data() -> Iterator[None]:
    try:
        yield
    except submission.Unreadable as error:
        text = str(error)
        raise BadData(text if text.endswith(".") else f"{text}. Download or copy the file again.") from error


def checked(path: Path, tasks: Path) -> dict[str, Any]:
    """Every fault of a submission. Raises BadData for an unusable tasks file."""
    with _unreadable_is_bad_data():
        known = submission.read_tasks(tasks)
    found = submission.check(path, known)
    outputs = sum(len(task["test"]) for task in known.values())
    listed = [vars(fault) | {"line": str(fault)} for fault in found]
    return document("check", valid=not found, faults=listed, tasks=len(known), outputs=outputs)


def scored(path: Path, solutions: Path) -> dict[str, Any]:
    """Both scores of a submission, and its right outputs by task. Raises BadData if it is not valid."""
    with _unreadable_is_bad_data():
        truths = submission.read_solutions(solutions)
        made = submission.read_json(path)
    if found := submission.faults(made, submission.as_tasks(truths)):
        raise BadData(
            f"{path} is not a submission for {solutions}: {found[0]}. {counted(len(found), 'fault')}; "
            f"the solutions must be those of the tasks that were solved."
        )
    result = submission.score(made, truths)
    return document(
        "score",
        score_outputs=result.by_output,
        score_tasks=result.by_task(2),
        pass_at={"1": result.by_task(1), "2": result.by_task(2)},
        valid=True,
        outputs=result.outputs,
        right={"1": result.right[0], "2": result.right[1]},
        by_task={name: _of_task(*counts) for name, counts in result.tasks.items()},
    )


def _of_task(one: int, two: int, outputs: int) -> Mapping[str, int]:
    return {"right_1": one, "right_2": two, "outputs": outputs}


@contextmanager
def begun(out: Path, tasks: Path) -> Iterator[Begun]:
    """A file that is valid from now on, with its lock for the block. Raises BadData, BadConfig, LeaseHeld."""
    with _speaking_our_errors(), _unreadable_is_bad_data():
        made = begin_solve(out, tasks)
    try:
        yield made
    finally:
        made.store.close()


def small_tasks(folder: Path) -> tuple[Path, Path]:
    """Write the embedded tasks of task=arc_small as files; returns challenges and solutions of its test set."""
    from trm.data.arc import generate

    return generate.write(folder)


def weights_of_run(workload: Workload, source: Mapping[str, Any]) -> Trained:
    """A loaded checkpoint of a run. Raises BadConfig if the run is not on ARC."""
    with _speaking_our_errors():
        from trm.competition.weights import of_workload
        from trm.data.arc.source import ArcDatasets
        from trm.workload import TrmWorkload

        if not isinstance(workload, TrmWorkload) or not isinstance(workload.data, ArcDatasets):
            raise BadConfig("This run does not train on ARC-AGI, so it solves none of its tasks. Name another --run.")
        return of_workload(workload, workload.data.made.names, source)


def weights_of_file(path: Path, given: Mapping[str, Any], config: BaseModel, data: Path) -> Trained:
    """Weights with the list of identifiers next to them, or that of the data which the settings name.

    data: folder for what was made of it.
    """
    with _speaking_our_errors():
        from trm.competition.weights import of_file
        from trm.data.arc import source

        found = config if isinstance(config, TrainConfig) else TrainConfig(task="")
        named = found.task in ARC and "task" in given and source.has_files(found)
        return of_file(path, given, found, (lambda: source.load(found, data).made.names) if named else None)


def target(**fields: Any) -> Target:
    """The competition and its machine. Raises BadConfig for a name that Kaggle does not take."""
    with _speaking_our_errors():
        return Target(**fields)


def bundled(trained: Trained, tasks: Path | None, place: Path, target: Target) -> dict[str, Any]:
    """Write a bundle; with the table's rows of the tasks of a file. Raises BadConfig, BadData."""
    with _speaking_our_errors(), _unreadable_is_bad_data():
        names = submission.read_tasks(tasks) if tasks else ()
        manifest = bundle.write(trained, names, target, place)
        size = sum(about["bytes"] for about in manifest["files"].values())
        parts = {key: manifest[key] for key in ("weights", "packages", "target")}
        return document("bundle", path=str(place), bytes=size, files=len(manifest["files"]), **parts)


@dataclass(frozen=True)
class Wanted:
    """The options of a solve."""

    variants: int
    steps: int | None
    """None: as trained."""
    threads: int
    chunk: int | None
    """Rows at once; None: by the device."""
    device: str
    now: Callable[[], float]
    deadline: float
    report: Callable[[Progress], None]
    adapting: Mapping[str, Any] | None
    """Fields of trm.competition.adapt.Recipe; None: no adaptation."""
    trained: Callable[[int, float], None]
    """Called after each step of it, with its loss."""


def solved(made: Begun, trained: Trained, wanted: Wanted) -> dict[str, Any]:
    """Adapt if asked, then solve until all votes are in or the deadline. Raises BadConfig, BadData."""
    with _speaking_our_errors():
        from trm.competition.adapt import Adaptation, Recipe
        from trm.competition.layout import lay_out
        from trm.competition.pace import Pace
        from trm.competition.solver import Answering, Options, Outcome, Solver, devices_of, provenance

        most = trained.arch.halt_max_steps
        if wanted.steps is not None and not 1 <= wanted.steps <= most:
            raise BadConfig(f"--steps {wanted.steps} is not possible: the model was trained with up to {most} steps.")
        if wanted.device == "xla":
            raise BadConfig("device=xla trains and does not solve. Set device=auto.")
        options = Options(wanted.variants, wanted.steps or most, wanted.threads, wanted.chunk)
        binding = options.binding(trained.hash, made.hash)
        made.store.check(**binding)
        layout = lay_out(made.path, made.tasks, trained, wanted.variants)
        pace, devices = Pace(wanted.now, wanted.deadline), devices_of(wanted.device)
        answering, about = Answering(layout, trained, options, devices, wanted.now), None
        if wanted.adapting is not None:
            recipe, saved = Recipe(threads=wanted.threads, **wanted.adapting), f"{made.out.name}.adapted"
            training = Adaptation(trained, layout, recipe, devices[0], made.out.with_name(saved), made.hash)
            adapted = training.run(pace, answering.seconds_for_all, wanted.trained)
            about = adapted.about(recipe)
            layout, binding = adapted.layout, options.binding(trained.hash, made.hash, adapted.trained.hash)
            answering = Answering(layout, adapted.trained, options, devices, wanted.now)
        if about is None or adapted.complete:
            outcome = Solver(made, layout, answering, binding, pace, wanted.report).run()
        else:
            outcome = Outcome.without_votes(layout, "the budget ended before the steps of the adaptation")
        return document(
            "solve",
            path=str(made.out),
            valid=True,
            complete=outcome.complete,
            votes=outcome.votes.rows,
            planned=outcome.total,
            resumed=outcome.resumed,
            candidates=outcome.votes.candidates,
            coverage=outcome.votes.coverage,
            rows_a_second=round(outcome.rows_a_second, 3),
            devices=[str(device) for device in devices],
            provenance=provenance(made, layout, trained, options, outcome, about),
        )
