"""Which state an account is in: what was declared of it, what ends by itself, what follows; reads no clock, no store.

| state | set | ends |
|---|---|---|
| ready | `accounts mark ID ready` | |
| active | it holds a lease that has not run out, in any run | with the lease |
| cooling | its hours are used, as measured, read or said | at the reset |
| paused | `accounts pause` | by hand, or at `--until` |
| quota_exceeded | the provider refused a session | at the next reset, at `--until`, or by hand |
| blocked | the provider suspended it | by hand only |
| damaged | its object is missing or changed in the store | with `register ID LABEL`, or the object |
| unconfirmed | its provider asks for its person's word for the run, and it is missing | with `accounts confirm ID` |
| retired | its person has left; it counts for the policy for ever | by hand |
| forgotten | its person wants nothing kept | when that person registers it again |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relay.core.ledger.registry import Row
from relay.people.quota import Quota

ENDLESS = ("blocked", "retired", "forgotten")
"""No time ends these."""


class Why(StrEnum):
    """What put an account into its state."""

    LEASE = "lease"
    UNREADABLE = "unreadable"
    """Its object is missing or was changed."""
    DECLARED = "declared"
    UNCONFIRMED = "unconfirmed"
    USED = "used"
    """Its hours."""


@dataclass(frozen=True)
class Effective:
    """The state now."""

    state: str
    until: float | None = None
    """When it ends by itself, store's clock; None: by hand, or with the lease."""
    why: Why | None = None
    """None: it is ready."""


def effective(
    row: Row,
    quota: Quota | None,
    training: bool,
    now: float,
    *,
    confirmed: bool = True,
    readable: bool = True,
) -> Effective:
    """The state at `now` (unix seconds, store's clock): training first, then whether its object can be read, what was
    declared, its person's word, the hours. `confirmed`: whether the word is given or not needed."""
    if training:
        return Effective("active", None, Why.LEASE)
    if not readable and row.state not in ENDLESS:
        return Effective("damaged", None, Why.UNREADABLE)
    until = None if row.state in ENDLESS else row.until
    if row.state != "ready" and (until is None or until > now):
        return Effective(row.state, until, Why.DECLARED)
    if not confirmed:
        return Effective("unconfirmed", None, Why.UNCONFIRMED)
    if quota is not None and quota.left_s <= 0:
        return Effective("cooling", quota.resets_at, Why.USED)
    return Effective("ready")
