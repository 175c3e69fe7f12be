"""Writes the tables of docs/reference/speed.md and docs/contributing/kernels.md from trm/cards.py and
trm/kernels/tried.py; tests nothing itself.

python -m tests.trm.speed_tables
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from trm.cards import CARDS, CPU, ROWS, SHAPES, How, Row, card_of, expected, usual
from trm.config import TrainConfig
from trm.kernels.tried import TRIED
from trm.presets import PRESETS
from trm.tasks import sizes_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "reference" / "speed.md", DOCS / "contributing" / "kernels.md")
LARGE = ("sudoku", "sudoku_att", "arc")
TITLES: dict[How, str] = {
    "plain": "plain",
    "compiled": "compiled",
    "portable": "our portable kernels",
    "hopper": "our kernels for Hopper",
}


def measured() -> list[str]:
    """A row a card, task and number of processes; a column a kind of step."""
    hows = get_args(How)
    lines = [f"| card | task | {' | '.join(TITLES[how] for how in hows)} |", "|---" * (2 + len(hows)) + "|"]
    for card, task, processes in dict.fromkeys((row.card, row.task, row.processes) for row in ROWS):
        cells = []
        for how in hows:
            found = [
                row for row in ROWS if (row.card, row.task, row.processes, row.how) == (card, task, processes, how)
            ]
            cells.append(_cell(found[0]) if found else "")
        name = "CPU, 2 threads" if card == CPU else f"{f'{processes} × ' if processes > 1 else ''}{card}"
        lines.append(f"| {name} | `{task}` | {' | '.join(cells)} |")
    return lines


def _cell(row: Row) -> str:
    return f"{row.ms:.4g} ([n = {row.n}](../records/{row.record}/README.md))"


def estimated() -> list[str]:
    """A row a card that has none above; the step that a session takes there."""
    lines = ["| card | capability | products, TFLOP/s | memory, TB/s | step |" + "".join(f" `{t}` |" for t in LARGE)]
    lines.append("|---" * (5 + len(LARGE)) + "|")
    for card in CARDS:
        if any(card_of(row.card) is card for row in ROWS):
            continue
        how = usual(card.capability)
        times = [_rounded(found.ms) for task in LARGE if (found := expected(card.model, *shape(task), how))]
        capability = ".".join(map(str, card.capability))
        cells = (card.model, capability, f"{card.tflops:g}", f"{card.tbs:g}", TITLES[how], *times)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def shape(task: str) -> tuple[TrainConfig, object]:
    config = PRESETS["arc1" if task == "arc" else task].model_copy(update={"batch_size": SHAPES[task]})
    return config, sizes_of(config)


def _rounded(ms: float) -> str:
    """Two digits: an estimate is no better."""
    return f"{float(f'{ms:.2g}'):,.0f}"


def releases() -> list[str]:
    lines = [
        "| Triton | with torch | tried on | largest error of a kernel | a step of `sudoku` | record |",
        "|---" * 6 + "|",
    ]
    for one in TRIED:
        record = f"[{one.record}](../records/{one.record}/README.md)"
        lines.append(
            f"| {one.triton} | {one.torch} | {one.card} | {one.error:.1e} | {one.ms} ms (n = {one.n}) | {record} |"
        )
    return lines


def page(text: str) -> str:
    """The page with those of the tables that it has made anew, each between two comments."""
    for name, lines in (("measured", measured()), ("estimated", estimated()), ("releases", releases())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        assert text.count(begin) == text.count(end) <= 1, name
        table = "\n".join(lines)
        text = re.sub(
            f"{begin}.*?{end}", lambda _, table=table, begin=begin, end=end: f"{begin}{table}\n{end}", text, flags=re.S
        )
    return text


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(page(one.read_text()))
