"""`study`: check, list, train, report and draw a study's runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import relay
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say, speaks_utf8
from relay.app.commands.joining import ANYWHERE
from relay.app.commands.reading import every_link
from relay.app.commands.stores import once, open_stores
from relay.app.dashboard.curves import fold
from relay.app.dashboard.history import Commits
from relay.app.dashboard.sessions import hours_before
from relay.app.machine.child import run_child
from relay.app.messages.advice import shell
from relay.app.messages.wording import counted
from relay.app.plots import style
from relay.app.redact import redact, secrets_of
from relay.app.studies import pictures, table
from relay.app.studies.experiments import Design, Point, StudyRun, resolve, split_overrides
from relay.app.studies.picking import Passed, Seen, Turns, turns
from relay.app.studies.results import Pinned, Results, differing, results
from relay.app.studies.studyfile import BadStudy, Fault, load
from relay.app.studies.working import Ended, Worker, left_lines, left_rows
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import terminal_width
from relay.core.errors import BadData, Exit, RelayError, UsageError, store_errors
from relay.core.folders import scratch_folder
from relay.core.lease.host import FileHostLocks, default_folder
from relay.core.ledger.frozen import MAX_RUNS
from relay.core.names import nearest
from relay.core.runs.opening import Pair, check_expected, read_identity
from relay.core.runs.registered import READERS, listed_runs
from relay.core.runs.salvage import pinned_config
from relay.core.settings.config import Resolved
from relay.core.settings.origins import from_command_line
from storage.base import StoreError
from storage.parallel import in_parallel

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A shipped study, or a study file.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]... [KEY=VALUE]...",
        help="Experiments and sweeps, or all; settings of sessions and data.",
        show_default=False,
    ),
]
SeedsOption = Annotated[
    str | None, typer.Option("--seeds", help="Seeds with commas instead of the file's.", show_default=False)
]
StepsOption = Annotated[
    int | None,
    typer.Option("--steps", min=1, help="A shorter study under its own project: steps of its first experiment."),
]
MetricOption = Annotated[
    str | None, typer.Option(help="One of the study's metrics instead of its first.", show_default=False)
]
PICTURE = Path("study.png")


class Form(Enum):
    """The form of the table."""

    text = "text"
    csv = "csv"
    markdown = "markdown"


# --- What all of them open ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """A study as the command line names it."""

    app: App
    resolved: Resolved[Any]
    design: Design
    points: list[Point]
    relay: list[str]
    """Settings of the relay that were given on the command line."""

    def data_root(self) -> Path:
        """The folder for data."""
        return self.resolved.path(self.resolved.settings.data_dir)


def opened(
    call: Call,
    study: str,
    words: Sequence[str] | None,
    seeds: str | None = None,
    steps: int | None = None,
    flags: Mapping[str, object] | None = None,
    store: bool = True,
) -> Opened:
    """Load and resolve the study. Raises NoStudy, BadStudy, UnknownExperiment, NotYours (78), UsageError (2)."""
    app, file = call.app, load(study, call.app.cwd)
    names = [word for word in words or () if "=" not in word and not word.startswith("~")]
    given = [word for word in words or () if word not in names]
    design = resolve(file, app.plugin, {}, steps, _seeds(seeds))
    points = design.chosen(names)
    ours, data = split_overrides(design, points, given)
    project = [f"project={design.project}", f"task={file.study.task}"]
    resolved = app.settle([*ours, *project], call.config, {**call.flags, **(flags or {})}, store)
    own = {key for point in points for key in point.changes}
    filed = {key: one for key, one in resolved.training.given.items() if one.filed and key.startswith("data.")}
    leads = {key: one for key, one in filed.items() if key not in own} | {g.key: g for g in from_command_line(data)}
    if leads:
        design = resolve(file, app.plugin, leads, steps, design.seeds)
        points = design.chosen(names)
    return Opened(app, resolved, design, points, ours)


def _seeds(text: str | None) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",") if part.strip())) if text else ()
    except ValueError:
        found = (-1,)
    if any(not 0 <= seed < 2**31 for seed in found):
        raise UsageError(f"--seeds takes whole numbers with commas, such as 0,1,2; not {text!r}.")
    return found


def reader(stores: Pair, project: str) -> Callable[[Collection[str]], Seen]:
    """Return a function that reads the project's runs, without some that are known to be done."""
    locks = FileHostLocks(default_folder())
    check_expected(stores.ledger, stores.expected, read_identity(stores.ledger))

    def read(leave_out: Collection[str] = ()) -> Seen:
        found = listed_runs(stores, project, leave_out)
        with store_errors(stores.ledger):
            return Seen(found, stores.ledger.now(), locks.is_dead)

    return read


