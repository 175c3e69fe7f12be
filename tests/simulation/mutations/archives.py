"""Archiving and deleting runs broken in one place each (docs/decisions/0013)."""

from __future__ import annotations

from relay.core.lease import blockers, lease
from relay.core.ledger import atrest, rules
from relay.core.ledger.changes import Archive, By
from relay.core.ledger.state import RunState
from relay.core.runs import archive
from relay.core.session import session
from tests.simulation.mutations.base import Patches, mutation, patch, rule


@mutation("no-day", "0013: a run may be deleted as soon as it is archived", "0013: .* was deleted .* s after", pinned=0)
def _no_day() -> Patches:
    return [patch(atrest, "WAIT_S", 0.0)]


@mutation("archived-trains", "0013: an archived run is trained", "0013: .* while .* is archived", pinned=17)
def _archived_trains() -> Patches:
    def nothing(*_: object) -> None: ...

    return [patch(rules, "_check_rest", nothing), patch(lease, "refuse_halted", nothing),
            patch(session, "refuse_halted", nothing)]  # fmt: skip


@mutation(
    "archive-keeps-holder", "0013: whoever held the lease still holds it", "0013: somebody still holds", pinned=10
)
def _archive_keeps_holder() -> Patches:
    def archive(state: RunState, change: Archive, by: By) -> RunState:
        return real(state, change, by).model_copy(update={"holder": state.holder})

    real = rules._archive
    return [rule("archive", archive)]


@mutation("archive-without-looking", "P5: a run is archived though its holder gives signs of life", "P5: ", pinned=5)
def _archive_without_looking() -> Patches:
    def dead(ledger: object, runtime: object, locks: object) -> object:
        def found(state: RunState) -> object:
            holder = state.holder
            return blockers._gone(holder, holder.since, "no sign of life") if holder else None

        return found

    return [patch(archive, "blocked_by", dead)]
