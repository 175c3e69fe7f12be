"""Bad reads: for a while a reader gets other bytes of some objects than the store holds; the store stays whole.

A half-synced file, a faulty link or a cache on the way does so. A slot that exists is never Missing (point reads see
every write that has returned). Of objects that are only advice an old version is served: none, if it is old enough.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from storage.base import Missing, Stat, Unavailable

if TYPE_CHECKING:
    from tests.simulation.fleet import Pace

Kind = Literal["silent", "cut", "flipped", "flickering", "old", "ahead"]
Target = Literal["slot", "two slots", "hint", "file", "sign", "beside"]
SLOT = re.compile(r"(runs/[^/]+/[^/]+/ledger/|registry/ledger/)[0-9]{20}\.json")
HINT = re.compile(r"(runs/[^/]+/[^/]+/ledger|registry/ledger)\.hint")
SIGN = re.compile(r"runs/[^/]+/[^/]+/(heartbeat|stop)\.[0-9]+")
FILE = re.compile(r"checkpoints/[^/]+/[^/]+/step_[^/]+/.+")
BESIDE = re.compile(r"runs/[^/]+/[^/]+/history/.+|accounts/.+")
LIKELY = 0.15
"""The share of the usual worlds in which something is read wrongly."""
FRAMED = b"\n"
CUT_BY_THE_LINK = 0.9
"""How much of a slot arrives that the link cuts; with less, it is a file that is still being copied."""


@dataclass
class Spell:
    """The bad reads of some readers between two times."""

    kind: Kind
    what: re.Pattern[str]
    """Names of the objects that it is about."""
    begin: float
    end: float
    machine: str | None = None
    """Whose reads; None: everybody's."""
    connection: bool = False
    """Whether a fresh connection is free of it."""
    share: float = 0.5
    """How much of a cut object is left, or where the wrong byte is."""
    reads: int = 0

    def hits(self, name: str, machine: str, connection: int, now: float) -> bool:
        return (
            self.begin <= now < self.end
            and self.machine in (None, machine)
            and not (self.connection and connection)
            and self.what.fullmatch(name) is not None
        )

    def told(self) -> str:
        whose = self.machine or "everybody"
        return f"{self.what.pattern} is {self.kind} to {whose} for {self.end - self.begin:.0f} s"


@dataclass(frozen=True)
class Plan:
    """A spell that begins with an entry, on the entry's slot or next to it."""

    kind: Kind
    target: Target
    of: str
    """The kind of that entry; empty for any …"""
    nth: int
    """… and the how manieth of its kind it is."""
    lasts: float
    machine: str | None
    connection: bool
    share: float


