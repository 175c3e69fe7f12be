"""`import`: begins a run from a file of weights. It does not continue a training exactly, and reports that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

import relay
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say, target_of
from relay.app.commands.joining import record_sources
from relay.app.commands.sessions.opening import SessionSetup, without_training
from relay.app.messages.advice import command
from relay.app.messages.whereabouts import new_run
from relay.app.terminal.transfers import showing
from relay.core.checkpoint.local import LocalCheckpoint
from relay.core.errors import BadConfig
from relay.core.folders import scratch_folder
from relay.core.ledger.frozen import WEIGHTS_ONLY
from relay.core.ledger.state import Checkpoint, Origin
from relay.core.names import Names
from relay.core.runs.fork import Branch, first_of, put_weights
from relay.core.runs.opening import RunHandle, begin_run, check_similar, config_hash, open_run, taking_name
from relay.core.settings.config import Resolved
from relay.core.workload import Workload
from storage.transfer import file_digest

STEP = re.compile(r"step_(\d{1,15})")


@subcommand("overrides run config ephemeral")
def import_weights(
    weights: Annotated[Path, typer.Argument(metavar="FILE", help="step_N of the reference, or safetensors.")],
    call: Call,
) -> Answer:
    """Begin a run at step 0 from a file of weights alone: optimizer, averages and schedule start afresh."""
    run, _ = call.settings.run, call.resolved.workload
    origin, notes = begun(without_training(call.app, call.resolved), call.app.cwd / weights)
    document = {"schema": "relay.import/1", "run": run, "file": str(weights), "exact": False, "notes": notes}
    return Answer({**document, "sha256": origin.entry}, told(call.resolved, weights, notes, call.overrides or ()))


def begin_or_check(opening: SessionSetup) -> None:
    """Apply `load_checkpoint`: begin a new run from that file, or check that an existing run began from it.

    If several sessions do this at once, one begins the run and the others use it.
    Raises BadConfig (78) if the run began otherwise or its name is one edit away from another run's, PolicyRefused (77)
    if the account may not train it, BadData (65) if the file does not fit.
    """
    settings = opening.resolved.settings
    if settings.load_checkpoint is None:
        return
    weights = opening.resolved.path(settings.load_checkpoint)
    found = open_run(opening.stores, settings.project, settings.run) or _begin(opening, weights)
    if found is None:
        return
    origin = found.view.state.origin
    mine = file_digest(weights)[1] if weights.is_file() else None
    if origin is None or origin.project != WEIGHTS_ONLY or (mine and mine != origin.entry):
        raise BadConfig(
            f"Run {settings.run} did not begin from {settings.load_checkpoint}. Leave load_checkpoint out to go on "
            f"with it, or name another run."
        )


def _begin(opening: SessionSetup, weights: Path) -> RunHandle | None:
    """Begin the run from that file. Returns the run of another session that was faster, or None.

    Raises as `begin_or_check`.
    """
    settings = opening.resolved.settings
    opening.ask(None)
    if not opening.new:
        check_similar(settings.project, settings.run, opening.stores.registry().runs())
    try:
        notes = begun(opening, weights)[1]
    except BadConfig:
        if found := open_run(opening.stores, settings.project, settings.run):
            return found
        raise
    for note in notes:
        opening.tell(f"{weights.name}: {note}.")
    return None


def begun(opening: SessionSetup, weights: Path) -> tuple[Origin, list[str]]:
    """Begin a new run from the file. Returns its origin, and notes for the user."""
    app, resolved = opening.app, opening.resolved
    settings = resolved.settings
    with taking_name(opening.stores, settings.project, settings.run, "import") as taken:
        opening.stores.ensure_tested()
        workload = opening.workload(target_of(app, resolved, None))
        notes = list(app.plugin.start_from(workload, weights))
        head, origin = stored(app, resolved, opening, workload, weights)
        made = begin_run(
            opening.stores, settings.project, settings.run, workload.config(),
            new=True, ephemeral=settings.ephemeral, init=True, origin=origin, head=head,
        )  # fmt: skip
        if not made.begun:
            raise taken
    record_sources(app, made, opening.stores.ledger, resolved, workload)
    for note in new_run(made):
        opening.tell(note)
    return origin, notes


def told(resolved: Resolved[BaseModel], weights: Path, notes: list[str], overrides: Any) -> str:
    """Describe the new run, its limits and the command to train it."""
    name = resolved.settings.run
    lines = [f"Run {name} begins at step 0 with the weights of {weights.name}.", *(f"Note: {note}." for note in notes)]
    lines.append("Weights only, perhaps averaged ones: optimizer, averages, data position and schedule start afresh.")
    return "\n".join([*lines, f"Train: {command('run', name, *overrides)}"])


def stored(
    app: App, resolved: Resolved[BaseModel], opening: SessionSetup, workload: Workload, weights: Path
) -> tuple[Checkpoint, Origin]:
    """Store the workload's state as the first checkpoint of the run. Raises as `put_weights`."""
    settings, found = resolved.settings, STEP.fullmatch(weights.name)
    store, names, run_id = opening.stores.checkpoints, Names(settings.project, settings.run), app.runtime.token()
    with scratch_folder() as scratch, showing(say, app.runtime) as show:
        branch = Branch(store, names, run_id, relay.__version__, scratch, app.runtime, show)
        packed = packed_start(branch, workload)
        origin = Origin(
            project=WEIGHTS_ONLY,
            run=named(weights),
            entry=file_digest(weights)[1],
            step=int(found[1]) if found else 0,
            state_hash=packed.state_hash,
        )
        return put_weights(branch, packed, origin), origin


def packed_start(branch: Branch, workload: Workload) -> LocalCheckpoint:
    """Save the workload's state into the scratch folder."""
    saved = workload.snapshot().save(branch.scratch)
    return first_of(branch, saved, branch.scratch, config_hash(workload.config()), dict(workload.fingerprint()))


def named(weights: Path) -> str:
    """Return the file's name with only the characters that the ledger allows in a name."""
    return re.sub(r"[^a-z0-9_-]", "-", weights.name.lower()).strip("-_")[:60] or "weights"
