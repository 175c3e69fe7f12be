"""The golden store (tests/data/run_golden), unpacked, and its ledgers judged from slot 0 by the rules alone."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from relay import ledger, registry
from relay.log.canonical import dumps
from relay.log.changes import By, Refused
from relay.log.entry import NotAnEntry, decode
from relay.log.reader import Machine

FOLDER = Path(__file__).parent.parent / "data" / "run_golden"
PROJECT = "sudoku_pretrain_multiaccount"
RUNS = ("golden", "branch", "imported", "shared", "gone")


def unpacked(folder: Path) -> Path:
    """The store, below `folder`."""
    with tarfile.open(FOLDER / "store.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def expected() -> dict[str, Any]:
    """What the version that wrote it made of it, by ledger."""
    return dict(json.loads((FOLDER / "expected.json").read_text()))


def slots(store: Path, run: str | None) -> list[bytes]:
    """The raw slots of a run's ledger, or of the registry's."""
    folder = store / ("registry" if run is None else f"runs/{PROJECT}/{run}") / "ledger"
    found = sorted(folder.glob("*.json"))
    assert [int(path.stem) for path in found] == list(range(len(found)))
    return [path.read_bytes() for path in found]


@dataclass
class Judged:
    """What the rules make of a ledger."""

    void: list[int] = field(default_factory=list)
    unequal: list[int] = field(default_factory=list)
    """Slots whose recomputed state has other bytes than the stored one."""
    states: list[bytes] = field(default_factory=list)
    """The canonical bytes of the state after each valid slot."""


def judged(raw: list[bytes], machine: Machine[Any]) -> Judged:
    """From slot 0, without the reader: each state is computed from the one before it and from nothing else."""
    found, state, base = Judged(), None, -1
    for seq, data in enumerate(raw):
        try:
            entry = decode(data, machine.kinds, seq)
            by = By(entry.session, entry.account, entry.epoch, entry.at)
            if entry.base != base:
                raise Refused(f"it builds on slot {entry.base}, not {base}")
            after: BaseModel = machine.apply(state, entry.kind, entry.change, by, tuple(range(base + 1, seq)))
        except (NotAnEntry, Refused):
            found.void.append(seq)
            continue
        computed = dumps(after.model_dump(mode="json"))
        if computed != dumps(entry.state):
            found.unequal.append(seq)
            continue
        state, base = machine.parse(entry.state), seq
        found.states.append(computed)
    return found


def ledgers(store: Path) -> Iterator[tuple[str, list[bytes], Machine[Any]]]:
    """Each ledger of the store with its name and its rules."""
    for run in RUNS:
        yield run, slots(store, run), ledger.MACHINE
    yield "registry", slots(store, None), registry.MACHINE
