"""Retirement and deletion broken in one place each (P8)."""

from __future__ import annotations

from typing import Any

from relay.core.checkpoint import collect, retention
from relay.core.checkpoint.collect import Housekeeper
from relay.core.checkpoint.retention import FileVerdict, Keep
from relay.core.ledger import keeping, rules
from relay.core.ledger.state import RunState
from tests.simulation.mutations.base import Patches, mutation, patch, rule
from tests.simulation.mutations.scenes import (
    damaged_manifest,
    holder_of_old_view,
    hours_on_one_table,
)


@mutation("delete-before-retire", "P8: files are deleted first, then their checkpoint is retired", "I8: ")
def _delete_before_retire() -> Patches:
    def retire(keeper: Housekeeper) -> None:
        going = set(retention.to_retire(keeper.lease.state, keeper.keep))
        for stat in list(keeper.store.list(keeper.names.checkpoints)):
            place = keeper.names.parse_checkpoint(stat.name)
            if place and place[:2] in going:
                keeper.store.delete(stat.ref)
        real(keeper)

    real = Housekeeper._retire
    return [patch(Housekeeper, "_retire", retire)]


@mutation("delete-newest-epoch", "P8: files of the newest epoch are deleted unretired", "P8: ", "I8: ", pinned=4)
def _delete_newest_epoch() -> Patches:
    return [patch(retention, "_unneeded", _whatever_is_old)]


def _whatever_is_old(state: RunState, stat: Any, key: Any, now: float, short_of_space: bool) -> FileVerdict:
    """The rule without its second half: neither retired nor of an epoch that is over."""
    return FileVerdict(stat, now - stat.modified >= retention.GRACE_S or short_of_space, "over")


@mutation(
    "old-view",
    "P8: deletion goes by the view of the session's first look, unread since",
    scene=holder_of_old_view,
    covered_by="what a view allows stays allowed for ever: stale views, zombies and half a clean-up are harmless",
)
def _old_view() -> Patches:
    return [patch(Housekeeper, "_collect", _by_the_first_view(Housekeeper._collect))]


@mutation(
    "old-view-newest-epoch",
    "P8: by an old view, which lets go whatever it does not retain",
    "I8: ",
    "P8: ",
    scene=holder_of_old_view,
)
def _old_view_newest_epoch() -> Patches:
    return [*_old_view(), patch(retention, "_unneeded", _whatever_is_old)]


def _by_the_first_view(real: Any) -> Any:
    first: dict[int, RunState] = {}

    def collect(keeper: Housekeeper, short_of_space: bool) -> None:
        old = first.setdefault(keeper.lease.epoch, keeper.lease.state)
        with patch(type(keeper.lease), "refresh", lambda _: old):
            real(keeper, short_of_space)

    return collect


@mutation(
    "zombie-deletes",
    "P5: a session whose lease was lost deletes on without reading the tail",
    scene=holder_of_old_view,
    covered_by="the same promise of P8; re-reading only spares it useless work",
)
def _zombie_deletes() -> Patches:
    def collect(keeper: Housekeeper, short_of_space: bool) -> None:
        keeper.still_ours = lambda: True
        with patch(type(keeper.lease), "refresh", lambda lease: lease.view.state):
            real(keeper, short_of_space)

    real = Housekeeper._collect
    return [patch(Housekeeper, "_collect", collect)]


@mutation("no-grace", "P8: readers get no hour between retire and deletion", "P8: ", pinned=8)
def _no_grace() -> Patches:
    return [patch(retention, "GRACE_S", 0.0), patch(collect, "GRACE_S", 0.0)]


@mutation(
    "unread-manifest",
    "P8: files go although a retained manifest cannot be verified",
    "P8: ",
    "I8: ",
    scene=damaged_manifest,
)
def _unread_manifest() -> Patches:
    class Sure(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            return True

    real = retention.decide_files

    def judge(state: Any, names: Any, listed: Any, manifests: Any, now: float, **more: Any) -> Any:
        return real(state, names, listed, Sure(manifests), now, **more)

    return [patch(retention, "decide_files", judge)]


@mutation(
    "retires-too-much",
    "P8: the holder wants to keep nothing but the head",
    covered_by="the rules refuse to retire the head, the best and the newest two; without them: `retires-newest-two`",
)
def _retires_too_much() -> Patches:
    return [patch(collect, "to_retire", lambda state, _: tuple(c.key for c in state.retained if c != state.head))]


@mutation("retires-newest-two", "P8: the same, and the rules let it", "P8: ")
def _retires_newest_two() -> Patches:
    return [*_retires_too_much(), patch(keeping, "KEPT_CHECKPOINTS", 1)]


@mutation("retires-head", "P8: the head itself is retired", "retire: the head", "P8: ")
def _retires_head() -> Patches:
    def retire(state: RunState, change: Any, by: Any) -> RunState:
        going = set(change.retire)
        after = real(state.model_copy(update={"head": None, "best": None}), change, by)
        return after.model_copy(update={"head": state.head, "best": None if state.best in going else state.best})

    def everything(state: RunState, _: Keep) -> tuple[Any, ...]:
        return tuple(c.key for c in state.retained)

    real = rules._RULES["retire"]
    return [rule("retire", retire), patch(keeping, "KEPT_CHECKPOINTS", -99), patch(collect, "to_retire", everything)]


@mutation(
    "retires-a-table", "P8: a checkpoint goes although retained ones borrow from it", "I8: ", scene=hours_on_one_table
)
def _retires_a_table() -> Patches:
    def alone(state: RunState) -> RunState:
        kept = tuple(c.model_copy(update={"base": None}) for c in state.retained)
        head = state.head and state.head.model_copy(update={"base": None})
        return state.model_copy(update={"retained": kept, "head": head})

    def retire(state: RunState, change: Any, by: Any) -> RunState:
        after = real(alone(state), change, by)
        left = {c.key for c in after.retained}
        return after.model_copy(
            update={"head": state.head, "retained": tuple(c for c in state.retained if c.key in left)}
        )

    def judge(state: RunState, names: Any, listed: Any, manifests: Any, now: float, **more: Any) -> Any:
        own = {key: manifest.model_copy(update={"files": ()}) for key, manifest in manifests.items()}
        return real_judge(state, names, listed, own, now, **more)

    real, real_judge = rules._RULES["retire"], retention.decide_files
    return [
        rule("retire", retire),
        patch(collect, "to_retire", lambda state, keep: retention.to_retire(alone(state), keep)),
        patch(RunState, "bases", set()),
        patch(retention, "decide_files", judge),
    ]
