"""How far this machine's wall clock is from a store's, and what that means to people; decides nothing."""

from __future__ import annotations

from relay.app.messages.wording import duration
from relay.core.clock import Runtime
from storage.base import Store

MOST_S = 60.0
"""A clock that is further from the store's is worth a line. Cloud storage refuses requests from 5 to 15 minutes on."""


def skew(store: Store, runtime: Runtime) -> float | None:
    """Seconds by which this machine's clock is surely ahead of the store's (behind if negative).

    None if the store told this machine's own time. The question takes time, so the answer lies between two readings of
    the wall clock, and only what is beyond them counts. Raises StoreError.
    """
    return timed(store, runtime)[1]


def timed(store: Store, runtime: Runtime) -> tuple[float, float | None]:
    """The store's time, unix seconds, and `skew` by the same answer. Raises StoreError."""
    before = runtime.wall()
    now = store.now()
    after = runtime.wall()
    if store.clock_is_local:
        return now, None
    return now, min(0.0, after - now) if before <= now else max(0.0, min(before, after) - now)


def clock_warning(seconds: float | None) -> str | None:
    """The line for people; None if there is nothing to say."""
    text = skew_text(seconds)
    return f"CLOCK: {text}. {ADVICE}" if text else None


def skew_text(seconds: float | None) -> str | None:
    """What to say of it; None if there is nothing to say."""
    if seconds is None or abs(seconds) <= MOST_S:
        return None
    ahead = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {duration(abs(seconds))} {ahead} the store's"


ADVICE = (
    "Training, leases and usage go by the store's clock and do not mind. Set this machine's clock all the same "
    "(`timedatectl set-ntp true` on Linux; a new runtime on Colab or Kaggle): cloud storage refuses wrong clocks, and "
    "the times in its logs mislead."
)
