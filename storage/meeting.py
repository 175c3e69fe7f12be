"""Lets the machines that share a folder on an untried file system race for names when they meet (P2).

The self-test's clients share one kernel, which proves nothing about two machines. So each process that writes
announces itself under `selftest/`. Two that see each other race for fresh names, and record the result for all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from storage.contract import BadAddress, Exists, Missing, Store, StoreError, TooLong, Unavailable
from storage.mounts import UNTRIED
from storage.wrapper import innermost

ROUNDS = 150
"""Names of one race: a store that lets two win one name in thirty passes with a chance of 1 in 160."""
RACE_S = 60.0
"""A race ends earlier after this time; then each of its rounds took long, and shows more."""
LONGEST_S = 0.3
"""Longest random wait before a create."""
LEAST = 10
"""Rounds without which a race proves nothing."""
ANNOUNCED_S = 10.0
"""How often a process announces itself."""
COMES_S = 45.0
"""How long a process waits in a race for the other."""
SETTLE_S = 2.0
"""Until a simultaneous announcement is visible."""
PATIENCE_S = 180.0
"""How long a process waits for one that announces itself and does not race."""
_DAY = 86400.0
_HERE = re.compile(r"selftest/here\.([0-9a-f]{16})\.([0-9a-f]{16})")
_OLD = ("selftest/here.", "selftest/meeting.")
_MOST = 10_000


@runtime_checkable
class Meets(Protocol):
    """A store whose exclusive create may not hold between machines."""

    def untried(self) -> str | None:
        """The kind of storage if nothing is known of it; None if its exclusive create is documented."""
        ...

    def client(self) -> str:
        """16 hexadecimal digits: equal for processes between which one kernel decides."""
        ...


class Here(NamedTuple):
    """A process that uses the store."""

    client: str
    token: str

    @property
    def name(self) -> str:
        return f"selftest/here.{self.client}.{self.token}"


@dataclass(frozen=True)
class Pace:
    """The clock and chance of a process."""

    token: Callable[[], str]
    sleep: Callable[[float], None]
    monotonic: Callable[[], float]

    def chance(self) -> float:
        """From 0 to 1."""
        return int(self.token()[:8], 16) / 2**32


Spawn = Callable[[str, Callable[[], None]], object]
"""Starts a background thread: its name, and its body, which raises nothing."""


def meet(store: Store, pace: Pace, spawn: Spawn | None) -> bool:
    """Race with another machine that uses the store now. False if nothing is known afterwards, as none is there.

    With `spawn`, later arrivals are raced with in the background until the process ends. Returns at once on storage
    whose exclusive create is documented. Raises BadAddress if two won one name, now or in an earlier race, Unavailable
    if another machine announces itself and does not race, and the store's errors.
    """
    inner = innermost(store)
    kind = inner.untried() if isinstance(inner, Meets) else None
    if kind is None or not isinstance(inner, Meets):
        return True
    me = Here(_present(store, inner), pace.token()[:16])
    met = Meeting(store, kind, me, pace)
    if met.arrive():
        return True
    if spawn:
        spawn("meeting", met.stay)
    else:
        met.leave()
    return False


def doubt(store: Store) -> str:
    """The warning for an untried file system where no machines have met yet; '' otherwise. Raises StoreError."""
    inner = innermost(store)
    kind = inner.untried() if isinstance(inner, Meets) else None
    if kind is None or _read(store, _verdict(kind)) is not None:
        return ""
    return (
        f"{store.address} is on {kind}, and {UNTRIED}. Machines that use it at the same time test it when they first "
        "meet. Start the first session of another machine while one trains."
    )


def _verdict(kind: str) -> str:
    """Name of the note with the result of a race on this kind of file system."""
    return f"selftest/raced.{re.sub(r'[^a-z0-9._-]', '-', kind.lower())}.json"


def _present(store: Store, inner: Meets) -> str:
    """The client, after a first write: it makes the store's folder."""
    store.delete(store.put("selftest/folder", b""))
    return inner.client()


