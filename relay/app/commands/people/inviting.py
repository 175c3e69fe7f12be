"""`invite`: a message to send to somebody who may join a run; writes nothing."""

from __future__ import annotations

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, target_of
from relay.app.commands.stores import accounts, addresses_of
from relay.app.messages.errors import paragraph
from relay.app.messages.invitation import commands, document, free_id, text
from relay.core.ledger.atrest import refuse_resting, stopped


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
    account = free_id(accounts(stores).ids())
    words = commands(state.run, account, where)
    target = target_of(call.app, call.resolved, state)
    if state.step >= target > 0:
        say(f"Run {state.run} has reached its target: whoever is invited needs a higher one, `--target-steps N`.")
    message = text(state.run, state.step, target, words, where)
    return Answer(document(state.run, account, words, where), message)
