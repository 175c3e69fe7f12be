"""`invite`: a message to send to somebody who may join a run; writes nothing."""

from __future__ import annotations

import typer

from relay.app.commands.common import ConfigOption, JsonOption, RunOption, emit, say, surroundings, target_of
from relay.app.commands.stores import accounts, addresses_of, require
from relay.app.messages.errors import paragraph
from relay.app.messages.invitation import commands, document, free_id, text
from relay.core.ledger.atrest import refuse_resting, stopped


def invite(
    context: typer.Context, run: RunOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print a message that invites somebody: the address and the commands to copy, no secret."""
    app = surroundings(context)
    resolved = app.settle(config=config, flags={"run": run})
    opened, stores = require(app, resolved)
    state = opened.view.state
    refuse_resting(state)
    if error := stopped(state):
        say(f"{paragraph(error)} Whoever is invited cannot train before that.")
    ledger, second = addresses_of(resolved, state)
    where = {"RELAY_LEDGER_STORE": ledger, "RELAY_CHECKPOINT_STORE": second}
    where = {"RELAY_STORE": ledger} if ledger == second else where
    account = free_id(accounts(stores).ids())
    words = commands(state.run, account, where)
    target = target_of(app, resolved, state)
    if state.step >= target > 0:
        say(f"Run {state.run} has reached its target: whoever is invited needs a higher one, `--target-steps N`.")
    message = text(state.run, state.step, target, words, where)
    emit(as_json, document(state.run, account, words, where), message)
