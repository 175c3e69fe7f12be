"""Finds the work that `cloud` is asked about: phases, tasks and studies, and the steps that a run has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay.app.cloud.estimates import Work
from relay.app.cloud.machines import shipped
from relay.app.cloud.rates import Rate
from relay.app.commands.command import Call
from relay.app.commands.common import App, say
from relay.app.commands.stores import open_stores
from relay.app.models.plugin import TaskPlugin
from relay.app.renting import UnknownPhase
from relay.app.studies import studyfile
from relay.app.studies.experiments import resolve
from relay.app.studies.table import MEASURED_STEPS
from relay.core.errors import UsageError
from relay.core.ledger.state import RunState
from relay.core.runs.opening import require_run
from relay.core.runs.registered import listed_runs
from relay.core.runs.salvage import pinned_config
from relay.core.settings.config import Settings

# --- The work -------------------------------------------------------------------------------------------------------


def works_of(call: Call, words: Sequence[str]) -> list[Work]:
    """The named phases, tasks and studies, with the given settings. Raises UnknownPhase (78), UsageError (2)."""
    given, names = [word for word in words if "=" in word], [word for word in words if "=" not in word]
    if tasked := [word for word in given if word.startswith("task=")]:
        if names:
            raise UsageError(f"{names[0]} and {tasked[0]} both name what is trained. Give one of them.")
        return [work_of(call, "", given)]
    found, phases, tasks = list[Work](), phases_of(call.app), tasks_of(call.app)
    for name in names or phases or [call.app.plugin.default_task]:
        if name in phases or name in tasks:
            found.append(work_of(call, name, [f"task={phases.get(name, name)}", *given]))
            continue
        try:
            found += works_of_study(call, name, given)
        except studyfile.NoStudy as error:
            raise UnknownPhase(name, [*phases, *tasks, *studyfile.shipped()]) from error
    return found


def phases_of(app: App) -> Mapping[str, str]:
    """Tasks by the guide's names."""
    return app.models.phases() if app.models else {}


def tasks_of(app: App) -> Sequence[str]:
    """All tasks."""
    return app.models.tasks() if app.models else app.plugin.words["task"]


def work_of(call: Call, name: str, words: Sequence[str]) -> Work:
    """One task with settings."""
    resolved = call.app.settle(words, call.config, call.flags, store=False)
    plugin, settings = call.app.plugin, resolved.settings
    steps = settings.target_steps or plugin.target(resolved.workload)
    config = plugin.with_target(resolved.workload, steps)
    return Work(name or str(config.model_dump()["task"]), plugin, config, steps, *_due(settings), tuple(words))


def _due(settings: Settings) -> tuple[int, float]:
    return settings.checkpoint.every_steps, settings.checkpoint.every_minutes


def works_of_study(call: Call, name: str, words: Sequence[str]) -> list[Work]:
    """The trained experiments of a study; the steps are those of all seeds. Raises NoStudy, BadStudy (78)."""
    file = studyfile.load(name, call.app.cwd)
    plugin = call.app.of_task(file.study.task)
    design = resolve(file, plugin, {})
    settings = call.app.settle([f"task={file.study.task}", *words], call.config, call.flags, store=False).settings
    points = design.trained(design.points.values())
    return [
        Work(point.name, plugin, point.config, point.steps * len(design.seeds), *_due(settings)) for point in points
    ]


def own_rates(call: Call, gpus: int) -> list[Rate]:
    """The steps of a run, or of an account over all runs of the project, as the ledger counted them.

    gpus: of the host that trained them, which the ledger does not hold. Seconds are those of whole sessions.
    """
    resolved = call.app.settle([], call.config, call.flags, store=False)
    run, stores = call.flags.get("run"), open_stores(call.app, resolved, True)
    project, found = resolved.settings.project, list[Rate]()
    if run:
        require_run(stores, project, resolved.settings.run)
    for name in [str(run)] if run else list(listed_runs(stores, project)):
        ledger = stores.run_ledger(project, name)
        if (view := ledger.peek()) is not None:
            spent = _spent(view.state, call.flags.get("account"))
            found += _of_run(call, f"run {name}", pinned_config(ledger), spent, gpus)
    if not found:
        say(f"Fewer than {MEASURED_STEPS} steps were counted on a card of the table: the shipped records are used.")
    return found


def _spent(state: RunState, account: object) -> dict[str, tuple[int, int]]:
    """Seconds of ended sessions and steps, by GPU."""
    spent = dict[str, tuple[int, int]]()
    for who, usage in state.usage.items():
        for place, seconds, steps in usage.by_gpu if account in (None, who) else ():
            before = spent.get(state.gpus[place], (0, 0))
            spent[state.gpus[place]] = before[0] + seconds, before[1] + steps
    return spent


def _of_run(
    call: Call, record: str, pinned: dict[str, Any], spent: dict[str, tuple[int, int]], gpus: int
) -> list[Rate]:
    plugin, found = call.app.model_of(pinned), list[Rate]()
    for gpu, (seconds, steps) in spent.items():
        card = shipped().card(gpu)
        if card is None or steps < MEASURED_STEPS:
            continue
        config = _config_of(call, plugin, pinned)
        found.append(
            Rate(
                task=str(pinned["task"]),
                card=card.name,
                method=plugin.on_card(config, card.capability).step,
                gpus=gpus,
                ms=1000 * seconds / steps,
                step_tflop=plugin.cost(config).flops / 1e12,
                n=steps,
                torch="",
                triton="",
                record=record,
            )
        )
    return found


def _config_of(call: Call, plugin: TaskPlugin, pinned: dict[str, Any]) -> Any:
    """A run's configuration, as far as its arithmetic goes."""
    resolved = call.app.settle([f"task={pinned['task']}"], call.config, call.flags, store=False)
    return resolved.on(plugin.base(pinned, {}), "the run").workload
