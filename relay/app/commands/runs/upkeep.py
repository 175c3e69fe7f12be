"""`init`, `invite`, `stop`, `unhalt`, `gc`: begin and maintain a run; a person starts each on purpose."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from pydantic import BaseModel

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, target_of
from relay.app.commands.joining import run_target
from relay.app.commands.sessions.opening import without_training
from relay.app.commands.stores import addresses_of
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.invitation import PROJECT, document, text
from relay.app.messages.wording import duration
from relay.app.redact import redact
from relay.app.views.clearingtext import document_of, grouped, text_of
from relay.core.checkpoint.retention import going
from relay.core.errors import UsageError, store_errors
from relay.core.lease.heartbeat import newest_sign, request_stop, sign_of_life
from relay.core.ledger.atrest import refuse_resting, stopped
from relay.core.ledger.changes import Resume
from relay.core.ledger.state import Holder, RunState
from relay.core.names import Names
from relay.core.runs.archive import clear, decide
from relay.core.runs.opening import open_run, record
from relay.core.settings.config import Resolved
from storage.base import Store, make_store
from storage.selftest import self_test


@subcommand("overrides run config ephemeral")
def init(call: Call) -> Answer:
    """Begin a run, and a store that has not begun; prints the address to give to the others."""
    app, resolved = call.app, call.resolved
    _ = resolved.workload  # of a new run, before a store is made for it
    if stores := made(resolved):
        resolved = call.settle(stores)
    opening, settings = without_training(app, resolved), resolved.settings
    known = open_run(opening.stores, settings.project, settings.run)  # refuses another store (78)
    if known:
        opening.join(known)
        opening.check()
    for store in opening.stores.both:
        self_test(store, token=app.runtime.token, sleep=app.runtime.sleep)
        record(store)
    opened = opening.begin(opening.workload(target_of(app, opening.resolved, None)), init=True)
    state = opened.view.state
    address, second = addresses_of(resolved, state)
    say(f"A message to invite somebody with: {command('invite', state.run)}")
    document = {"schema": "relay.init/1", "run": state.run, "begun": opened.begun, "address": address}
    return Answer({**document, "checkpoint_address": second}, addresses(address, second))


def made(resolved: Resolved[BaseModel]) -> dict[str, object]:
    """Create the stores that have no address yet. Returns settings with all addresses, or {}. Raises StoreError."""
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
    """Return the settings for other participants: one address, or both if there are two stores."""
    if ledger == checkpoints:
        return f"Give this address to the others, as RELAY_STORE or storage.url:\n{ledger}"
    both = f"RELAY_LEDGER_STORE={shlex.quote(ledger)}\nRELAY_CHECKPOINT_STORE={shlex.quote(checkpoints)}"
    return f"Give both addresses to the others, as these variables:\n{both}"


@subcommand()
def stop(call: Call, note: Annotated[str, typer.Option(help="A line for whoever is training.")] = "") -> Answer:
    """Ask the session that holds the lease to commit and hand off; it reads this with its next heartbeat."""
    opened, stores = call.require(read_only=False)
    holder = opened.view.state.holder
    if holder is not None:
        request_stop(stores.ledger, opened.names, holder.epoch, redact(note, call.app.secrets))
    text = asked(holder, opened.names, stores.ledger) if holder else "No session is training; nothing to stop."
    return Answer({"schema": "relay.stop/1", "asked": holder.account if holder else None}, text)


def asked(holder: Holder, names: Names, store: Store) -> str:
    """Report who was asked to stop, and how long that session has been silent. Raises StorageUnreachable (69)."""
    text = f"Asked {holder.account} (epoch {holder.epoch}) to stop."
    with store_errors(store):
        now = store.now()
        silent = now - newest_sign(holder.since, sign_of_life(store, names, holder.epoch, holder.beat), now)
    if silent <= holder.ttl_s:
        return f"{text} It reads this with its next heartbeat, commits and hands off."
    return f"{text} It has given no sign of life for {duration(silent)}: if it is gone, the next session takes over."


@subcommand()
def unhalt(
    call: Call,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Yes, train on although the same failure came twice.")
    ] = False,
) -> Answer:
    """Let a halted run train again."""
    opened, stores = call.require(read_only=False)
    refuse_resting(opened.view.state)
    halted = opened.view.state.halted
    if halted is not None:
        if not anyway:
            raise UsageError(f"The run is halted: {halted} If you have changed that, say unhalt --anyway.")
        stores.ensure_tested()
        change = Resume(why=f"resume --anyway by {call.settings.account}")

        def cleared(state: RunState) -> Resume:
            refuse_resting(state)  # the run may have been archived since the first check
            return change

        opened.ledger.append("resume", cleared, session=call.app.session, account=None)
    text = "The run may train again." if halted is not None else "The run is not halted."
    text += f" To train it: `{command('run', call.settings.run)}`"
    return Answer({"schema": "relay.resume/1", "was_halted": halted is not None}, text)


@subcommand("run config")
def invite(call: Call) -> Answer:
    """Print a message that invites somebody: the address and the commands to copy, no secret."""
    opened, stores = call.require()
    state = opened.view.state
    refuse_resting(state)
    if error := stopped(state):
        say(f"{paragraph(error)} Whoever is invited cannot train before that.")
    ledger, second = addresses_of(call.resolved, state)
    where = {"RELAY_LEDGER_STORE": ledger, "RELAY_CHECKPOINT_STORE": second}
    where = {"RELAY_STORE": ledger} if ledger == second else where
    project = {name: value for name, value in call.resolved.variables.items() if name == PROJECT}
    invitation = document(state.run, project | where)
    target = run_target(call.app, call.resolved, opened, stores.ledger)
    if state.step >= target > 0:
        raising = command("run", state.run, "--target-steps", "N")
        say(f"Run {state.run} has reached its target. Raise it for everybody first: `{raising}`.")
    lines = [invitation["shell"], invitation["notebook"]]
    return Answer(invitation, text(state.run, state.step, target, lines, where))


@subcommand()
def gc(
    call: Call,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; writes nothing.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The store is full: do not give readers of retired files their hour.")
    ] = False,
) -> Answer:
    """Delete the stored files that no retained checkpoint needs. Sessions do this by themselves."""
    opened, stores = call.require(read_only=dry_run)
    state, judged = decide(opened, stores, full)
    if not dry_run:
        judged = clear(judged, opened.names, stores, state.epoch)
    groups, files = grouped(judged, opened.names), [{"name": stat.name, "bytes": stat.size} for stat in going(judged)]
    local = dry_run and stores.checkpoints.clock_is_local
    text = text_of(groups, done=not dry_run, local_clock=local)
    return Answer(document_of(groups, files, done=not dry_run), text)
