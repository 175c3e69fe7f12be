"""Deletes this machine: asks until the provider reports it gone, and shouts while it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from relay.app.guard.rented import Machine
from relay.core.clock import Runtime
from relay.core.errors import BadConfig

FIRST_S, MOST_S = 2.0, 60.0
"""Shortest and longest wait between two attempts; it doubles."""
STILL_S = 180.0
"""A machine that is reported gone may run that much longer."""
PATIENCE_S = 6 * 3600.0
"""Attempts go on for that long."""


class StillRuns(BadConfig):
    """The machine could not be deleted. `machine`: its id."""

    def __init__(self, machine: Machine, hours: float, why: str) -> None:
        super().__init__(f"{machine.name} still runs, {hours:.1f} hours after its end: {why}.")
        self.machine, self.console = machine.name, machine.console


def end(
    machine: Machine, runtime: Runtime, tell: Callable[[str], None], cost: Callable[[], str] = lambda: ""
) -> NoReturn:
    """Delete the machine, on which this process runs: it returns only by an exception.

    cost: the money spent so far, for the lines. Raises StillRuns (78).
    """
    began, wait, accepted, gone_at = runtime.monotonic(), FIRST_S, False, None
    while True:
        asked = machine.delete()
        accepted |= asked.state == "accepted"
        seen = machine.look()
        gone = seen.state == "gone" or (accepted and asked.state == "missing")
        now = runtime.monotonic()
        if not gone:
            gone_at, why = None, f"{asked.text}; {seen.text}"
            loud = "" if asked.state == "accepted" and now - began < STILL_S else "MACHINE NOT DELETED: "
            tell(f"{loud}{machine.title}, {machine.name}: {why}. Trying again.{_by_hand(machine, loud)}{cost()}")
        elif gone_at is None:
            gone_at, why = now, "it is reported as deleted, and this process still runs there"
            tell(f"{machine.title} reports {machine.name} as deleted.{cost()}")
        elif now - gone_at >= STILL_S:
            tell(f"MACHINE STILL RUNS: {machine.title} reports {machine.name} as deleted.{_by_hand(machine)}{cost()}")
        if now - began >= PATIENCE_S:
            raise StillRuns(machine, (now - began) / 3600, why)
        runtime.sleep(max(wait, asked.wait_s, seen.wait_s))
        wait = min(2 * wait, MOST_S)


def _by_hand(machine: Machine, loud: str = "loud") -> str:
    return f" Delete it by hand: {machine.console}." if loud else ""
