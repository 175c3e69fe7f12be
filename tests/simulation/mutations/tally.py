"""Reports the result of each mutation: one line for a run of the tests, and a table for the record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import shorten

HEAD = """# Mutations: is the simulation's judge able to see?

Written by `RELAY_SIM_MUTATIONS={name} pytest tests/simulation/test_mutations.py`, which looks for each mutation from
seed 0 on. A mutation is the product broken in one place (`tests/simulation/mutations/`); it is caught if the judge's
verdict names the rule that was broken. *Seeds* is how many worlds that took. "Drawn" worlds are the simulation's own,
the others were made for the mutation, since drawn ones hold its trouble seldom or never. All are silent without it.

| mutation | what is broken | world | caught by (first verdict) | seeds |
|---|---|---|---|---|
"""


LONGEST = 140
"""Characters of a verdict in the table: what a command said goes on, about folders too."""


@dataclass(frozen=True)
class Found:
    """One mutation's line."""

    order: int
    name: str
    breaks: str
    world: str
    verdict: str
    """What caught it, or why it does no harm."""
    seeds: int
    caught: bool

    def row(self) -> str:
        """Of the table."""
        verdict = self.verdict.replace("|", "\\\\|")
        how = shorten(verdict, LONGEST, placeholder=" …") if self.caught else f"*harmless:* {verdict}"
        return f"| {self.name} | {self.breaks} | {self.world} | {how} | {self.seeds if self.caught else '–'} |"


def line(found: list[Found]) -> str:
    """For the end of a run of the tests."""
    took = [one.seeds for one in found if one.caught]
    told = f"mutations: {len(took)} caught"
    if took:
        told += f", median {median(took):g} seeds, worst {max(took)}"
    return told + f"; {len(found) - len(took)} harmless because another rule covers them"


def write(found: list[Found], path: Path) -> None:
    """The table."""
    rows = "\n".join(one.row() for one in sorted(found, key=lambda one: one.order))
    path.write_text(HEAD.format(name=path.name) + rows + f"\n\n{line(found)}.\n", encoding="utf-8")
