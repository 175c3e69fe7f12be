"""Computes the state of an account from its declared state, lease, confirmation and quota. Reads no clock or store.

| state | set | ends |
|---|---|---|
| ready | `accounts mark ID ready` | |
| active | it holds an unexpired lease, in any run | with the lease |
| cooling | its hours are used, as measured, read or declared | at the reset |
| paused | `accounts pause` | by hand, or at `--until` |
| quota_exceeded | the provider refused a session | at the next reset, at `--until`, or by hand |
| blocked | the provider suspended it | by hand only |
| damaged | its object is missing or changed in the store | with `register ID LABEL`, or the object |
| unconfirmed | its provider requires a confirmation for the run, and it is missing | with `accounts confirm ID` |
| retired | its person has left; it counts for the policy for ever | by hand |
| forgotten | its person wants nothing kept | when that person registers it again |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relay.core.ledger.registry import Row
from relay.people.quota import Quota

ENDLESS = ("blocked", "retired", "forgotten")
"""States that only a person can end."""


class Why(StrEnum):
    """The reason for an account's state."""

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
    """When it ends by itself (store's clock); None if by hand or with the lease."""
    why: Why | None = None
    """None for a ready account."""


def effective(
    row: Row,
    quota: Quota | None,
    training: bool,
    now: float,
    *,
    confirmed: bool = True,
    readable: bool = True,
) -> Effective:
    """The state at `now` (unix seconds, store's clock).

    Checked in this order: a lease, an unreadable object, the declared state, a missing confirmation, the hours.
    `confirmed`: whether the confirmation was given or is not required.
    """
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
