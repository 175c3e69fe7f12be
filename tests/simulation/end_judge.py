"""The judge of how commands end: their messages have to be true, and each failure needs its cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relay.core.checkpoint.restore import NoneLoads
from relay.core.errors import RelayError, StoreDamaged
from relay.core.ledger.atrest import RunHalted
from relay.core.ledger.ledger import EntryLost
from relay.core.session.context import Outcome
from relay.core.session.ending import NotSent
from relay.core.session.report import Recorded
from storage.base import Corrupt
from tests.core.lab import said
from tests.simulation.actor import Actor

if TYPE_CHECKING:
    from tests.simulation.fleet import Command
    from tests.simulation.oracle import Oracle, Run, Slot


class EndJudge:
    """Compares the messages of a process with the contents of the store."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.require = oracle, oracle.require
        self.entries_lost = False
        """Whether this world has lost an entry, and people are told so."""

    def ended(self, command: Command, outcome: Outcome) -> None:
        """Checks the final report of a session that is over."""
        actor, code = command.actor, int(outcome.exit_code)
        run = self.oracle.runs["toys", command.run]
        told = f"{actor.name} ends with {code}: {said(outcome)}"
        failure = outcome.failure
        true = {step for step, until in run.steps if until >= actor.began or actor.misread}
        known = outcome.durable_step is None or outcome.durable_step in true
        self.require(known, f"it calls step {outcome.durable_step} durable; {told}")
        passed = self._passed_over(run, actor, outcome.durable_step)
        self.require(not passed, f"P2: it calls step {outcome.durable_step} durable, and has read otherwise; {told}")
        if outcome.unsent is not None:
            self.require(_kept(outcome.unsent), f"P6: what it calls kept is not there; {told}")
        if isinstance(failure, NotSent) and outcome.unsent is None:
            self.require(self._followed_here(run, actor), f"P6: nobody took its step over on {actor.machine}; {told}")
            self.require(code != 74, f"P5: it was superseded; {told}")
        if code == 0 and command.order.verb == "run":
            self.require(outcome.durable_step >= command.fleet.pace.target, f"the target is not reached; {told}")
        recorded = code == 65 and isinstance(failure, Recorded)  # its entry came before the others'
        if code in (65, 69, 74) and not recorded and not actor.misread:
            self.require(not self._has_read_its_end(run, actor), f"P5: it had read that others took its lease; {told}")
        misled = actor.misread or self.entries_lost
        if code == 65:
            self.require(misled or isinstance(failure, (RunHalted, Recorded)) or _damage(failure), told)
        if _damage(failure):
            self.require(misled or bool(run.damaged), f"P7: nothing was ever damaged; {told}")
        if recorded:
            self.require(self._recorded(run, actor, "non-finite"), f"P10: nothing is recorded; {told}")
        if code == 76:
            self.require(self._superseded(run, actor), f"nobody took its lease; {told}")
        if code == 69:
            failed = actor.troubled or actor.disk_full_at > float("-inf")
            self.require(failed, f"nothing went wrong with the store or its own disk; {told}")
        self._nothing_lost(actor, failure, told)

    def _passed_over(self, run: Run, actor: Actor, step: int | None) -> bool:
        """Whether it knows the entry that passed over every commit of that step."""
        slots, chain = run.slots, run.chain
        if step is None or actor.misread or any(slots[seq].state["step"] == step for seq in chain):
            return False
        of_step = [key for key in run.kept if key[0] == step]
        return any(actor.knows(run.slot_name(run.kept[key]), _newest(run)) for key in of_step)

    def crashed(self, command: Command) -> None:
        """The training loop has raised; P10 wants that on record wherever the store could be reached."""
        actor, run = command.actor, self.oracle.runs["toys", command.run]
        excused = actor.troubled or self._superseded(run, actor)
        self.require(excused or self._recorded(run, actor, "crash"), f"P10: no record of the crash of {actor.name}")

    def _recorded(self, run: Run, actor: Actor, cause: str) -> bool:
        mine = {epoch for epoch, holder in run.holders.items() if holder is actor}
        return any(one["cause"] == cause and one["epoch"] in mine for one in run.state["incidents"])

    def refused(self, actor: Actor, error: RelayError) -> None:
        """A command was refused before it did anything."""
        self._nothing_lost(actor, error, f"{actor.name}: {error}")

    def _superseded(self, run: Run, actor: Actor) -> bool:
        mine = [epoch for epoch, holder in run.holders.items() if holder is actor]
        archived = any((run.name, epoch) in self.oracle.rest.ended for epoch in mine)
        passed = bool(mine) and not any(slot.by is actor and slot.kind == "lease" for slot in self._counting(run))
        return archived or passed or (bool(mine) and run.state["epoch"] > mine[0])

    def _counting(self, run: Run) -> list[Slot]:
        return [run.slots[seq] for seq in run.chain]

    def _has_read_its_end(self, run: Run, actor: Actor) -> bool:
        """Whether it knows the entry by which others took its lease."""
        mine = {epoch for epoch, holder in run.holders.items() if holder is actor}
        return any(actor.knows(run.taken[epoch], _newest(run)) for epoch in mine & run.taken.keys())

    def _followed_here(self, run: Run, actor: Actor) -> bool:
        """Whether a later epoch has been held on its machine, so that a session there could have moved its files."""
        mine = min(epoch for epoch, holder in run.holders.items() if holder is actor)
        return any(epoch > mine and holder.machine == actor.machine for epoch, holder in run.holders.items())

    def _nothing_lost(self, actor: Actor, failure: RelayError | None, told: str) -> None:
        """In these worlds no entry is ever lost or forged; only a process that misread one may report so."""
        lost = isinstance(failure, EntryLost) and not self.entries_lost
        self.require(actor.misread or not lost, f"an entry is called lost; {told}")


def _newest(run: Run) -> str:
    """The name of the newest entry."""
    return run.slot_name(len(run.digests) - 1)


def _damage(failure: RelayError | None) -> bool:
    """Whether the message reports a damaged checkpoint."""
    corrupt = isinstance(failure, StoreDamaged) and isinstance(failure.error, Corrupt)
    return corrupt or isinstance(failure, NoneLoads)


def _kept(folder: Path) -> bool:
    """Whether a whole checkpoint lies there at this moment, under that very name."""
    return folder.with_name(f"{folder.name}.json").is_file() and (folder / "state.json").is_file()
