"""A toy whose checkpoints share a table: some hold it, the others only the changes since."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from relay.core.workload import Saved
from tests.core.toy import ToySnapshot, ToyWorkload, hash_of

Values = tuple[int, ...]


def table(step: int) -> str:
    """Name of the file that holds the table of that step."""
    return f"table-{step}.json"


@dataclass(eq=False)
class SharingSnapshot(ToySnapshot):
    base: tuple[int, Values] = (0, ())
    """Step and values of the table it builds on; its own step if it holds the table."""

    def save(self, folder: Path) -> Saved:
        saved = super().save(folder)
        step, values = self.base
        own = {"journal.json": {"base": step, "delta": [a ^ b for a, b in zip(values, self.values, strict=True)]}}
        if step == self.step:
            own[table(step)] = {"step": step, "values": values}
        for name, content in own.items():
            with (folder / name).open("w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
        lends, borrows = ((table(step),), ()) if step == self.step else ((), (table(step),))
        files = tuple(sorted({*saved.files, *own}))
        return Saved(self.step, hash_of(self.step, self.values), files, lends, borrows)


@dataclass
class Sharing:
    """The extra members of a toy next to `ToyWorkload` or a child of it, which follows it in the list of bases."""

    table_every: int = 30
    """Steps after which the table is written again."""
    tables: dict[int, Values] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()
    last: bool = False
    taken: list[tuple[int, int]] = field(default_factory=list)
    """(step, step of its table) of each snapshot."""

    def lend(self, names: frozenset[str], last: bool) -> None:
        self.offered, self.last = names, last

    def load(self, folder: Path) -> None:
        super().load(folder)
        journal = json.loads((folder / "journal.json").read_text())
        content = json.loads((folder / table(journal["base"])).read_text())
        values = tuple(a ^ b for a, b in zip(content["values"], journal["delta"], strict=True))
        if content["step"] != journal["base"] or values != self.values:
            raise ValueError("the journal does not lead from the table to this state")
        self.tables = {journal["base"]: tuple(content["values"])}

    def snapshot(self) -> SharingSnapshot:
        plain = super().snapshot()
        usable = [step for step in self.tables if table(step) in self.offered]
        step = max(usable, default=plain.step)
        if plain.step - max(self.tables, default=step) >= self.table_every and not (usable and self.last):
            step = plain.step
        self.tables[step] = self.tables.get(step, plain.values)
        self.taken.append((plain.step, step))
        return SharingSnapshot(plain.step, plain.values, plain.finite, plain.before_save, (step, self.tables[step]))


@dataclass
class SharingToy(Sharing, ToyWorkload):
    """In memory."""
