"""The judge: sees each effect on the shared store and the raw bytes, and decides whether the invariants held.

It shares no code with the rules of the relay: entries are plain JSON here.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.actor import Actor
from tests.simulation.end_judge import EndJudge
from tests.simulation.ledger_judge import LedgerJudge
from tests.simulation.loss_judge import LossJudge
from tests.simulation.passing_judge import PassingJudge
from tests.simulation.rest_judge import RestJudge
from tests.simulation.trace import Trace
from tests.simulation.truth import Key, Values
from tests.simulation.weather import Sky

LEDGER = re.compile(r"runs/([^/]+)/([^/]+)/ledger/([0-9]{20})\.json")
REGISTRY = re.compile(r"registry/ledger/([0-9]{20})\.json")
HEARTBEAT = re.compile(r"runs/([^/]+)/([^/]+)/heartbeat\.([0-9]+)")
HISTORY = re.compile(r"runs/[^/]+/[^/]+/history/.+")
FILE = re.compile(r"checkpoints/([^/]+)/([^/]+)/step_([0-9]+)\.e([0-9]+)(?:\.[0-9a-f]{16})?/(.+)")
GRACE_S = 3600.0
SHORT_S = 600.0
"""A store that was full this long ago still excuses a deletion without grace."""


@dataclass
class Uploaded:
    """One stored file of a checkpoint."""

    by: Actor
    first_at: float


@dataclass(frozen=True)
class Slot:
    """One entry of a log as the judge has seen it land."""

    base: int
    kind: str
    nonce: str
    state: dict[str, Any]
    by: Actor


@dataclass
class Run:
    """The judge's knowledge of a run: all its entries, and the contents of its checkpoints."""

    project: str
    name: str
    digests: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    """Every entry, whether or not a later one has passed over it."""
    nonces: dict[str, int] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[int, float]] = field(default_factory=list)
    """Every step that was ever the durable one, and until when."""
    holders: dict[int, Actor] = field(default_factory=dict)
    """Who took each epoch."""
    taken: dict[int, str] = field(default_factory=dict)
    """The entry that took each epoch from its holder, where that one did not give it back."""
    leased_at: dict[int, float] = field(default_factory=dict)
    values: dict[Key, Values] = field(default_factory=dict)
    """The true state in each committed checkpoint."""
    named: dict[Key, dict[str, str]] = field(default_factory=dict)
    """Names and hashes of the files of each committed checkpoint, manifest included."""
    committed_at: dict[Key, float] = field(default_factory=dict)
    retired_at: dict[Key, float] = field(default_factory=dict)
    damaged: dict[str, float] = field(default_factory=dict)
    """Names of files that the world has damaged, and when."""
    entries: dict[str, int] = field(default_factory=dict)
    """Digest to slot, for forks."""
    kept: dict[Key, int] = field(default_factory=dict)
    """Checkpoints whose commits were passed over: by the entry in which slot."""
    unretired: set[Key] = field(default_factory=set)
    """Checkpoints whose retirement was passed over; who has seen it may delete them for ever."""
    strange: bool = False
    """Whether a machine that computes wrongly has ever held the lease."""

    @property
    def prefix(self) -> str:
        return f"checkpoints/{self.project}/{self.name}/"

    @property
    def holder(self) -> Actor | None:
        """The process that holds the lease by the newest entry."""
        holder = self.state.get("holder")
        return self.holders[holder["epoch"]] if holder else None

    @property
    def retained(self) -> list[Key]:
        return [(c["step"], c["epoch"]) for c in self.state.get("retained", ())]

    @property
    def chain(self) -> set[int]:
        """The slots that count."""
        return self.chain_at(len(self.slots) - 1)

    def chain_at(self, slot: int) -> set[int]:
        """The entries that count for an entry built on this one: this entry, its base, that entry's base, and so on."""
        found = set()
        while slot >= 0:
            found.add(slot)
            slot = self.slots[slot].base
        return found

    def slot_name(self, seq: int) -> str:
        return f"runs/{self.project}/{self.name}/ledger/{seq:020d}.json"

    def checkpoint(self, key: Key) -> dict[str, Any] | None:
        """The retained checkpoint of that key, as the newest entry names it."""
        return next((c for c in self.state["retained"] if (c["step"], c["epoch"]) == key), None)


