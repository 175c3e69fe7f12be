"""Gives a session's lease back within the time that is left; decides nothing."""

from __future__ import annotations

from relay.core.errors import Fenced, RelayError
from relay.core.events import Trouble
from relay.core.ledger.changes import Release
from relay.core.session.assembly import Parts

RELEASE_S = 15.0
"""Longest wait for the release."""


def give_back(parts: Parts, reason: str) -> bool:
    """Give the lease back, within the time that is left; False if that is not known to be so: it runs out by itself."""
    ctx, lease = parts.ctx, parts.lease
    done, landed = ctx.runtime.event(), ctx.runtime.event()

    def body() -> None:
        change = Release(reason=reason, next=ctx.successor(lease.state), seconds=lease.seconds)
        try:
            lease.append("release", lambda state: change, give_up=done.is_set)
            landed.set()
        except Fenced:  # there is nothing to give back, which the session's end tells
            pass
        except RelayError as error:
            ctx.listener.event(Trouble("release", error, expires_s=lease.ttl_s))
        done.set()

    ctx.runtime.spawn("release", body)
    left = parts.budget.deadline - ctx.runtime.monotonic() - 0.5
    done.wait(0.0 if ctx.signal.at_once else max(1.0, min(RELEASE_S, left)))
    done.set()
    return landed.is_set()
