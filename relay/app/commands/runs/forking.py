"""`fork`: begins a new run from a checkpoint of this one, with the same or other settings; only reads the parent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from pydantic import BaseModel

import relay
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.commands.joining import join
from relay.app.commands.stores import open_stores
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.terminal.transfers import showing
from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder, local_folder_of
from relay.core.checkpoint.restore import NotStored, choose
from relay.core.errors import BadData
from relay.core.folders import scratch_folder
from relay.core.ledger.state import Checkpoint, Origin, RunState
from relay.core.names import Names
from relay.core.runs.fork import Branch, Refitted, copy_checkpoint, copy_kept, copy_unsent, only_here
from relay.core.runs.opening import (
    Pair,
    RunHandle,
    begin_run,
    config_hash,
    difference,
    require_run,
    salvaged_run,
    taking_name,
)
from relay.core.runs.ownloop import is_own_loop
from relay.core.runs.salvage import pinned_config
from relay.core.runs.sources import write_sources
from relay.core.settings.config import Resolved, leaves
from storage.base import Store


@subcommand()
def fork(
    to: Annotated[str, typer.Option("--to", help="Name of the new run.")],
    call: Call,
    step: Annotated[
        int | None,
        typer.Option("--from-step", help="A retained or kept step, or one only this machine has.", show_default=False),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--from-epoch", help="Of several checkpoints of that step, this epoch's.", show_default=False),
    ] = None,
) -> Answer:
    """Begin a new run from a retained checkpoint of this one; nothing is shared with it afterwards."""
    app, resolved = call.app, call.settle(joins=True)
    settings, stores = resolved.settings, open_stores(app, resolved, read_only=False)
    parent, before = parent_of(resolved, stores)
    joined = join(app, resolved, parent, stores.ledger)
    resolved = joined.resolved
    with taking_name(stores, settings.project, to, "fork") as taken:
        stores.ensure_tested()
        new = settled(app, resolved, before)
        head, origin = copied(app, resolved, parent, stores.checkpoints, to, (step, epoch), new.refitted)
        made = begin_run(
            stores, settings.project, to, new.pinned, new=True, ephemeral=True, init=True, origin=origin, head=head
        )
        if not made.begun:
            raise taken
        same = {key: source for key, source in (joined.told or {}).items() if key not in new.differing}
        write_sources(stores.ledger, made.names, same)
        here = replace(resolved, settings=resolved.settings.model_copy(update={"run": to}))
        replace(joined, resolved=here, run_id=made.view.state.run_id).keep()
    document = {"schema": "relay.fork/1", "run": to, "from_run": settings.run, "step": head.step}
    given = [text for text in call.overrides or () if _key(text) in new.said or _key(text) in app.plugin.shorthands]
    return Answer(document, told(settings.run, to, head.step, new, given))


@dataclass(frozen=True)
class New:
    """The settings of the fork, and their differences from the parent's."""

    pinned: dict[str, Any]
    said: dict[str, Any]
    """The workload's settings that the command line changes."""
    differing: dict[str, Any]
    refitted: Refitted | None
    """How the state is changed; None if it stays as it is."""


def settled(app: App, resolved: Resolved[BaseModel], before: dict[str, Any]) -> New:
    """Apply the command line to the parent's settings.

    Raises BadConfig (78) if the parent's state does not fit the new settings.
    """
    own = leaves(app.plugin.model)
    said = {key: value for key, value, where in resolved.values() if where.startswith("command line") and key in own}
    pinned = app.plugin.forked(before, said, resolved.workload, resolved.path(resolved.settings.data_dir))
    differing = {one.key: one.mine for one in difference(before, pinned)}
    refit = app.plugin.refit(differing, pinned)
    return New(pinned, said, differing, Refitted(refit, config_hash(pinned)) if refit else None)


def _key(override: str) -> str:
    return override.lstrip("+").partition("=")[0]