class Oracle:
    """Attached to a sky as its `watch`."""

    def __init__(self, sky: Sky, trace: Trace) -> None:
        self.sky, self.trace = sky, trace
        self.runs: dict[tuple[str, str], Run] = {}
        self.files: dict[str, Uploaded] = {}
        self.registry = Run("", "registry")
        self.accounts: set[str] = set()
        self.passing = PassingJudge(self)
        self.ledger = LedgerJudge(self)
        self.verdict = EndJudge(self)
        self.loss = LossJudge(self)
        self.rest = RestJudge(self)
        sky.watch = self.effect

    @property
    def now(self) -> float:
        return self.sky.world.now

    @property
    def unregistered(self) -> set[str]:
        """Accounts that were registered by entries which others have passed over."""
        return {name for slot in self.registry.slots for name in slot.state["accounts"]} - self.accounts

    def passed_over(self, run: Run) -> bool:
        """Whether anything of a run or of the registry was passed over; `verify` reports it."""
        return any(len(log.chain) < len(log.slots) for log in (run, self.registry))

    @property
    def store_now(self) -> float:
        return self.sky.clock()

    def require(self, holds: bool, what: str) -> None:
        """Raises Violation unless it holds."""
        if not holds:
            raise self.trace.violation(what)

    def effect(self, verb: str, name: str, old: bytes | None, new: bytes | None, by: Actor) -> None:
        """Called after each write that has taken effect, late ones too."""
        if found := LEDGER.fullmatch(name):
            self.require(verb == "put_if_absent", f"I1: {verb} on the ledger's {name}")
            run = self.runs.setdefault((found[1], found[2]), Run(found[1], found[2]))
            self.ledger.entry(run, int(found[3]), new or b"", by)
        elif found := REGISTRY.fullmatch(name):
            self.require(verb == "put_if_absent", f"I1: {verb} on the registry's {name}")
            self._registered(int(found[1]), new or b"", by)
        elif (found := HEARTBEAT.fullmatch(name)) and verb == "put":
            self.ledger.beat(self.runs[found[1], found[2]], int(found[3]), by)
        elif HISTORY.fullmatch(name):
            self.require(new is not None and old in (None, new), f"P4: {verb} on the history object {name}")
        elif found := FILE.fullmatch(name):
            run = self.runs.setdefault((found[1], found[2]), Run(found[1], found[2]))
            key = (int(found[3]), int(found[4]))
            if verb == "delete":
                if old is not None:
                    self._deleted(run, key, name, by)
            else:
                self._stored(run, key, name, old, new or b"", by)

    def _registered(self, seq: int, data: bytes, by: Actor) -> None:
        body, log = json.loads(data)["body"], self.registry
        self.require(seq == len(log.digests), f"I1: registry slot {seq} after {len(log.digests)} entries")
        self.passing.entry(log, body, by, "registry slot")
        before, accounts = set(log.state.get("accounts", ())), set(body["state"]["accounts"])
        self.require(accounts >= before, f"registry slot {seq} has lost {before - accounts}")
        log.digests.append(sha(data))
        log.slots.append(Slot(body["base"], body["kind"], body["nonce"], body["state"], by))
        log.state, self.accounts = body["state"], accounts

    def _stored(self, run: Run, key: Key, name: str, old: bytes | None, new: bytes, by: Actor) -> None:
        """P6: keys are never overwritten, and a (step, epoch) is uploaded by the one process of its epoch."""
        seen = self.files.setdefault(name, Uploaded(by, self.store_now))
        self.require(old is None or old == new or name in run.damaged, f"P6: {name} was overwritten with other bytes")
        if key[1] == 0:
            return  # a fork's copy: a second copy of the same entry has the same bytes
        owner = run.holders.get(key[1])
        self.require(owner is by, f"P6: {name} of epoch {key[1]} was written by {by.name}, which is not that epoch's")
        self.require(seen.by is by, f"P6: {name} was uploaded by {seen.by.name} and again by {by.name}")

    def _deleted(self, run: Run, key: Key, name: str, by: Actor) -> None:
        """I8 and P8, by the newest view: if an older view rightly allowed a deletion, this one allows it too."""
        for kept in run.retained:
            if name in run.named[kept] and key in run.unretired:
                self.passing.gone(run, name)
                return
            self.require(name not in run.named[kept], f"I8: {name} was deleted, but step {kept} is retained")
        if run.state.get("deleted") is not None:
            return  # nothing can be appended that would name it
        self.passing.deleted(run, key, name)
        retired, epoch = run.retired_at.get(key), run.state.get("epoch", 0)
        self.require(retired is not None or key[1] < epoch, f"P8: {name} of the newest epoch was deleted unretired")
        since = retired if retired is not None else self.files[name].first_at
        short = self.now - by.full_at <= SHORT_S
        waited = self.store_now - since
        self.require(
            short or waited >= GRACE_S or self.sky.jumped_since(0.0), f"P8: {name} was deleted {waited:.0f} s later"
        )
        unread = [
            where
            for kept in run.retained
            if not (run.checkpoint(kept) or {}).get("damaged")
            and (where := (run.checkpoint(kept) or {})["manifest"]) in run.damaged
            and run.damaged[where] < by.began
            and sha(self.sky.raw(where)) != run.named[kept][where]  # a late write of the same bytes mends it
        ]
        self.require(not unread, f"P8: {name} was deleted although {unread} cannot be verified")

    def damage(self, run: Run, name: str, data: bytes | None) -> None:
        """The storage itself spoils a file of a committed checkpoint; None removes it."""
        if data is None:
            self.sky.store.delete(self.sky.shelf.refs[name])
        else:
            self.sky.spoil(name, data)
        run.damaged[name] = self.now
        self.sky.summary.faults["damage"] += 1
        self.trace.note(self.now, "world", f"damages {name}")

    def intact(self, run: Run, key: Key) -> bool:
        """Whether every file of a committed checkpoint is there as it was committed."""
        return all(sha(self.sky.raw(name)) == digest for name, digest in run.named[key].items())

    def trained(self, actor: Actor) -> None:
        """At each training step: P6; and P12: the account trains nowhere besides, as far as the session could see."""
        self.loss.trained(actor)
        mine = next((run for run in self.runs.values() if run.holder is actor), None)
        for run in self.runs.values():
            other = run.holder
            if other is None or other is actor or other.account != actor.account or not other.alive:
                continue
            if mine is None or not other.trained_at or other.run == actor.run:
                continue
            self._not_both(actor, mine, other, run)

    def _not_both(self, one: Actor, mine: Run, other: Actor, its: Run) -> None:
        """Both hold and train. Allowed only if the earlier one looked dead when the later one began to train."""
        self.sky.summary.faults["account-in-two-runs"] += 1
        leases = sorted(
            [(mine.leased_at[mine.state["epoch"]], one, mine), (its.leased_at[its.state["epoch"]], other, its)],
            key=lambda lease: lease[0],
        )
        (_, early, run), (landed, late, _) = leases
        until = late.trained_at[0][0] if late.trained_at else self.now
        holder = run.state["holder"]
        if self.sky.jumped_since(late.began - holder["ttl_s"]) or late.misread:
            self.sky.summary.faults["account-in-two-runs-unjudged"] += 1
            return  # it looked at signs of life dated by another clock than the one it compared them with, or misread
        signs = self.ledger.signs_between(run, holder["epoch"], landed - holder["ttl_s"], until)
        gaps = [b - a for a, b in zip([landed - holder["ttl_s"], *signs], [*signs, until], strict=True)]
        seen_alive = max(gaps, default=0.0) <= holder["ttl_s"] and len(signs) > 0
        expired = holder["latest_end"] is not None and until + self.sky.offset_s > holder["latest_end"]
        self.require(not seen_alive or expired, f"P12: {early.name} and {late.name} train two runs for {one.account}")


def sha(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest() if data is not None else ""
