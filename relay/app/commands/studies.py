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
from relay.app.commands.joining import ANYWHERE, FETCHED
from relay.app.commands.looking.comparing import Board, Export, compared
from relay.app.commands.reading import every_link
from relay.app.commands.stores import once, open_stores
from relay.app.dashboard.curves import expanded, fold
from relay.app.dashboard.history import Commits
from relay.app.dashboard.sessions import hours_before
from relay.app.messages.wording import counted
from relay.app.plots import style
from relay.app.redact import redact, secrets_of
from relay.app.studies import pictures, table
from relay.app.studies.experiments import Design, Point, StudyRun, resolve
from relay.app.studies.picking import Seen
from relay.app.studies.results import Pinned, Results, differing, results
from relay.app.studies.studyfile import BadStudy, Fault, load
from relay.app.studies.working import Ended, Worker
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import terminal_width
from relay.core.errors import BadData, Exit, RelayError, UsageError, store_errors
from relay.core.folders import scratch_folder
from relay.core.lease.children import run_child
from relay.core.lease.host import FileHostLocks, default_folder
from relay.core.ledger.frozen import MAX_RUNS
from relay.core.ledger.registry import StoreNotBegun
from relay.core.names import nearest
from relay.core.runs.opening import Pair, begins_by_itself, check_expected, read_identity
from relay.core.runs.registered import READERS, listed_runs
from relay.core.runs.salvage import pinned_config
from relay.core.settings.config import Resolved, flat
from relay.core.settings.origins import from_command_line
from storage.base import StoreError
from storage.parallel import in_parallel

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A shipped study, or a study file.")]
WORDS = "Experiments and sweeps, or all; settings of sessions and data."
Words = Annotated[list[str] | None, typer.Argument(metavar="[NAME]... [KEY=VALUE]...", help=WORDS, show_default=False)]
SeedsOption = Annotated[str | None, typer.Option("--seeds", help="Seeds, such as 0,1.", show_default=False)]
SHORTER = "Steps of the first experiment: a shorter study, under its own project."
StepsOption = Annotated[int | None, typer.Option("--steps", min=1, help=SHORTER, show_default=False)]
MetricOption = Annotated[str | None, typer.Option(help="One of the study's other metrics.", show_default=False)]
BudgetOption = Annotated[float | None, typer.Option(help="Minutes from process start to exit.", show_default=False)]
OutOption = Annotated[Path, typer.Option(metavar="FILE", help="The picture, as .png or .svg.")]


class Form(Enum):
    """The form of the table."""

    text = "text"
    csv = "csv"
    markdown = "markdown"


# --- Shared by all of them ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """A study as the command line names it."""

    app: App
    resolved: Resolved[Any]
    design: Design
    points: list[Point]
    relay: list[str]
    """Settings of the relay that were given on the command line."""

    def stores(self) -> Pair:
        """Return clients that only read."""
        return open_stores(self.app, self.resolved, read_only=True)


def opened(
    call: Call,
    study: str,
    words: Sequence[str] | None,
    seeds: str | None = None,
    steps: int | None = None,
    budget_minutes: float | None = None,
) -> Opened:
    """Load and resolve the study. Raises NoStudy, BadStudy, UnknownExperiment, NotYours (78), UsageError (2)."""
    app, file = call.app, load(study, call.app.cwd)
    given = [word for word in words or () if "=" in word or word.startswith("~")]
    names = [word for word in words or () if word not in given]
    plugin = app.of_task(file.study.task)
    design = resolve(file, plugin, {}, steps, _seeds(seeds))
    ours, data = design.split(design.chosen(names), given)
    own = [f"project={design.project}", f"task={file.study.task}"]
    resolved = app.settle([*ours, *own], call.config, {**call.flags, "budget_minutes": budget_minutes})
    changed = {key for point in design.chosen(names) for key in point.changes}
    preset = dict(flat(plugin.preset(file.study.task).model_dump(mode="json")))
    leads = {
        key: one
        for key, one in resolved.training.given.items()
        if key.startswith("data.") and key not in changed and str(one.value) != str(preset.get(key))
    }
    leads |= {one.key: one for one in from_command_line(data)}
    design = resolve(file, plugin, leads, steps, design.seeds)
    return Opened(app, resolved, design, design.chosen(names), ours)


