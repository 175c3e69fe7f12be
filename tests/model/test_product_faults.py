"""The search asks the product's own rules, so a fault put into them is found as a broken invariant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relay.core.checkpoint.retention import decide_files
from relay.core.ledger import keeping, rules
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.state import Holder, RunState
from tests.model import product
from tests.model.progress import Progress
from tests.model.protocol import Protocol
from tests.model.search import Found, search
from tests.model.step import Bounds
from tests.model.world import NO_FAULTS, Faults


@pytest.fixture(autouse=True)
def fresh_answers() -> Iterator[None]:
    """Nothing that a broken product said is remembered."""
    product.forget()
    yield
    product.forget()


def explored(faults: Faults = NO_FAULTS) -> Found:
    model = Protocol(Bounds(sessions=2, epochs=3, step=3, faults=faults))
    return search(model, Progress(model))


def test_rules_that_let_anybody_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(state: RunState, by: By, kind: str) -> Holder:
        if state.holder is None:
            raise Refused(kind)
        return state.holder

    monkeypatch.setattr(keeping, "held", anybody)
    monkeypatch.setattr(rules, "held", anybody)
    assert "I5" in str(explored())


def test_rules_that_keep_one_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "KEPT_CHECKPOINTS", 1)
    monkeypatch.setattr(product, "to_retire", lambda state, keep: tuple(c.key for c in state.retained[:-1]))
    assert "P8" in str(explored())


def test_a_retention_that_the_rules_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "to_retire", lambda state, keep: tuple(c.key for c in state.retained))
    assert "progress" in str(explored())


def test_a_cleaning_that_takes_the_newest_epoch_for_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(state: RunState, *args: Any, **more: Any) -> Any:
        return decide_files(state.model_copy(update={"epoch": state.epoch + 1}), *args, **more)

    monkeypatch.setattr(product, "decide_files", hasty)
    assert "I3" in str(explored(Faults(answers=1)))


def test_a_cleaning_that_forgets_what_is_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(state: RunState, names: Any, listed: Any, manifests: Any, now: float, **more: Any) -> Any:
        return decide_files(state.model_copy(update={"retained": state.retained[1:]}), names, listed, {
            key: manifest for key, manifest in manifests.items() if key != state.retained[0].key
        }, now, **more)  # fmt: skip

    monkeypatch.setattr(product, "decide_files", blind)
    assert "I8" in str(explored())
