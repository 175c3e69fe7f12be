"""`init`, `fork`, `stop`, `resume`: begin, branch and tend a run; each is one deliberate act of a person."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

import relay
from relay.advice import command
from relay.changes import Resume
from relay.commands.common import (
    App,
    ConfigOption,
    EphemeralOption,
    JsonOption,
    Overrides,
    RunOption,
    emit,
    say,
    surroundings,
)
from relay.commands.opening import Opening, target_of
from relay.commands.reading import open_stores, require
from relay.commands.weights import choose
from relay.config import Resolved, leaves
from relay.endpoint import record
from relay.errors import BadConfig, BadData, UsageError
from relay.fork import Branch, Refitted, copy_checkpoint, copy_unsent, only_here
from relay.heartbeat import request_stop
from relay.identity import Opened, Pair, begin_run, open_run, require_run, salvaged_run
from relay.names import Names
from relay.outbox import outbox_of
from relay.pinned import config_hash, difference
from relay.progress import Lines
from relay.redact import redact, secrets_of
from relay.resting import refuse_resting
from relay.salvage import pinned_config
from relay.signals import StopSignal
from relay.state import Checkpoint, Origin
from relay.storeid import Address
from relay.transfers import showing
from storage.base import Store, make_store
from storage.selftest import self_test


def init(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    ephemeral: EphemeralOption = False,
    as_json: JsonOption = False,
) -> None:
    """Begin a run, and a store that has not begun; prints the address to give to the others."""
    app = surroundings(context)
    flags: dict[str, object] = {"run": run, "ephemeral": True if ephemeral else None}
    resolved = app.settle(overrides, config, flags)
    if stores := made(resolved):
        resolved = app.settle(overrides, config, flags | stores)
    shown = Lines(0, app.runtime.monotonic, 30.0)
    opening = Opening(app, resolved, shown, StopSignal(), new=True, trains=False)
    settings = resolved.settings
    open_run(opening.stores, settings.project, settings.run)  # or another store: 78
    for store in opening.stores.both:
        self_test(store, token=app.runtime.token, sleep=app.runtime.sleep)
        record(store)
    opened = opening.begin(opening.workload(target_of(app, resolved, None)).config(), init=True)
    state = opened.view.state
    address = str(Address(resolved.ledger_url.partition("#")[0], state.ledger_store))
    second = str(Address(resolved.checkpoint_url.partition("#")[0], state.checkpoint_store))
    say(f"A message to invite somebody with: {command('invite', state.run)}")
    document = {"schema": "relay.init/1", "run": state.run, "begun": opened.begun, "address": address}
    emit(as_json, {**document, "checkpoint_address": second}, addresses(address, second))


def made(resolved: Resolved[BaseModel]) -> dict[str, object]:
    """Settings that name the stores which had no address before now; empty where all had one. Raises StoreError."""
    asked = (resolved.ledger_url, resolved.checkpoint_url)
    found: dict[str, str] = {}
    for url in dict.fromkeys(asked):
        found[url] = make_store(url)
        if found[url] != url:
            say(f"Made {found[url]}. If this command fails further on, repeat it with that in place of {url}.")
    if all(url == address for url, address in found.items()):
        return {}
    return {"storage.ledger_url": found[asked[0]], "storage.checkpoint_url": found[asked[1]]}


def addresses(ledger: str, checkpoints: str) -> str:
    """What the others set: one address, or both where there are two stores."""
    if ledger == checkpoints:
        return f"Give this address to the others, as RELAY_STORE or storage.url:\n{ledger}"
    both = f"RELAY_LEDGER_STORE={shlex.quote(ledger)}\nRELAY_CHECKPOINT_STORE={shlex.quote(checkpoints)}"
    return f"Give both addresses to the others, as these variables:\n{both}"


def fork(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="Name of the new run.")],
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    step: Annotated[
        int | None,
        typer.Option("--from-step", help="A retained step, or one that only this machine has.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a new run from a retained checkpoint of this one; nothing is shared with it afterwards."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    settings, source = resolved.settings, open_stores(app, resolved, read_only=False)
    parent, pinned = parent_of(resolved, source)
    if open_run(source, settings.project, to):
        raise _taken(to)
    source.ensure_tested()
    changes = {key: value for key, value, where in resolved.values() if where.startswith("command line")}
    changes = {key: value for key, value in changes.items() if key in leaves(app.kind.model)}
    before = pinned
    pinned = app.kind.forked(before, changes, resolved.workload, resolved.path(settings.data_dir))
    differing = {one.key: one.mine for one in difference(before, pinned)}
    refit = app.kind.refit(differing, pinned)
    change = Refitted(refit, config_hash(pinned)) if refit else None
    head, origin = copied(app, resolved, parent, source.checkpoints, Names(settings.project, to), step, change)
    made = begin_run(
        source, settings.project, to, pinned, new=True, ephemeral=True, init=True, origin=origin, head=head
    )
    if not made.begun:
        raise _taken(to)
    document = {"schema": "relay.fork/1", "run": to, "from_run": settings.run, "step": head.step}
    given = [text for text in overrides or () if text.lstrip("+").partition("=")[0] in changes]
    how = " with its weights and moments and a fresh carry" if change else ""
    text = f"Run {to} begins at step {head.step:,} of {settings.run}{how}: {command('run', to, *given)}"
    if any(key.startswith("data.") for key in differing):
        text += f"\nIts validation rows may be rows that {settings.run} trained on: judge it by its test rows."
    emit(as_json, document, text)


def parent_of(resolved: Resolved[BaseModel], stores: Pair) -> tuple[Opened, dict[str, Any]]:
    """The run to fork from and its pinned settings, though its ledger has lost an entry. Raises BadData (65) else."""
    settings = resolved.settings
    try:
        opened = require_run(stores, settings.project, settings.run)
        return opened, opened.ledger.genesis().config
    except BadData as error:
        found = salvaged_run(stores, settings.project, settings.run)
        if found is None:
            raise
        say(f"{error}\nForking from what slot {found.view.entry.seq} says, the newest entry that can be read.")
        return found, pinned_config(found.ledger)


def copied(
    app: App,
    resolved: Resolved[BaseModel],
    parent: Opened,
    target: Store,
    names: Names,
    step: int | None,
    change: Refitted | None,
) -> tuple[Checkpoint, Origin]:
    """Head and origin of the fork: a retained checkpoint, or one that only this machine has. Raises BadData (65)."""
    settings, view = resolved.settings, parent.view
    branch = Branch(target, names, app.runtime.token(), relay.__version__)
    outbox = outbox_of(resolved.path(settings.sync_dir) / settings.project / settings.run, view.state.run_id)
    here = {packed.step: packed for packed in only_here(outbox, view.state)}
    if step in here and step not in {c.step for c in view.state.undamaged}:
        with tempfile.TemporaryDirectory(prefix="trm-relay-") as scratch, showing(say, app.runtime) as show:
            return copy_unsent(view, here[step], outbox, branch, Path(scratch), show, change)
    try:
        chosen = choose(view.state, step)
    except BadData as error:
        only = f" This machine alone also has {', '.join(f'{n:,}' for n in here)}." if here else ""
        raise BadData(f"{error}{only}") from error
    with tempfile.TemporaryDirectory(prefix="trm-relay-") as scratch, showing(say, app.runtime) as show:
        return copy_checkpoint(parent.ledger, view, chosen.key, branch, Path(scratch), show, change)


def _taken(name: str) -> BadConfig:
    return BadConfig(f"There is a run {name} already. Choose another name with --to.")


def stop(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    note: Annotated[str, typer.Option(help="A line for whoever is training.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Ask the session that holds the lease to commit and hand off; it reads this with its next heartbeat."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    opened, stores = require(app, resolved, read_only=False)
    holder = opened.view.state.holder
    if holder is not None:
        request_stop(stores.ledger, opened.names, holder.epoch, redact(note, secrets_of(app.environ)))
    text = (
        f"Asked {holder.account} (epoch {holder.epoch}) to stop." if holder else "Nobody is training; nothing to stop."
    )
    emit(as_json, {"schema": "relay.stop/1", "asked": holder.account if holder else None}, text)


def resume(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Yes, train on although the same failure came twice.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a halted run train again."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    opened, stores = require(app, resolved, read_only=False)
    refuse_resting(opened.view.state)
    halted = opened.view.state.halted
    if halted is not None:
        if not anyway:
            raise UsageError(f"The run is halted: {halted} If you have changed that, say resume --anyway.")
        stores.ensure_tested()
        change = Resume(why=f"resume --anyway by {resolved.settings.account}")
        opened.ledger.append("resume", lambda _: change, session=app.session, account=None)
    text = "The run may train again." if halted is not None else "The run is not halted."
    emit(as_json, {"schema": "relay.resume/1", "was_halted": halted is not None}, text)
