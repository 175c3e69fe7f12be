"""Validation of a state that a stranger wrote, and its queries about checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.ledger.frozen import MAX_FURTHER, MAX_INTERVALS
from relay.core.ledger.state import RunState, Usage
from tests.core.making import checkpoint
from tests.core.rulings import new

LENDER, PLAIN = checkpoint(10, 1, base=(10, 1)), checkpoint(20, 1)
BORROWER = checkpoint(30, 1, base=LENDER.key)


def read(**fields: Any) -> RunState:
    return RunState.model_validate_json(new().model_copy(update=fields).model_dump_json())


def test_as_much_usage_as_the_rules_let_in_is_a_state_and_more_is_none() -> None:
    kinds, spans = ((0, 1, 1),), ((0, 1),)
    full = Usage(by_gpu=kinds * (MAX_FURTHER + 1), intervals=spans * MAX_INTERVALS)
    assert read(gpus=("T4",), usage={"ana": full}).usage["ana"] == full
    with pytest.raises(ValueError, match="intervals"):
        read(usage={"ana": full, "ben": Usage(intervals=spans)}, gpus=("T4",))
    with pytest.raises(ValueError, match="further kinds"):
        read(usage={"ana": full, "ben": Usage(by_gpu=kinds * 2)}, gpus=("T4",))


def test_files_are_borrowed_from_a_retained_checkpoint_that_lends_them() -> None:
    assert read(retained=(LENDER, BORROWER)).bases == {LENDER.key}
    for lost in ((BORROWER,), (LENDER.model_copy(update={"base": None}), BORROWER)):
        with pytest.raises(ValueError, match="borrows"):
            read(retained=lost)


def test_what_a_machine_must_hold_of_a_borrower_is_its_own_files_and_the_lender_s() -> None:
    state = read(retained=(LENDER, PLAIN, BORROWER))
    assert [state.whole_bytes(c) for c in state.retained] == [1000, 1000, 2000]