class Meeting:
    """One process's part."""

    def __init__(self, store: Store, kind: str, me: Here, pace: Pace) -> None:
        self._store, self._kind, self._me, self._pace = store, kind, me, pace
        self._verdict = _verdict(kind)

    def arrive(self) -> bool:
        """Race with everyone who is there; False if no machine is. Raises as `meet`."""
        if self._judged():
            return True
        self._sweep()
        self._announce()
        began = self._pace.monotonic()
        self._pace.sleep(SETTLE_S)
        while others := self._living():
            try:
                if self._raced(others):
                    return True
            finally:
                self.leave()
            if self._pace.monotonic() - began > PATIENCE_S:
                raise Unavailable(
                    f"{self._store.address} is on {self._kind}, whose exclusive create was never tried between "
                    "machines. Another machine uses the store and does not answer the test. Wait until it has ended."
                )
            self._me = Here(self._me.client, self._pace.token()[:16])  # a new name makes a new race
            self._announce()
        return False

    def leave(self) -> None:
        """End the announcement."""
        self._store.delete(self._store.ref(self._me.name))

    def stay(self) -> None:
        """Announce this process and race with arrivals, until a result is known. Raises nothing."""
        seen: dict[Here, float] = {}
        while True:
            try:
                self._announce()
                before, seen = seen, self._others()
                if self._judged() or self._raced([one for one in seen if seen[one] != before.get(one)]):
                    return
            except BadAddress:
                return  # the arrival refuses the store; this process is the only one left in it
            except StoreError:
                pass  # the session itself reports a store that fails
            self._pace.sleep(ANNOUNCED_S)

    def _judged(self) -> bool:
        """Whether a race is on record. Raises BadAddress if two won."""
        found = _read(self._store, self._verdict)
        if not isinstance(found, dict) or found.get("format") != 1 or not isinstance(found.get("exclusive"), bool):
            return False
        self._demand(found["exclusive"])
        return True

    def _raced(self, others: list[Here]) -> bool:
        """Race with each until there is a result, and record it. False if none came."""
        for other in others:
            won = race(self._store, self._me, other, self._pace)
            if won is not None:
                self._judged()  # no later race takes back that two won
                self._store.put(self._verdict, json.dumps({"format": 1, "exclusive": won}).encode())
                self._demand(won)
                return True
        return False

    def _demand(self, exclusive: bool) -> None:
        if not exclusive:
            raise BadAddress(
                f"{self._store.address} must not hold a run: two machines that share it ({self._kind}) raced for "
                "names, and both won some. Two sessions could overwrite each other's work there. Use another kind of "
                "storage."
            )

    def _announce(self) -> None:
        self._store.put(self._me.name, b"1")

    def _living(self) -> list[Here]:
        """Processes of other machines that go on announcing themselves; what the others left is removed.

        Compares no clocks: a mount may write times of its own machine.
        """
        before = self._others()
        for _ in range(2 if before else 0):
            self._pace.sleep(0.75 * ANNOUNCED_S)
            self._announce()
        after = self._others() if before else {}
        for here, at in before.items():
            if after.get(here) == at:
                self._store.delete(self._store.ref(here.name))
        return [here for here, at in after.items() if before.get(here) != at]

    def _others(self) -> dict[Here, float]:
        """Processes of other machines that announced themselves, and when."""
        found = (
            (Here(match[1], match[2]), stat.modified)
            for stat in self._store.list("selftest/here.")
            if (match := _HERE.fullmatch(stat.name))
        )
        return {here: at for here, at in found if here.client != self._me.client}

    def _sweep(self) -> None:
        """Remove what processes of earlier days left."""
        now = self._store.now()
        for prefix in _OLD:
            for stat in self._store.list(prefix):
                if now - stat.modified > _DAY:
                    self._store.delete(stat.ref)


def race(store: Store, me: Here, other: Here, pace: Pace) -> bool | None:
    """Whether at most one of two processes won each name; None if the other did not come.

    Both call this. A round begins when both are ready. News takes an unknown time between them, so each waits for a
    random time, of any order of magnitude, before it creates the name.
    """
    first, last = sorted((me, other))
    folder = f"selftest/meeting.{first.token}.{last.token}"
    ended, won = f"{folder}/won.{other.token}", []
    began, count = pace.monotonic(), 0
    while count < ROUNDS and pace.monotonic() - began < RACE_S:
        store.put(f"{folder}/ready.{me.token}.{count}", b"1")
        if not _comes(store, f"{folder}/ready.{other.token}.{count}", ended, pace):
            break
        pace.sleep(LONGEST_S * 10 ** (-4 * pace.chance()))
        if _wins(store, f"{folder}/name.{count}", me.token.encode()):
            won.append(count)
        count += 1
    if count == 0:
        return None
    overwritten = [n for n in won if not _holds(store, f"{folder}/name.{n}", me.token.encode())]
    store.put(f"{folder}/won.{me.token}", json.dumps({"won": won, "rounds": count}).encode())
    if overwritten:
        return False
    if not _comes(store, ended, ended, pace):
        return None
    for number in range(count + 1):  # the results stay for a day, as the other may still read ours
        store.delete(store.ref(f"{folder}/ready.{me.token}.{number}"))
        store.delete(store.ref(f"{folder}/name.{number}"))
    theirs = _read(store, ended)
    if not isinstance(theirs, dict) or not isinstance(theirs.get("won"), list):
        return None
    if set(won) & {n for n in theirs["won"] if isinstance(n, int)}:
        return False
    return True if count >= LEAST else None


def _wins(store: Store, name: str, mine: bytes) -> bool:
    """Whether the name is ours: a lost answer may have created it."""
    try:
        store.put_if_absent(name, mine)
    except (Exists, Unavailable):
        return _holds(store, name, mine)
    return True


def _holds(store: Store, name: str, data: bytes) -> bool:
    try:
        return store.get(store.ref(name), limit=_MOST) == data
    except (Missing, TooLong):
        return False


def _comes(store: Store, name: str, ended: str, pace: Pace) -> bool:
    """Wait until an object is there; False if the other process has ended its part, or does not come."""
    began = pace.monotonic()
    while pace.monotonic() - began < COMES_S:
        for wanted in dict.fromkeys((name, ended)):
            with suppress(Missing):
                store.stat(store.ref(wanted))
                return wanted == name
        pace.sleep(0.002)
    return False


def _read(store: Store, name: str) -> object:
    """The JSON of a small object; None if there is none."""
    try:
        return json.loads(store.get(store.ref(name), limit=_MOST))
    except (Missing, TooLong, ValueError, RecursionError):
        return None