def seen_if_possible(of: Opened) -> tuple[Seen, Pair | None]:
    """What the store holds of the study; nothing if it cannot be read, which is printed."""
    try:
        stores = once(of.app, of.resolved)
        return reader(stores, of.design.project)(()), stores
    except (RelayError, StoreError) as error:
        say(f"The store was not read: {redact(explain(error)[1], secrets_of(of.app.environ))}")
        return Seen({}, 0.0), None


def pinned_of(stores: Pair, project: str, seen: Seen, runs: Iterable[StudyRun]) -> Pinned:
    """The configuration that each begun run pinned; empty if it cannot be read."""
    names = [run.name for run in runs if seen.state(run)]

    def one(name: str) -> Mapping[str, Any]:
        try:
            return pinned_config(stores.run_ledger(project, name))
        except BadData:
            return {}

    return dict(zip(names, in_parallel(one, names, READERS), strict=True))


def lacking_rows(of: Opened, points: Iterable[Point]) -> list[Fault]:
    """A fault for each experiment that asks for more rows than its files on this machine have."""
    plugin, faults, known = of.app.plugin, list[Fault](), dict[str, int]()
    for point in points:
        values = point.values()
        if all(values.get(key) in ANYWHERE for key in plugin.content):
            continue
        key = json.dumps({key: value for key, value in values.items() if key.startswith("data.")}, sort_keys=True)
        if key not in known:
            workload = plugin.build(point.config, "cpu", of.data_root())
            known[key] = plugin.about(point.config, workload).lacking
        if known[key]:
            text = f"{point.name} asks for {known[key]:,} more training rows than its data has."
            faults.append(Fault(text, of.design.file.line("experiments", point.name)))
    return faults


