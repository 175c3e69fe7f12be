"""The golden stores (tests/data/run_golden), unpacked, and their ledgers judged from slot 0 by the rules alone."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.core.ledger import ledger, registry
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.entry import NotAnEntry, decode
from relay.core.ledger.reader import Machine

FOLDER = Path(__file__).parent.parent / "data" / "run_golden"
PROJECT = "sudoku_pretrain_multiaccount"
RUNS = {"store": ("golden", "branch", "imported", "shared", "gone"), "passing": ("golden",)}
"""Of each archive."""


def unpacked(folder: Path, name: str = "store") -> Path:
    """The store in that archive, below `folder`."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    return folder / name / "store"


def expected(name: str = "store") -> dict[str, Any]:
    """What the version that wrote that archive made of it, by ledger."""
    return dict(json.loads((FOLDER / "expected.json").read_text())[name])


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
    """From slot 0, without the reader: each state is computed from the one that it builds on and from nothing else.

    An entry builds on the valid one before it, or, where it says what it passes over, on any valid one (format 5).
    """
    found, states, last = Judged(), {-1: None}, -1
    for seq, data in enumerate(raw):
        try:
            entry = decode(data, machine.kinds, seq)
            if entry.base not in states or (entry.passed is None and entry.base != last):
                raise Refused(f"it builds on slot {entry.base}, not {last}")
            by = By(entry.session, entry.account, entry.epoch, entry.at)
            before, voids = states[entry.base], tuple(entry.passed_slots)
            after = machine.apply(before, entry.kind, entry.change, by, voids, entry.passed)
        except (NotAnEntry, Refused):
            found.void.append(seq)
            continue
        computed = dumps(after.model_dump(mode="json"))
        if computed != dumps(entry.state):
            found.unequal.append(seq)
            continue
        states[seq], last = machine.parse(entry.state), seq
        found.states.append(computed)
    return found


def ledgers(store: Path, name: str = "store") -> Iterator[tuple[str, list[bytes], Machine[Any]]]:
    """Each ledger of that archive's store with its name and its rules."""
    for run in RUNS[name]:
        yield run, slots(store, run), ledger.MACHINE
    yield "registry", slots(store, None), registry.MACHINE