def _seeds(text: str | None) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if any(not part.isdecimal() or int(part) >= 2**31 for part in parts):
        raise UsageError(f"--seeds takes whole numbers with commas, such as 0,1,2; not {text!r}.")
    return tuple(dict.fromkeys(map(int, parts)))


def runs_reader(stores: Pair, project: str) -> Callable[[Collection[str]], Seen]:
    """Return a function that reads the project's runs, without some that are known to be done."""
    locks = FileHostLocks(default_folder())
    check_expected(stores.ledger, stores.expected, read_identity(stores.ledger))

    def read(leave_out: Collection[str]) -> Seen:
        found = listed_runs(stores, project, leave_out)
        with store_errors(stores.ledger):
            return Seen(found, stores.ledger.now(), locks.is_dead)

    return read


def seen_if_possible(of: Opened) -> tuple[Seen, Pair | None]:
    """Return what the store holds of the study; nothing if it cannot be read, which is printed."""
    try:
        stores = once(of.app, of.resolved)
        return runs_reader(stores, of.design.project)(()), stores
    except (RelayError, StoreError) as error:
        say(f"The store was not read: {redact(explain(error)[1], secrets_of(of.app.environ))}")
        return Seen({}, 0.0), None


def pinned_of(stores: Pair, project: str, seen: Seen, runs: Iterable[StudyRun]) -> Pinned:
    """Return the configuration that each begun run pinned; an empty one if it cannot be read."""

    def one(name: str) -> Mapping[str, Any]:
        try:
            return pinned_config(stores.run_ledger(project, name))
        except BadData:
            return {}

    names = [run.name for run in runs if seen.state(run)]
    return dict(zip(names, in_parallel(one, names, READERS), strict=True))


# --- Faults that only data or a store shows -------------------------------------------------------------------------


def lacking_rows(of: Opened, points: Iterable[Point]) -> list[Fault]:
    """Return a fault for each experiment that asks for more rows than its files on this machine have."""
    plugin, faults, known = of.design.plugin, list[Fault](), dict[str, int]()
    root = of.resolved.path(of.resolved.settings.data_dir)
    for point in points:
        data = {key: value for key, value in point.values.items() if key.startswith("data.")}
        named = [data.get(key) for key in plugin.content]
        if FETCHED in named or all(source in ANYWHERE for source in named):
            continue
        if (key := json.dumps(data, sort_keys=True)) not in known:
            known[key] = plugin.about(point.config, plugin.build(point.config, "cpu", root)).lacking
        if known[key]:
            text = f"{point.name} asks for {counted(known[key], 'more training row')} than its data has."
            faults.append(Fault(text, of.design.file.line("experiments", point.name)))
    return faults


def lacking_room(stores: Pair, project: str, runs: Iterable[StudyRun]) -> list[Fault]:
    """Return a fault if the store cannot list all of the study's runs (the registry's limit)."""
    listed = set(stores.registry().runs())
    more = {(project, run.name) for run in runs} - listed
    text = (
        f"the study begins {counted(len(more), 'run')}, and the store lists {len(listed):,} of at most {MAX_RUNS}. "
        "Use another store (storage.url=...), fewer seeds, or a sweep."
    )
    return [Fault(text)] if len(listed) + len(more) > MAX_RUNS else []


