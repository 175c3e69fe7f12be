"""Stores that a healed slot has hit under the rule of formats 1 to 4: two histories in one ledger.

The newest entry of a first session was unreadable to a second one, which passed over it, trained and committed. Then
the entry could be read again, every entry of the second session became void, and a third session went on from the
first one's end and took the second one's epoch again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.core.ledger.canonical import digest
from relay.core.ledger.changes import By
from relay.core.ledger.entry import Entry, decode, encode
from relay.core.ledger.frozen import SILENT
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from relay.core.names import Names
from storage.base import Store, open_store
from tests.app.cli import Desk
from tests.core.making import QuietRuntime
from tests.damage.scene import PROJECT

NAMES = Names(PROJECT, "r")


@dataclass
class Healed:
    """A store with two histories, and where each lies in it."""

    desk: Desk
    store: Store
    slot: int
    """The entry that was unreadable for a while."""
    second: tuple[int, ...]
    """Slots of the session that passed over it, all void today."""
    third: tuple[int, ...]
    """Slots of the session after it; empty if none came."""

    def ledger(self) -> RunLedger:
        return RunLedger(self.store, PROJECT, "r", QuietRuntime())

    def state(self) -> RunState:
        return self.ledger().read().state

    def entry(self, seq: int) -> Entry:
        return decode(raw(self.store, seq), MACHINE.kinds, seq)


def heal(
    folder: Path,
    *,
    newest: str = "release",
    third: bool = True,
    cleaned: bool = False,
    seconds: Sequence[int] = (50, 60),
    thirds: Sequence[int] = (50, 60, 70),
    ttl_s: float = 180.0,
) -> Healed:
    """The first account's sessions end at steps 20 and 40, the second's at `seconds`, the third's (if any) at `thirds`.

    `newest`: the kind of the entry that was unreadable. `cleaned`: the second account's clean-up has deleted files that
    its own history no longer retains, so that the other one has no checkpoint left, and the third trained nothing.
    `ttl_s`: of the leases that are written again.
    """
    desk = Desk(folder / "desk")
    for target in (20, 40):
        desk.train(target, *PLAIN, UNEVALUATED)
    store = open_store((desk.folder / "relay_store").as_uri())
    ledger = RunLedger(store, PROJECT, "r", QuietRuntime())
    slot = ledger.read().seq - (newest == "commit")
    keep = ("checkpoint.keep_last=2",) if cleaned else ()
    second, made = _sessions(desk, folder / "second", seconds, "account_2", EVALUATED, *keep)
    later, made_later = _sessions(desk, folder / "third", thirds, "account_3", UNEVALUATED)
    if newest == "commit":
        store.delete(store.ref(name(slot + 1)))
    before = decode(raw(store, slot - 1), MACHINE.kinds, slot - 1)
    after = replay(store, second, on=before, parent=digest(raw(store, slot)[:500]), ttl_s=ttl_s)
    _bring(made, store)
    if cleaned:
        retained = {c.key for c in RunState.model_validate_json(json.dumps(after.state)).retained}
        for stat in list(store.list(NAMES.checkpoints)):
            place = NAMES.parse_checkpoint(stat.name)
            if place and place[:2] not in retained:
                store.delete(stat.ref)
        later = [later[0], next(entry for entry in later if entry.kind == "release")]
    last = after
    if third:
        on = decode(raw(store, slot), MACHINE.kinds, slot)
        last = replay(store, later, on=on, parent=digest(raw(store, after.seq)), seq=after.seq + 1)
        if not cleaned:
            _bring(made_later, store)
    return Healed(desk, store, slot, tuple(range(slot + 1, after.seq + 1)), tuple(range(after.seq + 1, last.seq + 1)))


PLAIN = ("--checkpoint-every", "100", "checkpoint.keep_last=8")  # only at the end: a commit between may be skipped
UNEVALUATED, EVALUATED = "evaluation.every_commits=0", "evaluation.every_commits=1"
"""The second account evaluates and the others do not, so that no two manifests are the same."""


def _sessions(
    desk: Desk, folder: Path, targets: Sequence[int], account: str, *words: str
) -> tuple[list[Entry], dict[str, bytes]]:
    """The entries that further sessions write on a copy of the store, and all checkpoint files."""
    other = Desk(folder, {"RELAY_STORE": (folder / "relay_store").as_uri()})
    shutil.copytree(desk.folder / "relay_store", folder / "relay_store")
    store = open_store((folder / "relay_store").as_uri())
    first = RunLedger(store, PROJECT, "r", QuietRuntime()).read().seq + 1
    for target in targets:
        other.train(target, *PLAIN, *words, account=account)
    ledger = RunLedger(store, PROJECT, "r", QuietRuntime())
    entries = [slot.entry for slot in ledger.entries(first, ledger.read().seq + 1) if slot.entry]
    return entries, {stat.name: store.get(stat.ref) for stat in store.list(NAMES.checkpoints)}


def _bring(files: dict[str, bytes], store: Store) -> None:
    """Files of a session. A file of the same name is replaced, as the first releases did."""
    for file, data in files.items():
        store.put(file, data)


def replay(
    store: Store, entries: list[Entry], *, on: Entry, parent: str, seq: int | None = None, ttl_s: float = 180.0
) -> Entry:
    """Write entries again in format 3 on another base; they pass over the slots between without a note."""
    state, base = RunState.model_validate_json(json.dumps(on.state)), on.seq
    seq = on.seq + 2 if seq is None else seq
    written = on
    for entry in entries:
        change = dict(entry.change)
        if entry.kind == "lease":
            holder = state.holder
            gone = {"epoch": holder.epoch, "reason": SILENT, "seconds": 60.0} if holder else None
            change |= {"took_over": gone, "ttl_s": ttl_s}
        by = By(entry.session, entry.account, state.epoch + (entry.kind == "lease"), entry.at)
        state = apply(state, entry.kind, change, by, tuple(range(base + 1, seq)))
        fields = {"format": 3, "seq": seq, "base": base, "parent": parent, "epoch": by.epoch, "change": change}
        written = Entry.model_validate_json(
            json.dumps(entry.model_dump(mode="json") | fields | {"state": state.model_dump(mode="json")})
        )
        data = encode(written)
        store.put(name(seq), data)
        parent, base, seq = digest(data), seq, seq + 1
    return written


def name(seq: int) -> str:
    return f"{NAMES.ledger}{seq:020d}.json"


def raw(store: Store, seq: int) -> bytes:
    return store.get(store.ref(name(seq)))
