"""A store that misbehaves as real ones do, by a script or by seeded chance, within what base.Store allows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

from storage.base import Ref, Stat, Store, StoreError, Throttled, Unavailable
from storage.wrapper import Wrapper

Fault = Literal["ok", "before", "after", "late", "throttled"] | StoreError
"""before: no effect, no answer. after: effect, but the answer is lost. late: no answer, and the effect comes with
`land()`. throttled: no effect, asked to wait. An error is raised without effect."""

T = TypeVar("T")


class FaultyStore(Wrapper):
    """`script(verb, …)` plans the next calls of a verb; unplanned calls fail by chance.

    Probabilities are per call (`hide`: per listed object), drawn from `chance`, so that a seed repeats a run.
    """

    def __init__(
        self,
        inner: Store,
        chance: Random | None = None,
        *,
        before: float = 0.0,
        after: float = 0.0,
        throttled: float = 0.0,
        hide: float = 0.0,
        retry_after: float = 3.0,
    ) -> None:
        super().__init__(inner)
        self.chance = chance or Random(0)
        self.odds: dict[Fault, float] = {"before": before, "after": after, "throttled": throttled}
        self.hide = hide
        self.retry_after = retry_after
        self._scripts: dict[str, deque[Fault]] = defaultdict(deque)
        self._late: list[Callable[[], object]] = []

    def script(self, verb: str, *faults: Fault) -> None:
        """Plan what happens to the next calls of `verb`, in order."""
        self._scripts[verb].extend(faults)

    def land(self) -> None:
        """Let every late write arrive; one that comes too late for its name changes nothing."""
        late, self._late = self._late, []
        for effect in late:
            try:
                effect()
            except StoreError:
                continue

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._act("put", lambda: self.inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._act("put_if_absent", lambda: self.inner.put_if_absent(name, data))

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._act("put", lambda: self.inner.put_new(name, data))

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._act("get", lambda: self.inner.get(ref, limit=limit))

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._act("read_range", lambda: self.inner.read_range(ref, start, length))

    def stat(self, ref: Ref) -> Stat:
        return self._act("stat", lambda: self.inner.stat(ref))

    def delete(self, ref: Ref) -> None:
        self._act("delete", lambda: self.inner.delete(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        listing = self._act("list", lambda: list(self.inner.list(prefix, after=after)))
        return iter([stat for stat in listing if self.chance.random() >= self.hide])

    def now(self) -> float:
        return self._act("now", self.inner.now)

    def _act(self, verb: str, effect: Callable[[], T]) -> T:
        fault = self._next(verb)
        if isinstance(fault, StoreError):
            raise fault
        if fault == "throttled":
            raise Throttled(f"{verb}: too many requests", self.retry_after)
        if fault == "late":
            self._late.append(effect)
        if fault in ("before", "late"):
            raise Unavailable(f"{verb}: no answer")
        result = effect()
        if fault == "after":
            raise Unavailable(f"{verb}: the answer was lost")
        return result

    def _next(self, verb: str) -> Fault:
        if self._scripts[verb]:
            return self._scripts[verb].popleft()
        drawn = self.chance.random()
        for fault, odds in self.odds.items():
            if drawn < odds:
                return fault
            drawn -= odds
        return "ok"