def told(parent: str, to: str, step: int, new: New, given: Sequence[str]) -> str:
    """Describe the new run, its parent and the command to train it. given: settings of the training, as typed."""
    how = " with its weights and moments and a fresh carry" if new.refitted else ""
    begins = f"Run {to} begins at step {step:,} of {parent}{how}"
    if is_own_loop(new.pinned):
        return f'{begins}. Its script continues it if it names that run: relay.session("{to}", …).'
    text = f"{begins}: {command('run', to, *given)}"
    if any(key.startswith("data.") for key in new.differing):
        text += f"\nIts validation rows may be rows that {parent} trained on: judge it by its test rows."
    return text


def parent_of(resolved: Resolved[BaseModel], stores: Pair) -> tuple[RunHandle, dict[str, Any]]:
    """Return the run to fork from and its pinned settings, also if its ledger has lost an entry.

    Raises BadData (65) if nothing of it can be read.
    """
    settings = resolved.settings
    try:
        opened = require_run(stores, settings.project, settings.run)
        return opened, opened.ledger.genesis().config
    except BadData as error:
        found = salvaged_run(stores, settings.project, settings.run)
        if found is None:
            raise
        slot = found.view.entry.seq
        say(f"{paragraph(error)}\nForking from what slot {slot} says, the newest entry that can be read.")
        return found, pinned_config(found.ledger)


def copied(
    app: App,
    resolved: Resolved[BaseModel],
    parent: RunHandle,
    target: Store,
    to: str,
    wanted: tuple[int | None, int | None],
    change: Refitted | None,
) -> tuple[Checkpoint, Origin]:
    """Copy a checkpoint and return the head and the origin of the fork.

    The checkpoint may be retained or kept by the run, or exist only on this machine. If the stored files are damaged,
    another copy of them is used.
    `wanted`: step and epoch, each None if not asked for. Raises BadData (65) if there is no such checkpoint.
    """
    view, (step, epoch) = parent.view, wanted
    names, run_id = Names(resolved.settings.project, to), app.runtime.token()
    local_folder = local_folder_of(resolved.home, view.state.run_id)
    here = [(box, packed) for box, packed in only_here(local_folder, view.state) if epoch in (None, packed.epoch)]
    with scratch_folder() as scratch, showing(say, app.runtime) as show:
        branch = Branch(target, names, run_id, relay.__version__, scratch, app.runtime, show, change)
        kept = [k for k in view.state.kept if step == k.step and epoch in (None, k.epoch)]
        if step is not None and not _retains(view.state, step, epoch):
            if kept:
                return copy_kept(parent.ledger, view, kept[-1], branch)
            for box, packed in reversed(here):
                if packed.step == step:
                    return copy_unsent(view, packed, box, branch)
        checkpoint = chosen(view.state, step, epoch, here)
        try:
            return copy_checkpoint(parent.ledger, view, checkpoint.key, branch)
        except NotStored as error:
            if kept:
                say(f"{paragraph(error)}\nForking from the one of that step that the run keeps.")
                return copy_kept(parent.ledger, view, kept[-1], branch)
            copy = local_folder.copy_of(checkpoint, view.state)
            if copy is None:
                raise
            say(f"{paragraph(error)}\nForking from this machine's copy of it.")
            return copy_unsent(view, copy, local_folder, branch)


def _retains(state: RunState, step: int, epoch: int | None) -> bool:
    return any(c.step == step and epoch in (None, c.epoch) for c in state.undamaged)


def chosen(
    state: RunState, step: int | None, epoch: int | None, here: Sequence[tuple[LocalFolder, LocalCheckpoint]]
) -> Checkpoint:
    """Return the retained checkpoint that was asked for.

    Raises BadData (65), whose message also names the steps that are kept or on this machine.
    """
    try:
        return choose(state, step, epoch)
    except BadData as error:
        told = [paragraph(error)]
        if state.kept:
            told.append(f"It also keeps {_steps(k.step for k in state.kept)}.")
        if here:
            told.append(f"This machine alone also has {_steps(packed.step for _, packed in here)}.")
        raise BadData(" ".join(told)) from error


def _steps(steps: Iterable[int]) -> str:
    return ", ".join(f"{step:,}" for step in sorted(set(steps)))
