"""The true states of the toy: every state that honest machines, or one that computes wrongly, can reach."""

from __future__ import annotations

import json

from tests.core.toy import first, hash_of, successor

Values = tuple[int, ...]
Key = tuple[int, int]

NAN: Values = (0, 0, 0, 0)
"""A state that is not finite; so is all that follows from it."""


def after(values: Values, step: int, impure: int) -> Values:
    """The state one step after the one at `step`, on a machine that errs by `impure`."""
    if values == NAN:
        return NAN
    moved = successor(values, step)
    return (moved[0] + impure, *moved[1:])


def advanced(values: Values, step: int, until: int, impure: int) -> Values:
    """The state at `until`."""
    for n in range(step, until):
        values = after(values, n, impure)
    return values


def stored(data: bytes | None) -> tuple[int, Values] | None:
    """Step and state in the bytes of a state.json; None for any other bytes."""
    try:
        content = json.loads(data or b"")
        return int(content["step"]), tuple(content["values"])
    except (ValueError, KeyError, TypeError):
        return None


__all__ = ["NAN", "Key", "Values", "advanced", "after", "first", "hash_of", "stored"]
