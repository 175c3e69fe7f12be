"""Makes states by the rules alone, for tests of them; knows no store."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import By, Commit, Lease, Refused, TookOver
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from tests.core.making import checkpoint, genesis, id_of

NOW = 1.7e9


def by(epoch: int, session: int = 1, account: str | None = "ana", at: float = NOW) -> By:
    return By(id_of(session), account, epoch, at)


def do(state: RunState | None, kind: str, change: BaseModel, who: By, voids: tuple[int, ...] = ()) -> RunState:
    before = state.model_dump_json() if state else None
    after = apply(state, kind, change.model_dump(mode="json"), who, voids)
    assert (state.model_dump_json() if state else None) == before, "the state before is never touched"
    assert RunState.model_validate_json(dumps(after.model_dump(mode="json"))) == after
    return after


def new() -> RunState:
    return do(None, "genesis", genesis(), by(0))


def leased(state: RunState, session: int = 1, account: str = "ana", at: float = NOW, **more: Any) -> RunState:
    gone = TookOver(epoch=state.epoch, reason="silent", seconds=50.0) if state.holder else None
    fields: dict[str, Any] = {"target_steps": 100, "took_over": gone} | more
    return do(state, "lease", Lease(**fields), by(state.epoch + 1, session, account, at))


def committed(state: RunState, *steps: int, metric: float | None = None, session: int = 1) -> RunState:
    for step in steps:
        change = Commit(checkpoint=checkpoint(step, state.epoch, metric=metric), seconds=float(step))
        state = do(state, "commit", change, by(state.epoch, session, state.holder.account if state.holder else None))
    return state


def refused(state: RunState | None, kind: str, change: BaseModel, who: By, match: str) -> None:
    with pytest.raises(Refused, match=match):
        apply(state, kind, change.model_dump(mode="json"), who)