def changed_since(of: Opened, runs: Iterable[StudyRun], pinned: Pinned) -> list[Fault]:
    """Return a fault for each experiment whose begun runs pinned other settings than the file has now."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.name in pinned and (keys := differing(of.design.plugin, pinned[run.name], run)):
            found.setdefault(run.point.name, {})[run.name] = keys
    faults = []
    for name, begun in found.items():
        text = f"{name} changed after {', '.join(begun)} began: {', '.join(sorted(set().union(*begun.values())))}."
        faults.append(Fault(text, of.design.file.line("experiments", name)))
    return faults


# --- Commands -------------------------------------------------------------------------------------------------------


@subcommand("config")
def check(call: Call, study: StudyArgument, words: Words = None, seeds: SeedsOption = None) -> Answer:
    """Find every fault of a study file, and runs that began under other settings."""
    faults: list[Fault] = []
    try:
        of = opened(call, study, words, seeds)
    except BadStudy as error:
        name, counts, faults, text = error.name, {}, list(error.faults), ""
    else:
        design, runs = of.design, of.design.runs(of.points)
        trained, name = design.trained(of.points), design.file.name
        faults += lacking_rows(of, trained)
        seen, stores = seen_if_possible(of)
        if stores is not None:
            faults += lacking_room(stores, design.project, runs)
            faults += changed_since(of, runs, pinned_of(stores, design.project, seen, runs))
        counts = {"experiments": len(of.points), "trained": len(trained), "runs": len(runs)}
        text = (
            f"{design.study.study}: {counted(len(of.points), 'experiment')}, {len(trained):,} trained, "
            f"{counted(len(design.seeds), 'seed')}, {counted(len(runs), 'run')} in project {design.project}. "
            f"Sweeps: {', '.join(design.study.sweeps) or 'none'}."
        )
    told = [{"line": one.line, "text": one.text, "near": one.near} for one in faults]
    document = {"schema": "relay.study-check/1", "study": study, "ok": not faults, **counts, "faults": told}
    lines = [fault.paragraph(name) for fault in faults] or [text]
    return Answer(document, "\n".join(lines), Exit.BAD_CONFIG if faults else Exit.OK)


@subcommand("config")
def list_study(
    call: Call, study: StudyArgument, words: Words = None, seeds: SeedsOption = None, steps: StepsOption = None
) -> Answer:
    """Experiments with their settings, sizes, FLOPs and hours on each card that was measured. Needs no store."""
    of = opened(call, study, words, seeds, steps)
    document = table.list_document(of.design, of.points, seen_if_possible(of)[0])
    return Answer(document, table.list_text(document, of.points, terminal_width(), speaks_utf8()))


@subcommand("account config")
def run_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    budget_minutes: BudgetOption = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
) -> Answer:
    """Train the study's next free run, then the next one, while the budget lasts."""
    of = opened(call, study, words, seeds, steps, budget_minutes)
    app, design, settings, stores = of.app, of.design, of.resolved.settings, of.stores()
    runs, read = design.runs(of.points), runs_reader(stores, design.project)
    begun = read(()).runs
    new = [point for point in design.trained(of.points) if any(r.point is point and r.name not in begun for r in runs)]
    if faults := lacking_rows(of, new) + lacking_room(stores, design.project, runs):
        raise BadStudy(design.file.name, faults)
    ends = app.started + settings.budget_minutes * 60 if settings.budget_minutes else float("inf")

    def differs(run: StudyRun) -> str:
        return ", ".join(differing(design.plugin, pinned_config(stores.run_ledger(design.project, run.name)), run))

    worker = Worker(
        design,
        runs,
        settings.account,
        read,
        differs,
        lambda words: start(app, words),
        lambda: ends - app.runtime.monotonic(),
        say,
        [*(("--config", str(app.cwd / call.config)) if call.config else ()), *of.relay],
        frozenset(of.resolved.training.given),
        not begins_by_itself(stores.ledger),
    )
    if worker.inits and read_identity(stores.ledger) is None:  # the address may be mistyped
        raise StoreNotBegun(stores.ledger.address)
    code, found = worker.work()
    free, left = [turn.run.name for turn in found.free], [one.document() for one in found.left]
    document = {"schema": "relay.study/1", **table.about(design), "exit_code": code, "sessions": worker.sessions}
    done = f"{sum(one['why'] == 'done' for one in left):,} of {counted(len(runs), 'run')} done"
    lines = [f"{counted(len(worker.sessions), 'session')}; {done}.", *found.lines()]
    names = [f"{turn.run.name} (its test)" if turn.trained else turn.run.name for turn in found.free]
    lines += [f"Can be trained now: {', '.join(names)}."] if names else []
    return Answer({**document, "free": free, "left": left}, "\n".join(lines), code)


