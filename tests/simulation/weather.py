"""A store as one simulated process sees it: slow, silent, full, throttled, late, forgetful in its listings.

Everything within storage/contract.py's limits: point reads by Ref see each write that has returned.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from storage.base import Exists, Missing, QuotaExceeded, Ref, Stat, StoreError, Throttled, Unavailable
from storage.wrapper import Wrapper
from tests.core.fake_runtime import Process, World
from tests.simulation.actor import Actor
from tests.simulation.reads import FILE, SLOT, Reads, Spell, aged, altered, half_synced, is_advice, refuse
from tests.simulation.stores import Dated, Opener, Shelf
from tests.simulation.trace import Summary, Trace

Kind = Literal["down", "full", "throttled", "rough", "hiding"]
WRITES = ("put", "put_if_absent", "delete")
Effect = Callable[[str, str, bytes | None, bytes | None, Actor], None]
"""Called with verb, name, the bytes before, the bytes after and who sent it, once a write has taken effect."""


@dataclass(frozen=True)
class Episode:
    """Bad weather between two times, for everybody or for one machine (which then has lost its network)."""

    kind: Kind
    begin: float
    end: float
    machine: str | None = None


@dataclass
class Sky:
    """The one store of a world, its weather, and who looks on."""

    world: World
    random: Random
    trace: Trace
    summary: Summary
    another: Opener
    """Opens a client of the store, untouched by weather."""
    episodes: list[Episode] = field(default_factory=list)
    rough: float = 0.0
    """Chance that a call outside episodes goes wrong."""
    lag_s: float = 0.0
    """How long listings may hide what is new, and show what is gone."""
    latest_s: float = 900.0
    """How late a write of unknown outcome may land."""
    watch: Effect = lambda verb, name, old, new, by: None
    offset_s: float = 0.0
    """By how much the store's clock is wrong."""
    jumped_at: float = float("-inf")
    """When it was corrected."""
    graves: dict[str, tuple[Stat, float]] = field(default_factory=dict)
    reads: Reads = field(default_factory=Reads)
    busy: bool = False
    """Whether the store is at work: what it changes on a disk is not on the disk of whoever asked it."""

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.clock)
        self.store = self.client()

    def client(self) -> Dated:
        """A client of one process."""
        return Dated(self.another(), self.shelf)

    def clock(self) -> float:
        """The store's."""
        return self.world.now + self.offset_s

    def correct_clock(self) -> None:
        """A person noticed the fault."""
        self.trace.note(self.world.now, "world", f"the store's clock was {self.offset_s:.0f} s wrong")
        self.summary.faults["store-clock-corrected"] += 1
        self.offset_s, self.jumped_at = 0.0, self.world.now

    def jumped_since(self, then: float) -> bool:
        return self.jumped_at >= then

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self.episodes, self.rough, self.lag_s = [], 0.0, 0.0
        self.reads.clear()

    def raw(self, name: str) -> bytes | None:
        """The stored bytes now, None if there are none; only the judge calls it."""
        ref = self.shelf.refs.get(name)
        try:
            data = self.store.get(ref) if ref else None
        except Missing:
            return None
        return self.body(name, data) if data else data

    def framed(self, name: str) -> bool:
        """Whether such an object begins with a line that leads to other slots."""
        return not self.store.unique_names and "/ledger/" in name

    def body(self, name: str, data: bytes) -> bytes:
        """Without that line."""
        return data.partition(b"\n")[2] if self.framed(name) else data

    def leads_to(self, ref: str, name: str) -> bool:
        """Whether that is the Ref of the newest of that name."""
        return self.shelf.refs.get(name) == ref

    def spoil(self, name: str, data: bytes) -> None:
        """Put other bytes where something lies."""
        if not self.store.unique_names:
            self.store.claim(name, self.shelf.refs[name])
        self.store.put(name, data)

    def now_is(self, kind: Kind, machine: str) -> bool:
        now = self.world.now
        return any(e.kind == kind and e.begin <= now < e.end and e.machine in (None, machine) for e in self.episodes)

    def apply(self, verb: str, name: str, act: Callable[[], Any], by: Actor) -> Any:
        """One verb takes effect; the judge sees each change."""
        if verb not in WRITES:
            return self._at_the_store(act)
        old = self.raw(name)
        if verb == "delete" and old is not None:
            self.graves[name] = (self.store.stat(self.shelf.refs[name]), self.world.now)
        result = self._at_the_store(act)
        new = self.raw(name)
        self._versions(name)
        if verb != "put_if_absent" or old != new:  # a store may say yes to the same bytes again
            self.summary.effects += 1
            self.watch(verb, name, old, new, by)
            if verb == "put_if_absent" and SLOT.fullmatch(name):
                self._begin_spells(name, json.loads(new or b"")["body"])
        return result

    def _begin_spells(self, slot: str, body: dict[str, Any]) -> None:
        for spell in self.reads.entry(slot, body, self.world.now):
            self.trace.note(self.world.now, "world", spell.told())

    def _versions(self, name: str) -> None:
        if is_advice(name):
            ref, data = self.shelf.refs.get(name), self.raw(name)
            stat = self.store.stat(ref) if ref and data is not None else None
            self.reads.keep(name, self.world.now, data, stat)

    def _at_the_store(self, act: Callable[[], Any]) -> Any:
        self.busy = True
        try:
            return act()
        finally:
            self.busy = False


