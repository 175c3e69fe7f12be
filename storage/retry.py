"""A store that repeats requests without an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.contract import Exists, Missing, Ref, Stat, Store, Throttled, Unavailable
from storage.wrapper import Wrapper

if TYPE_CHECKING:
    from tenacity import RetryCallState

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0

T = TypeVar("T")


class RetryStore(Wrapper):
    """Retries Unavailable and Throttled on every verb that may be repeated, with exponential back-off.

    It never retries put_if_absent: the log and `put_once` decide that, after they have read the object. `sleep` waits;
    `jitter` gives a number in [0, 1) that spreads clients over half of each wait. The last error is raised as it is.
    """

    def __init__(
        self, inner: Store, *, sleep: Callable[[float], None], jitter: Callable[[], float], attempts: int = 6
    ) -> None:
        super().__init__(inner)
        self._jitter = jitter
        self._attempts = attempts
        self._sleep = sleep

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._again(lambda: self.inner.put(name, data))

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._again(lambda: self.inner.put_new(name, data))

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._again(lambda: self.inner.get(ref, limit=limit))

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._again(lambda: self.inner.read_range(ref, start, length))

    def stat(self, ref: Ref) -> Stat:
        return self._again(lambda: self.inner.stat(ref))

    def delete(self, ref: Ref) -> None:
        self._again(lambda: self.inner.delete(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        """Continues after the last object when a listing breaks off; each object resets the number of attempts."""
        listing: Iterator[Stat] | None = None

        def following() -> Stat | None:
            nonlocal listing
            try:
                listing = listing or self.inner.list(prefix, after=after)
                return next(listing, None)
            except Unavailable:
                listing = None
                raise

        while (stat := self._again(following)) is not None:
            after = stat.name
            yield stat

    def now(self) -> float:
        return self._again(self.inner.now)

    def _again(self, ask: Callable[[], T]) -> T:
        return patiently(ask, sleep=self._sleep, jitter=self._jitter, attempts=self._attempts)


def put_once(
    store: Store,
    name: str,
    data: bytes,
    *,
    limit: int,
    sleep: Callable[[float], None],
    jitter: Callable[[], float],
    attempts: int = 4,
) -> bytes:
    """Store bytes under a free name, and return those that the name has then: ours, or another writer's.

    "Exists" and no answer prove nothing (P2): the name is read, and the same bytes are sent again if it is still free.
    Raises TooLong if the other bytes are longer than `limit`, Missing if stored bytes are not there, and the store's
    errors.
    """

    def once() -> bytes:
        lost: Unavailable | None = None
        try:
            store.put_if_absent(name, data)
        except Exists:
            pass  # another writer's, or our own sent again
        except Unavailable as error:
            lost = error
        try:
            return store.get(store.ref(name), limit=limit)
        except Missing:
            raise lost or Missing(f"{store.address}: {name} was stored and is missing.") from None

    return patiently(once, sleep=sleep, jitter=jitter, attempts=attempts)


def patiently(ask: Callable[[], T], *, sleep: Callable[[float], None], jitter: Callable[[], float], attempts: int) -> T:
    """The result of `ask`, called up to `attempts` times while it raises Unavailable; the last error is raised.

    The first attempt is made without tenacity: that takes longer than a request to a local folder, and its import,
    which loads asyncio and tornado, longer than many a command.
    """
    try:
        return ask()
    except Unavailable as error:
        lost = [error]
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

    def again() -> T:
        if lost:
            raise lost.pop()
        return ask()

    patience = Retrying(
        sleep=sleep,
        stop=stop_after_attempt(attempts),
        wait=lambda state: _wait(state, jitter()),
        retry=retry_if_exception_type(Unavailable),
        reraise=True,
    )
    return patience(again)


def _wait(state: RetryCallState, jitter: float) -> float:
    """Seconds until the next attempt: the back-off, or the service's longer request."""
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (state.attempt_number - 1)) * (0.5 + jitter / 2)
    error = state.outcome.exception() if state.outcome else None
    return max(wait, error.retry_after) if isinstance(error, Throttled) else wait