def start(app: App, words: Sequence[str]) -> Ended:
    """Run a command as a process of its own; its lines for people go to stderr."""
    path = os.pathsep.join(filter(None, (str(Path(relay.__file__).parents[1]), app.environ.get("PYTHONPATH"))))
    began, document = app.runtime.monotonic(), {}
    with scratch_folder() as scratch, (scratch / "answer.json").open("w+b") as answer:
        command = [sys.executable, "-m", "relay.app.cli", *words, "--json"]
        code = run_child(command, {**app.environ, "PYTHONPATH": path}, app.cwd, stdout=answer)
        answer.seek(0)
        for line in answer.read().splitlines()[-1:]:
            document = json.loads(line)
    return Ended(code, document, app.runtime.monotonic() - began)


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
    found = results_of(opened(call, study, words, seeds, steps), metric)[0]
    if form is Form.text:
        text = table.report_text(found, terminal_width(), speaks_utf8())
    else:
        text = table.report_csv(found) if form is Form.csv else table.report_markdown(found)
    return Answer(table.report_document(found), text)


def results_of(of: Opened, metric: str | None) -> tuple[Results, Pair]:
    """Return the table and the stores. Raises UsageError (2) for an unknown metric."""
    design, known = of.design, of.design.study.metrics
    if metric is not None and metric not in known:
        close = f" Did you mean {near}?" if (near := nearest(metric, known)) else ""
        raise UsageError(f"Study {design.study.study} has no metric {metric}: {', '.join(known)}.{close}")
    stores = of.stores()
    seen = runs_reader(stores, design.project)(())
    pinned = pinned_of(stores, design.project, seen, design.runs(design.points.values()))
    return results(design, of.points, seen, pinned, metric or design.study.metric), stores


@subcommand("config")
def plot_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
    metric: MetricOption = None,
    out: OutOption = Path("study.png"),
    dark: Annotated[bool, typer.Option("--dark", help="Dark colors.")] = False,
) -> Answer:
    """Draw a dot for each run with intervals, and the learning curves over steps, FLOPs and GPU-hours."""
    style.check(out)
    style.require_matplotlib()
    of = opened(call, study, words, seeds, steps)
    found, stores = results_of(of, metric)
    if not any(row.mean for row in found.rows):
        raise BadData(f"No run of study {of.design.study.study} has a result yet.")
    trained = [row for row in found.rows if row.point.trained]
    split, _, bare = found.metric.rpartition("/")
    curve = of.design.plugin.measures.on_split(bare) if split else bare
    curves = {row.point.name: [learned(stores, of, name, curve) for name in row.runs] for row in trained}
    colors, title = style.palette(dark), f"{of.design.study.study}: {of.design.study.about}"
    with style.drawing(colors):
        figure = pictures.draw(found, curves, curve, title, colors)
        file = style.save(figure, call.app.cwd / out, title)
    document = {"schema": "relay.study-plot/1", **table.about(of.design), "metric": found.metric, "file": file}
    return Answer(document, f"{file['path']}: {counted(len(found.rows), 'experiment')}, {file['bytes']:,} bytes.")


@subcommand("config redact")
def compare_study(
    call: Call,
    study: StudyArgument,
    words: Words = None,
    seeds: SeedsOption = None,
    steps: StepsOption = None,
    export_to: Export = None,
) -> Answer:
    """Two to eight of a study's runs side by side, as `compare` shows them; name experiments, and seeds by --seeds."""
    of = opened(call, study, words, seeds, steps)
    seen = runs_reader(of.stores(), of.design.project)(())
    begun = [run.name for run in of.design.runs(of.points) if seen.state(run)]
    return compared(Board(of.app, of.resolved, call.redact), begun, export_to)


def learned(stores: Pair, of: Opened, run: str, metric: str) -> pictures.Learned:
    """Return the learning curve of a run, from all of its commits."""
    ledger = stores.run_ledger(of.design.project, run)
    view, commits = ledger.read(), Commits(ledger)
    commits.read(view, lambda: True)
    before = hours_before(every_link(ledger, view.state)[0])
    return [
        (one.step, before.get(one.epoch, 0.0) + one.seconds / 3600, one.metrics[metric])
        for one in expanded(fold(commits.events)[0])
        if metric in one.metrics
    ]
