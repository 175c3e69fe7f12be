"""Whose turn it is and what to send them; proposes only, and knows no provider rules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.advice import command
from relay.redact import printable, redact
from relay.status import AccountRow, View
from relay.wording import duration


@dataclass(frozen=True)
class Turn:
    """A proposal."""

    account: AccountRow | None
    why: str
    command: str
    message: str

    def document(self) -> dict[str, Any]:
        """relay.next/1."""
        return {
            "schema": "relay.next/1",
            "account": self.account.id if self.account else None,
            "label": printable(self.account.label) if self.account else None,
            "why": self.why,
            "command": self.command or None,
            "message": self.message,
        }


def propose(view: View, stores: Mapping[str, str]) -> Turn:
    """Among the ready accounts, the one that has given least time; `stores` by variable are what others must set."""
    if view.phase == "halted":
        return Turn(None, "the run is halted", "", f"Run {view.run} is halted: {view.state and view.state.halted}")
    if view.step >= view.target > 0:
        return Turn(
            None, "the target is reached", "", f"Run {view.run} has reached its target of {view.target:,} steps."
        )
    ready = [row for row in view.accounts if row.ready]
    if not ready:
        why = "no account is ready" if view.accounts else "no account is registered"
        return Turn(None, why, "", f"{why.capitalize()}: {command('register account_1 LABEL')}")
    chosen = least(ready)
    among = f"the least of {len(ready)} ready accounts" if len(ready) > 1 else "the only account that is ready"
    why = f"{duration(chosen.seconds)} given so far, {among}"
    words = command_for(chosen.id, view.run, stores)
    return Turn(chosen, why, words, message_for(view, chosen, words))


def least(rows: Sequence[AccountRow]) -> AccountRow:
    """Fewest seconds, then sessions, then the id."""
    return min(rows, key=lambda row: (row.seconds, row.sessions, row.id))


def command_for(account: str, run: str, stores: Mapping[str, str]) -> str:
    """What the person types in the project's folder. Secrets in an address are masked, never passed on."""
    where = "".join(f"{name}={shlex.quote(redact(address))} " for name, address in stores.items())
    return f"ACCOUNT_ID={account} RUN_NAME={run} {where}bash multi_account_workflow.sh"


def message_for(view: View, row: AccountRow, command: str) -> str:
    """Plain text to send."""
    percent = 100.0 * view.step / view.target if view.target else 0.0
    wait = (
        f" {view.holder.account} is training right now; start when that ends." if view.training and view.holder else ""
    )
    return (
        f"Hello {printable(row.label) or row.id}: run {view.run} stands at step {view.step:,} of {view.target:,} "
        f"({percent:.1f}%) and it is your turn.{wait} In the project's folder:\n  {command}"
    )
