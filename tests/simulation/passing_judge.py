"""The judge of entries that pass over others (P4): each is proven and reported, and loses nothing acknowledged.

It knows the bytes that each process read, and the bytes that the store really held. It decides the worth of a slot's
bytes when the slot's entry lands; later unreadable copies make no difference.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.simulation.actor import Actor, Reading
from tests.simulation.truth import Key

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle, Run

Json = dict[str, Any]
FORMAT = 5
HELD = ("commit", "retire", "rewind", "release")
"""Kinds that are written under a lease: what they would pass over may be the next one."""
STEP = re.compile(r"step_[0-9]+\.e([0-9]+)(?:\.[0-9a-f]+)?/.+")
BEAT = re.compile(r"([0-9]+)")
MOST_DIGESTS = 32
READS = 3
"""How often a slot is read at least before it is passed over …"""
REGISTRY_TTL_S = 30.0
"""… over at least the TTL of the lease; where nobody holds one, over this."""


class PassingJudge:
    """Judges each entry by its base."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.require = oracle, oracle.require

    def entry(self, log: Run, body: Json, by: Actor, what: str) -> None:
        """I2: the entry names the entry before it. Otherwise `log.state` is the state at the entry's base."""
        seq, base = body["seq"], body["base"]
        if base != seq - 1:
            self._passes(log, body, by, what)
            return
        parent = log.digests[-1] if log.digests else "0" * 64
        self.require(body["parent"] == parent, f"I2: {what} {seq} names another parent than slot {seq - 1}")
        self.require("passed" not in body, f"P4: {what} {seq} passes over nothing, and says that it does")

    def _passes(self, log: Run, body: Json, by: Actor, what: str) -> None:
        seq, base, told = body["seq"], body["base"], body.get("passed")
        over = f"{what} {seq} passes over slots {base + 1} to {seq - 1}"
        self.require(base >= 0, f"P4: {over}, and begins the log")
        self.require(told is not None and body["format"] >= FORMAT, f"P4: {over} in format {body['format']}")
        passed = range(base + 1, seq)
        newest = passed[-MOST_DIGESTS:]
        self.require(len(told["digests"]) == len(newest), f"P4: {over} and does not tell what it read there")
        ttl = _ttl(body, log.slots[base].state)
        for slot, digest in zip(newest, told["digests"], strict=True):
            self._proven(log, slot, digest, by, ttl, over)
        self.require(body["parent"] == told["digests"][-1], f"I2: {over} and names another parent")
        self.oracle.sky.summary.faults["passed-over"] += 1
        if log.project:
            self.require(body["kind"] not in HELD, f"P4: {over}, under a lease")
            self._no_later_epoch(log, base, by, over)
        self._steps_back(log, body, by, over)

    def _proven(self, log: Run, slot: int, digest: str, by: Actor, ttl: float, over: str) -> None:
        """Read in full several times over the TTL, always the same, and never as the entry that is there."""
        readings = by.readings.get(self._name(log, slot), [])
        alike = _newest_alike(readings, digest)
        self.require(bool(alike), f"P4: {over}, and never read in slot {slot} what it says")
        whole = [one for one in alike if one.true]
        self.require(not whole, f"P4: {over}, and slot {slot} is whole, to its own eyes too")
        self.require(len(alike) >= READS, f"P4: {over} after {len(alike)} readings of slot {slot}")
        span = alike[-1].at - alike[0].at
        self.require(span >= ttl, f"P4: {over} after reading slot {slot} for {span:.0f} s, less than {ttl:.0f} s")
        asked = by.sizes.get(self._name(log, slot))
        self.require(asked == alike[-1].stored_as, f"P4: {over}, and the store says that slot {slot} has {asked} bytes")
        fresh = {one.connection for one in alike}
        self.require(len(fresh) > 1, f"P4: {over} and has read slot {slot} on one connection only")

    def _no_later_epoch(self, log: Run, base: int, by: Actor, over: str) -> None:
        """It has looked for files of the epochs that these slots may have begun, and has seen none."""
        home, epoch = f"runs/{log.project}/{log.name}/", log.slots[base].state["epoch"]
        for prefix, pattern in ((log.prefix, STEP), (f"{home}heartbeat.", BEAT)):
            self.require(by.listed_at.get(prefix, by.began - 1) >= by.began, f"P4: {over} and has not listed {prefix}")
            seen = [int(found[1]) for name in by.listed if (found := pattern.fullmatch(name.removeprefix(prefix)))]
            newest = max(seen, default=0)
            self.require(newest <= epoch, f"P4: {over}, which end in epoch {epoch}, and has seen epoch {newest}")

    def _name(self, log: Run, slot: int) -> str:
        return log.slot_name(slot) if log.project else f"registry/ledger/{slot:020d}.json"

    def _steps_back(self, log: Run, body: Json, by: Actor, over: str) -> None:
        """The entry reports the counting entries it passes over: commits as a step back, their checkpoints kept."""
        chain, base, now = log.chain, body["base"], body["state"]
        gone = [slot for slot in range(base + 1, body["seq"]) if slot in chain]
        commits = [_head(log.slots[slot].state) for slot in gone if log.slots[slot].kind == "commit"]
        for slot in gone:
            if log.slots[slot].kind == "retire":
                before = {_key(c) for c in log.slots[log.slots[slot].base].state["retained"]}
                log.unretired |= before - {_key(c) for c in log.slots[slot].state["retained"]}
        log.state = log.slots[base].state
        if not log.project:
            return
        causes = [one["cause"] for one in now["incidents"]]
        self.require("passed-over" in causes, f"P4: {over} and records nothing")
        for key in commits:
            log.kept[key] = body["seq"]
            manifest = f"{log.prefix}step_{key[0]}.e{key[1]}/manifest.json"
            seen = by.listed.get(manifest) == by.listed_at.get(log.prefix)  # by the last listing; others may hide it
            seen = seen and manifest not in log.damaged  # what was put in its place describes nothing to keep
            self.oracle.sky.summary.faults["step-back" if seen else "step-back-unseen"] += 1
            kept = {(one["step"], one["epoch"]) for one in now.get("kept", ())}
            self.require(key in kept or not seen, f"P6: {over}, and step {key[0]}, acknowledged, is not kept")
            self.require("step-back" in causes or not seen, f"P6: {over}, and no step back is recorded")
        for key in log.retained:
            for name in log.named[key]:
                if self.oracle.sky.raw(name) is None:
                    self.gone(log, name)

    def names(self, run: Run, body: Json) -> None:
        """P6: no key is named by two entries, but by one that is sent again and passes over itself."""
        key, mine = _head(body["state"]), body["nonce"]
        for seq, slot in enumerate(run.slots):
            if slot.kind == "commit" and _head(slot.state) == key:
                again = slot.nonce == mine and seq not in run.chain_at(body["base"])
                self.require(again, f"P6: step_{key[0]}.e{key[1]} is named by slot {seq} and by slot {body['seq']}")

    def deleted(self, run: Run, key: Key, name: str) -> None:
        """A checkpoint that was passed over stays for `fork`."""
        kept = run.kept.get(key)
        mine = kept is None or key in run.retired_at or name not in run.named[key]
        self.require(mine, f"P4: {name} was deleted, which slot {kept} passed over")

    def deceived(self, run: Run, key: Key, by: Actor) -> bool:
        """Whether the process could not learn that a checkpoint is intact.

        It read the same wrong bytes of a file, as many as the file has, on several connections, and the store reports
        no hash of its own.
        """
        store, shelf = self.oracle.sky.store, self.oracle.sky.shelf
        for name in run.named[key]:
            stat, readings = store.stat(shelf.refs[name]), by.readings.get(name, [])
            alike = _newest_alike(readings, readings[-1].sha256) if readings else []
            wrong = [one for one in alike if not one.true and one.size == stat.size]
            if stat.sha256 is None and stat.block_hash is None and len({one.connection for one in wrong}) > 1:
                return True
        return False

    def gone(self, run: Run, name: str) -> None:
        """A view that is passed over now had retired it, and any session that saw that view may delete it for ever."""
        self.oracle.sky.summary.faults["retired-and-passed-over"] += 1
        run.damaged.setdefault(name, self.oracle.now)


def _newest_alike(readings: list[Reading], digest: str) -> list[Reading]:
    """The last readings, as long as all of them were the same."""
    found: list[Reading] = []
    for one in reversed(readings):
        if one.sha256 != digest:
            break
        found.append(one)
    return found[::-1]


def _ttl(body: Json, before: Json) -> float:
    """Of the lease that it takes, or that is held."""
    if body["kind"] == "lease":
        return float(body["change"]["ttl_s"])
    holder = before.get("holder")
    return float(holder["ttl_s"]) if holder else REGISTRY_TTL_S


def _head(state: Json) -> Key:
    return _key(state["head"])


def _key(checkpoint: Json) -> Key:
    return checkpoint["step"], checkpoint["epoch"]