def changed_since(of: Opened, runs: Sequence[StudyRun], pinned: Pinned) -> list[Fault]:
    """A fault for each experiment whose begun runs pinned other settings than the file has now."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.name in pinned and (keys := differing(of.app.plugin, pinned[run.name], run)):
            found.setdefault(run.point.name, {})[run.name] = keys
    return [
        Fault(
            f"{name} changed after {', '.join(begun)} began: {', '.join(sorted(set().union(*begun.values())))}.",
            of.design.file.line("experiments", name),
        )
        for name, begun in found.items()
    ]


def no_room(stores: Pair, project: str, runs: Iterable[StudyRun]) -> Fault | None:
    """The fault that the store cannot list all of the study's runs (the registry's limit)."""
    listed = set(stores.registry().runs())
    more = [run for run in runs if (project, run.name) not in listed]
    if len(listed) + len(more) <= MAX_RUNS:
        return None
    return Fault(
        f"the study begins {counted(len(more), 'run')}, and the store lists {len(listed):,} of at most {MAX_RUNS}. "
        f"Use another store (storage.url=...), fewer seeds, or a sweep."
    )


# --- Commands -------------------------------------------------------------------------------------------------------


@subcommand("config")
def check(call: Call, study: StudyArgument, words: Words = None, seeds: SeedsOption = None) -> Answer:
    """Find every fault of a study file, and runs that began under other settings."""
    try:
        of = opened(call, study, words, seeds)
    except BadStudy as error:
        return _faulty(error.name, error.faults)
    design = of.design
    runs = design.runs(of.points)
    faults = lacking_rows(of, design.trained(of.points))
    seen, stores = seen_if_possible(of)
    if stores is not None:
        faults += [fault for fault in (no_room(stores, design.project, runs),) if fault]
        faults += changed_since(of, runs, pinned_of(stores, design.project, seen, runs))
    if faults:
        return _faulty(design.file.name, faults)
    trained = design.trained(of.points)
    text = (
        f"{design.study.study}: {counted(len(of.points), 'experiment')}, {len(trained):,} trained, "
        f"{counted(len(design.seeds), 'seed')}, {counted(len(runs), 'run')} in project {design.project}. "
        f"Sweeps: {', '.join(design.study.sweeps) or 'none'}."
    )
    return Answer(_checked(design.study.study, len(of.points), len(trained), len(runs), ()), text)


def _faulty(name: str, faults: Sequence[Fault]) -> Answer:
    text = "\n".join(fault.paragraph(name) for fault in faults)
    return Answer(_checked(name, None, None, None, faults), text, Exit.BAD_CONFIG)


def _checked(
    name: str, points: int | None, trained: int | None, runs: int | None, faults: Sequence[Fault]
) -> dict[str, Any]:
    told = [{"line": one.line, "text": one.text, "near": one.near} for one in faults]
    return {
        "schema": "relay.study-check/1",
        "study": name,
        "ok": not faults,
        "experiments": points,
        "trained": trained,
        "runs": runs,
        "faults": told,
    }


@subcommand("config")
def list_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
) -> Answer:
    """Experiments with their settings, sizes, FLOPs and hours on each card that was measured. Needs no store."""
    of = opened(call, study, words, seeds, steps)
    seen, _ = seen_if_possible(of)
    document = table.list_document(of.design, of.points, seen)
    return Answer(document, table.list_text(document, of.design, terminal_width(), speaks_utf8()))


@subcommand("account config")
def run_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    budget_minutes: Annotated[
        float | None, typer.Option(help="Minutes from process start to process exit.", show_default=False)
    ] = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
) -> Answer:
    """Train the study's next free run, then the next one, while the budget lasts."""
    of = opened(call, study, words, seeds, steps, {"budget_minutes": budget_minutes})
    app, design, settings = of.app, of.design, of.resolved.settings
    stores, runs = open_stores(app, of.resolved, read_only=True), design.runs(of.points)
    read = reader(stores, design.project)
    new = {run.point.name for run in runs if run.name not in read(()).runs}
    faults = lacking_rows(of, [point for point in design.trained(of.points) if point.name in new])
    faults += [fault for fault in (no_room(stores, design.project, runs),) if fault]
    if faults:
        raise BadStudy(design.file.name, tuple(faults))
    ends = app.started + settings.budget_minutes * 60 if settings.budget_minutes else float("inf")

    def differs(run: StudyRun) -> str:
        pinned = pinned_of(stores, design.project, read(()), [run])
        return ", ".join(differing(app.plugin, pinned[run.name], run)) if run.name in pinned else ""

    worker = Worker(
        design,
        runs,
        settings.account,
        read,
        differs,
        lambda words: start(app, words),
        lambda: ends - app.runtime.monotonic(),
        say,
        of.relay,
        frozenset(of.resolved.training.given),
        ("--config", str(app.cwd / call.config)) if call.config else (),
    )
    code, found = worker.work()
    return Answer(_worked(design, code, worker, found), _told(code, worker, found), Exit(code))


def start(app: App, words: Sequence[str]) -> Ended:
    """Run a command as a process of its own; its lines for people go to stderr."""
    path = os.pathsep.join(filter(None, (str(Path(relay.__file__).parents[1]), app.environ.get("PYTHONPATH"))))
    began = app.runtime.monotonic()
    with scratch_folder() as scratch, (scratch / "answer.json").open("w+b") as answer:
        words = [sys.executable, "-m", "relay.app.cli", *words, "--json"]
        code = run_child(words, {**app.environ, "PYTHONPATH": path}, app.cwd, stdout=answer)
        answer.seek(0)
        lines = answer.read().splitlines()
    try:
        document = json.loads(lines[-1]) if lines else {}
    except ValueError:
        document = {}
    return Ended(code, document if isinstance(document, dict) else {}, app.runtime.monotonic() - began)


def _worked(design: Design, code: int, worker: Worker, found: Turns) -> dict[str, Any]:
    return {
        "schema": "relay.study/1",
        "study": design.study.study,
        "project": design.project,
        "file_sha256": design.file.sha256,
        "exit_code": code,
        "sessions": worker.sessions,
        "free": [turn.run.name for turn in found.free],
        "left": left_rows(found.left),
    }


def _told(code: int, worker: Worker, found: Turns) -> str:
    done = sum(one.why == "done" for one in found.left)
    lines = [f"{counted(len(worker.sessions), 'session')}; {done:,} of {counted(len(worker.runs), 'run')} done."]
    lines += left_lines([one for one in found.left if one.why != "done"])
    if found.free:
        lines.append(f"Can be trained now: {', '.join(turn.run.name for turn in found.free)}.")
    return "\n".join(lines)