class Reads:
    """All that is read wrongly in one world, and the old versions that it may be served from."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.spells: list[Spell] = []
        self.landed: Counter[str] = Counter()
        self.versions: dict[str, list[tuple[float, bytes | None, Stat | None]]] = {}

    def clear(self) -> None:
        self.plans, self.spells = [], []

    def keep(self, name: str, now: float, data: bytes | None, stat: Stat | None) -> None:
        """A version of an object that may be served when it is old."""
        self.versions.setdefault(name, []).append((now, data, stat))

    def entry(self, name: str, body: dict[str, Any], now: float) -> list[Spell]:
        """An entry has landed: the spells that begin with it."""
        kind = body["kind"]
        self.landed.update((kind, ""))
        of_it = [plan for plan in self.plans if plan.of in (kind, "")]
        begun = [_spell(plan, name, body, now) for plan in of_it if plan.nth == self.landed[plan.of]]
        self.spells += begun
        return begun

    def of(self, name: str, machine: str, connection: int, now: float) -> Spell | None:
        return next((one for one in self.spells if one.hits(name, machine, connection, now)), None)

    def version(self, name: str, spell: Spell) -> tuple[bytes, Stat]:
        """The one that was the newest when the spell began. Raises Missing."""
        old = [one for one in self.versions.get(name, ()) if one[0] < spell.begin]
        if not old or old[-1][1] is None or old[-1][2] is None:
            raise Missing(f"{name}: an old version of the storage, which had none, was asked")
        return old[-1][1], old[-1][2]


def _spell(plan: Plan, slot: str, body: dict[str, Any], now: float) -> Spell:
    folder, number = slot.rsplit("/", 1)
    seq = int(number.partition(".")[0])
    names = {
        "slot": [slot],
        "two slots": [f"{folder}/{n:020d}.json" for n in (seq - 1, seq) if n >= 0],
        "hint": [f"{folder}.hint"],
    }
    wanted = "|".join(re.escape(name) for name in names.get(plan.target, ()))
    what = re.compile(wanted or _files(body, plan.share))
    return Spell(plan.kind, what, now, now + plan.lasts, plan.machine, plan.connection, plan.share)


def _files(body: dict[str, Any], share: float) -> str:
    """Of the newest checkpoint: its manifest, its state, or all of it."""
    head = body["state"].get("head")
    part = {0.0: r"manifest\.json", 0.4: r"state\.json"}.get(share, r".+")
    return re.escape(head["manifest"].removesuffix("manifest.json")) + part if head else "nothing"


def altered(spell: Spell, data: bytes, framed: bool) -> bytes:
    """The bytes read in place of these; of a slot on Drive (`framed`), the line that leads to other slots stays."""
    spell.reads += 1
    head, line, body = data.partition(FRAMED) if framed else (b"", b"", data)
    if not body:
        return data
    at = min(int(spell.share * len(body)), len(body) - 1)
    if spell.kind == "cut":
        body = body[:at]
    elif spell.kind == "ahead":
        body = _ahead(body)
    else:
        if spell.kind == "flickering":  # another byte each time
            at = int.from_bytes(sha256(b"%d" % spell.reads).digest()[:4]) % len(body)
        body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    return head + line + body


def half_synced(spell: Spell, name: str) -> bool:
    """Whether a cut slot is a short file in the store, so that its size is short too; otherwise the link cuts it."""
    return spell.kind == "cut" and spell.share != CUT_BY_THE_LINK and SLOT.fullmatch(name) is not None


def _ahead(hint: bytes) -> bytes:
    """A hint of a slot that is not there yet, where slots are names."""
    told = json.loads(hint)
    seq = told["seq"] + 16
    ref = re.sub(r"[0-9]{20}", f"{seq:020d}", told["ref"])
    return json.dumps({**told, "seq": seq, "ref": ref}, sort_keys=True).encode()


def is_advice(name: str) -> bool:
    """Whether it is an object that is written again and again, and that nothing rests on."""
    return bool(HINT.fullmatch(name) or SIGN.fullmatch(name))


def refuse(spell: Spell, name: str) -> None:
    """Raises Unavailable where it is not answered at all."""
    if spell.kind == "silent":
        raise Unavailable(f"{name} is not answered")


def aged(stat: Stat, old: Stat) -> Stat:
    """The facts of an old version, at the place of the new one."""
    return replace(stat, size=old.size, modified=old.modified, sha256=old.sha256, block_hash=old.block_hash)


TARGETS: tuple[Target, ...] = ("slot", "slot", "slot", "two slots", "hint", "file", "file", "sign", "beside")
KINDS: dict[str, tuple[Kind, ...]] = {
    "hint": ("old", "old", "ahead", "cut", "flipped", "silent"),
    "sign": ("old", "old", "old", "silent"),
}
"""What befalls them; all else:"""
USUAL: tuple[Kind, ...] = ("cut", "cut", "flipped", "flipped", "flickering", "silent")


def draw(seed: int, reads: Reads, begin: float, length: float, pace: Pace, often: bool) -> Iterator[str]:
    """Fill a world's bad reads, from a random stream of their own: the rest of a seed stays as it was."""
    random = Random(f"reads {seed}")
    if often:
        entries = [("", nth) for nth in range(3, 60) if random.random() < 0.1]
        entries += [(of, nth) for of, odds in OFTEN for nth in range(1, 20) if random.random() < odds]
        targets = [(target, entry) for entry in entries for target in _with(random)]
    elif random.random() < LIKELY:
        targets = [(random.choice(TARGETS), _entry(random)) for _ in range(random.choice((1, 2, 2, 4)))]
    else:
        return
    for target, (of, nth) in targets:
        kind = random.choice(KINDS.get(target, USUAL))
        machine = random.choice((None, "m0", "m1", "m2"))
        lasts = random.choice((20.0, 2 * pace.ttl_s + 30.0, 10 * pace.ttl_s, 4 * 3600.0, 12 * 3600.0))
        connection, share = random.random() < 0.2, random.choice((0.0, 0.4, CUT_BY_THE_LINK))
        if target in ("sign", "beside"):
            at = begin + random.uniform(0.0, length)
            what = SIGN if target == "sign" else BESIDE
            reads.spells.append(Spell(kind, what, at, at + lasts, machine, connection, share))
        else:
            reads.plans.append(Plan(kind, target, of, nth, lasts, machine, connection, share))
        yield f"{target}-{kind}".replace(" ", "-")


OFTEN = (("release", 0.6), ("lease", 0.15), ("commit", 0.1))
"""Where much is read wrongly, how often an entry of these kinds is: the last of a session, and the first."""


def _entry(random: Random) -> tuple[str, int]:
    """An entry of a world: its kind, and which of that kind."""
    of, most = random.choice((("release", 3), ("commit", 8), ("lease", 3), ("", 20)))
    return of, random.randrange(1, most + 1) + 2 * (of == "")  # the world begins with two entries


def _with(random: Random) -> tuple[Target, ...]:
    """The faults of one entry, in a world with many faults."""
    return random.choice((("slot",), ("slot",), ("two slots",), ("two slots",), ("hint", "slot"), ("file",), ("sign",)))
