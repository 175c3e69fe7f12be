"""Measures how far this machine's wall clock is from a store's, and warns about it."""

from __future__ import annotations

from relay.app.messages.wording import duration
from relay.core.clock import Runtime
from storage.base import Store

MOST_S = 60.0
"""Larger differences cause a warning. Cloud storage refuses requests beyond 5 to 15 minutes."""


def skew(store: Store, runtime: Runtime) -> float | None:
    """Least number of seconds by which this machine's clock is ahead of the store's (behind if negative).

    None if the store reports this machine's own time. The request takes time, so the answer lies between two readings
    of the wall clock; only a difference beyond both counts. Raises StoreError.
    """
    return timed(store, runtime)[1]


def timed(store: Store, runtime: Runtime) -> tuple[float, float | None]:
    """The store's time in unix seconds, and `skew` from the same answer. Raises StoreError."""
    before = runtime.wall()
    now = store.now()
    after = runtime.wall()
    if store.clock_is_local:
        return now, None
    return now, min(0.0, after - now) if before <= now else max(0.0, min(before, after) - now)


def clock_warning(seconds: float | None) -> str | None:
    """The warning line; None if the clocks agree."""
    text = skew_text(seconds)
    return f"CLOCK: {text}. {ADVICE}" if text else None


def skew_text(seconds: float | None) -> str | None:
    """The difference in words; None if the clocks agree."""
    if seconds is None or abs(seconds) <= MOST_S:
        return None
    ahead = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {duration(abs(seconds))} {ahead} the store's"


ADVICE = (
    "Set this machine's clock (`timedatectl set-ntp true` on Linux; a new runtime on Colab or Kaggle). Cloud storage "
    "refuses wrong clocks, and the times in this machine's logs are wrong. Training, leases and usage are not "
    "affected: they use the store's clock."
)