class Weathered(Wrapper):
    """The store of a sky through one process's network."""

    def __init__(self, sky: Sky, process: Process, actor: Actor, random: Random, delay_s: float) -> None:
        super().__init__(sky.client())
        self.sky, self.process, self.actor, self.random, self.delay_s = sky, process, actor, random, delay_s
        self.connection = 0
        """0 for the one that it began with; each fresh one has the next number."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data, self.inner.put)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data, self.inner.put_new)

    def _put(self, name: str, data: bytes | Path, put: Callable[[str, bytes | Path], Ref]) -> Ref:
        content = data if isinstance(data, bytes) else data.read_bytes()

        def send() -> Ref:
            """As bytes or as a file, as requested; the file may be gone by now."""
            if isinstance(data, bytes):
                return put(name, content)
            with NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                return put(name, Path(file.name))

        return self._do("put", name, send)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._if_absent(name, data, lambda: self.inner.put_if_absent(name, data))

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        return self._if_absent(name, data, lambda: self.inner.create(ref, name, data))

    def _if_absent(self, name: str, data: bytes, send: Callable[[], Ref]) -> Ref:
        try:
            return self._do("put_if_absent", name, send)
        except Exists:
            self._count("own-exists" if data.endswith(self.sky.raw(name) or b"?") else "lost-race")
            raise

    def reserve(self, count: int) -> builtins.list[Ref]:
        return self._do("reserve", str(count), lambda: self.inner.reserve(count))

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._read("get", ref, lambda: self.inner.get(ref, limit=limit), lambda data: data)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        def part(data: bytes) -> bytes:
            return data[start : start + length]

        return self._read("read_range", ref, lambda: self.inner.read_range(ref, start, length), part)

    def _read(self, verb: str, ref: Ref, true: Callable[[], bytes], part: Callable[[bytes], bytes]) -> bytes:
        """As the store has it, or as a bad read has it: that part of the bad read's version of the whole."""
        name, spell = self._name(ref), None

        def read() -> bytes:
            nonlocal spell
            spell = self._spell(name)
            if spell is None:
                return true()
            self._bad(spell, name)
            if spell.kind == "old":
                return part(self.sky.reads.version(name, spell)[0])
            return part(altered(spell, self.inner.get(ref), self.sky.framed(name)))

        self.actor.reading[name] += 1
        try:
            found = self._do(verb, name, read)
        finally:
            self.actor.reading[name] -= 1
        if SLOT.fullmatch(name) or FILE.fullmatch(name):
            body, now = self.sky.body(name, found), self.sky.world.now
            self.actor.has_read(name, body, spell is None, now, self.connection, len(found))
        return found

    def _spell(self, name: str) -> Spell | None:
        return self.sky.reads.of(name, self.actor.machine, self.connection, self.sky.world.now)

    def _bad(self, spell: Spell, name: str) -> None:
        """A reader gets other bytes than the stored ones. Raises Unavailable if it gets none at all."""
        self._count(f"read-{spell.kind}")
        self.actor.troubled_at = self.actor.misread_at = self.sky.world.now
        self.sky.trace.note(self.sky.world.now, self.actor.name, f"reads {name} {spell.kind}")
        refuse(spell, name)

    def stat(self, ref: Ref) -> Stat:
        def facts() -> Stat:
            spell, stat = self._spell(self._name(ref)), self.inner.stat(ref)
            if spell and half_synced(spell, stat.name):
                cut = altered(spell, self.inner.get(ref), self.sky.framed(stat.name))
                return replace(stat, size=len(cut), sha256=None, block_hash=None)
            if spell is None or spell.kind not in ("old", "silent"):
                return stat
            self._bad(spell, stat.name)
            return aged(stat, self.sky.reads.version(stat.name, spell)[1])

        try:
            found = self._do("stat", self._name(ref), facts)
        except StoreError as error:
            self.actor.looked(self._name(ref), None, error, self.sky.world.now)
            raise
        self.actor.looked(found.name, found.modified, None, self.sky.world.now)
        if SLOT.fullmatch(found.name):
            self.actor.sizes[found.name] = found.size
        return found

    def delete(self, ref: Ref) -> None:
        self._do("delete", self._name(ref), lambda: self.inner.delete(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        listed = self._do("list", prefix, lambda: list(self.inner.list(prefix, after=after)))
        shown = self._aged(prefix, after, listed)
        self.actor.has_listed(prefix, (stat.name for stat in shown), self.sky.world.now)
        return iter(shown)

    def fresh(self) -> Weathered:
        """The same on a connection of its own."""
        other = copy(self)
        self.actor.connections += 1
        other.connection = self.actor.connections
        return other

    def _name(self, ref: Ref) -> str:
        return str(ref) if self.unique_names else self.sky.shelf.name(ref)

    def now(self) -> float:
        found = self._do("now", "", self.inner.now)
        self.actor.told_time(found)
        return found

    def _do(self, verb: str, name: str, act: Callable[[], Any]) -> Any:
        self.process.sleep(self.delay_s * (0.5 + self.random.random()))
        self.process.check()
        self._reach(verb, name, "before")
        fault = self._fault(verb)
        self.sky.trace.note(self.sky.world.now, self.actor.name, f"{verb} {name} {fault}")
        if fault not in ("ok", "after"):
            self._refuse(fault, verb, name, act)
        result = self.sky.apply(verb, name, act, self.actor)
        self._reach(verb, name, "after")
        if fault == "after":
            raise Unavailable(f"{verb} {name}: the answer was lost")
        return result

    def _reach(self, verb: str, name: str, when: str) -> None:
        """A point at which this process may be killed."""
        if self.actor.fate.strikes(verb, name, when):
            self.sky.trace.note(self.sky.world.now, self.actor.name, f"killed {when} {verb} {name}")
            self._count(f"kill-{when}-call")
            self.actor.die(self.sky.world.now)
        self.process.check()

    def _refuse(self, fault: str, verb: str, name: str, act: Callable[[], Any]) -> None:
        if fault == "full":
            self.actor.full_at = self.sky.world.now
            raise QuotaExceeded(f"no room for {name}")
        if fault == "throttled":
            raise Throttled(f"{verb} {name}: too many requests", self.random.choice((1.0, 5.0, 40.0)))
        if fault == "late":
            self._later(verb, name, act)
        raise Unavailable(f"{verb} {name}: no answer")

    def _later(self, verb: str, name: str, act: Callable[[], Any]) -> None:
        """It lands by itself, whether or not its sender still lives."""

        def land() -> None:
            self.sky.trace.note(self.sky.world.now, self.actor.name, f"{verb} {name} lands late")
            self._count("landed-late" + ("-after-death" if self.process.dead else ""))
            try:
                self.sky.apply(verb, name, act, self.actor)
            except StoreError:
                self._count("landed-too-late")

        longest = self.random.choice((1.0, 20.0, self.sky.latest_s))
        self.sky.world.at(self.sky.world.now + self.random.uniform(0.01, longest), land)

    def _fault(self, verb: str) -> str:
        fault = self._drawn(verb)
        if fault != "ok":
            self._count(f"{fault}-{verb}" if fault in ("late", "after") else fault)
            self.actor.troubled_at = self.sky.world.now
        return fault

    def _drawn(self, verb: str) -> str:
        sky, machine, chance = self.sky, self.actor.machine, self.random.random()
        if sky.now_is("down", machine):
            return "late" if verb in WRITES and chance < 0.1 else "down"
        if sky.now_is("full", machine) and verb in ("put", "put_if_absent"):
            return "full"
        if sky.now_is("throttled", machine) and chance < 0.5:
            return "throttled"
        if chance >= (0.3 if sky.now_is("rough", machine) else sky.rough):
            return "ok"
        if verb in WRITES:
            return self.random.choice(("before", "after", "late", "throttled"))
        return self.random.choice(("before", "throttled"))

    def _aged(self, prefix: str, after: str | None, listed: list[Stat]) -> list[Stat]:
        """A listing may hide new objects and show ones that have just gone."""
        sky, now = self.sky, self.sky.world.now
        lag = 3600.0 if sky.now_is("hiding", self.actor.machine) else sky.lag_s
        if not lag:
            return listed
        shown = [s for s in listed if now + sky.offset_s - s.modified > lag or self.random.random() < 0.5]
        if len(shown) < len(listed):
            self._count("listing-hid")
        there = {s.name for s in listed}
        ghosts = [
            stat
            for name, (stat, at) in sky.graves.items()
            if name.startswith(prefix) and now - at < lag and name not in there and (after is None or name > after)
        ]
        if ghosts:
            self._count("listing-stale")
        return sorted([*shown, *ghosts], key=lambda stat: stat.name)

    def _count(self, what: str) -> None:
        self.sky.summary.faults[what] += 1