@subcommand("config")
def report_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
    metric: MetricOption = None,
    form: Annotated[Form, typer.Option("--format", help="Form of the table; --json prints all of it.")] = Form.text,
) -> Answer:
    """The table: mean and interval of each experiment, difference to its control, verdict, cost."""
    of = opened(call, study, words, seeds, steps)
    found, _, _ = results_of(of, metric)
    if form is Form.csv:
        text = table.report_csv(found)
    elif form is Form.markdown:
        text = table.report_markdown(found)
    else:
        text = table.report_text(found, terminal_width(), speaks_utf8())
    return Answer(table.report_document(found), text)


def results_of(of: Opened, metric: str | None) -> tuple[Results, Seen, Pair]:
    """Return the table, what was read for it, and the stores. Raises UsageError (2) for an unknown metric."""
    design, known = of.design, of.design.study.metrics
    if metric is not None and metric not in known:
        near = nearest(metric, known)
        raise UsageError(
            f"Study {design.study.study} has no metric {metric}: {', '.join(known)}."
            f"{f' Did you mean {near}?' if near else ''}"
        )
    stores = open_stores(of.app, of.resolved, read_only=True)
    seen = reader(stores, design.project)(())
    pinned = pinned_of(stores, design.project, seen, design.runs(design.points.values()))
    return results(design, of.points, seen, pinned, metric or next(iter(known))), seen, stores


@subcommand("config")
def plot_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
    metric: MetricOption = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture, as .png or .svg.")] = PICTURE,
    dark: Annotated[bool, typer.Option("--dark", help="Dark colors.")] = False,
) -> Answer:
    """Draw a dot for each run with intervals, and the learning curves over steps, FLOPs and GPU-hours."""
    style.check(out)
    style.require_matplotlib()
    of = opened(call, study, words, seeds, steps)
    found, seen, stores = results_of(of, metric)
    curves = {
        row.point.name: {
            seed: learned(stores, of, run, seen) for seed in row.values for run in [of.design.run_of(row.point, seed)]
        }
        for row in found.rows
        if row.point.trained
    }
    if not any(row.mean for row in found.rows):
        raise BadData(f"No run of study {of.design.study.study} has a result yet: {'; '.join(table.notes(found)[1:])}")
    colors, title = style.palette(dark), f"{of.design.study.study}: {of.design.study.about}"
    with style.drawing(colors):
        figure = pictures.draw(found, curves, of.app.plugin.measures.headline, title, colors)
        file = style.save(figure, call.app.cwd / out, title)
    document = {"schema": "relay.study-plot/1", "study": of.design.study.study, "metric": found.metric, "file": file}
    return Answer(document, f"{file['path']}: {counted(len(found.rows), 'experiment')}, {file['bytes']:,} bytes.")


def learned(stores: Pair, of: Opened, run: StudyRun, seen: Seen) -> pictures.Learned:
    """Return the validation of a run, from all of its commits."""
    ledger = stores.run_ledger(of.design.project, run.name)
    view, headline = ledger.read(), of.app.plugin.measures.headline
    commits = Commits(ledger)
    commits.read(view, lambda: True)
    before = hours_before(every_link(ledger, view.state)[0])
    return pictures.Learned(
        [
            (one.step, before.get(one.epoch, 0.0) + one.seconds / 3600, headline.value(one.validation))
            for one in fold(commits.events)[0]
            if one.validation is not None
        ]
    )


# --- next --study ---------------------------------------------------------------------------------------------------


def free_turns(call: Call, study: str) -> tuple[Opened, Turns]:
    """Return the study and the runs that sessions could train now."""
    of = opened(call, study, call.overrides)
    seen = reader(open_stores(of.app, of.resolved, read_only=True), of.design.project)(())
    return of, turns(of.design, of.design.runs(of.points), seen, Passed())


def command_of(study: str, account: str, variables: Mapping[str, str]) -> str:
    """Return the line with which an account trains the study's next run."""
    where = " ".join(f"{name}={redact(value)}" for name, value in variables.items() if name != "RELAY_PROJECT")
    return f"{where} {shell('study run', None, study, '--account', account)}".strip()
