"""The table of machines and tasks as text, CSV or a document."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.cloud.estimates import Estimate, Tables, Work
from relay.app.cloud.figures import Figure
from relay.app.cloud.machines import Machine
from relay.app.messages.wording import counted
from relay.app.renting import Misfit
from relay.app.terminal.cells import Column, table

LEGEND = "~ scaled from a measurement, ? guessed; --json names what each number stands on."


@dataclass(frozen=True)
class Listed:
    """All rows, and the machines that cannot train a task."""

    rows: Sequence[Estimate]
    misfits: Sequence[tuple[Machine, Work, Misfit]]
    tables: Tables
    today: datetime.date

    @classmethod
    def of(
        cls, found: Iterable[tuple[Machine, Work, Estimate | Misfit]], tables: Tables, today: datetime.date
    ) -> Listed:
        """Raises Misfit (78) if there is no other row."""
        rows, misfits = list[Estimate](), list[tuple[Machine, Work, Misfit]]()
        for machine, work, one in found:
            if isinstance(one, Misfit):
                misfits.append((machine, work, one))
            else:
                rows.append(one)
        if not rows:
            raise misfits[0][2]
        return cls(rows, misfits, tables, today)

    def warnings(self) -> list[str]:
        """Remarks on the prices, and on rows that are missing."""
        if self.tables.price is None:
            used = {price.cloud for row in self.rows for spot in (False, True) if (price := self._offer(row, spot))}
            lines = [one.stale(self.today) for one in self.tables.prices.catalogs if one.cloud in used]
            unknown = dict.fromkeys(row.machine.name for row in self.rows if row.price is None)
            lines += [f"No price of {', '.join(unknown)} is known: --price, or `cloud prices`."] if unknown else []
        else:
            lines = [f"PRICE: {self.tables.price:g} $ an hour was given; the table of prices was not used."]
        lines += [f"Left out: {work.name} on {misfit}" for _, work, misfit in self.misfits]
        return [line for line in lines if line]

    def _offer(self, row: Estimate, spot: bool) -> Any:
        return self.tables.price_of(row.machine, spot)[1]

    def document(self) -> dict[str, Any]:
        """relay.cloud-list/1."""
        return {
            "schema": "relay.cloud-list/1",
            "date": self.today.isoformat(),
            "rows": [row.document() for row in self.rows],
            "left_out": [
                {"machine": machine.name, "phase": work.name, "why": misfit.why}
                for machine, work, misfit in self.misfits
            ],
            "warnings": self.warnings(),
        }

    def csv(self) -> str:
        """One line a row; each figure as low, high and mark."""
        rows = [{**row.facts, **dict(_flat(row.figures))} for row in self.rows]
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().rstrip("\n")

    def text(self, width: int | None, utf8: bool) -> str:
        """The table and its notes."""
        columns = [
            Column("machine", [row.machine.name for row in self.rows], whole=True),
            Column("phase", [row.work.name for row in self.rows]),
            Column("rows x parts", [f"{row.split.rows} x {row.split.accumulation}" for row in self.rows], right=True),
            *(
                Column(head, [_cell(figure, utf8) for figure in figures], right=True)
                for head, figures in (
                    ("s a step", [row.step for row in self.rows]),
                    ("hours", [row.hours for row in self.rows]),
                    ("set-up, min", [row.setup.times(60) for row in self.rows]),
                    ("$ an hour", [row.price for row in self.rows]),
                    ("$", [row.on_demand for row in self.rows]),
                    ("$ spot", [row.spot for row in self.rows]),
                    ("$/1e18 FLOP", [row.per_exaflop for row in self.rows]),
                )
            ),
        ]
        works = {row.work.name: row.work for row in self.rows}
        about = [
            f"{name}: task {one.task}, {counted(one.steps, 'step')} of {counted(one.batch, 'row')}, "
            f"{one.flops * one.steps:.3g} FLOP; settings {one.hash[:12]} on every machine."
            for name, one in works.items()
        ]
        notes = ["$ is for the training; set-up costs the same by the hour.", LEGEND]
        lines = [table(columns, width, utf8), *about, *notes, *self.warnings()]
        return "\n".join(line if utf8 else line.replace("–", "-") for line in lines)


def _cell(figure: Figure | None, utf8: bool) -> str:
    text = figure.text() if figure else ""
    return text if utf8 else text.replace("–", "-")


def _flat(figures: Mapping[str, Figure | None]) -> Iterable[tuple[str, Any]]:
    for name, figure in figures.items():
        found = figure.document() if figure else {}
        yield from ((f"{name}_{part}", found.get(part)) for part in ("low", "high", "mark"))
