"""Writes relay/app/data/rates.yaml from the records: the table of trm/cards.py, and rates.json in docs/records.

    python benchmarks/rates.py

Each row of trm/cards.py must be on its record's page, or in one of its JSON files. A rates.json holds a list of rows
as they are in rates.yaml; benchmarks/cloud_prediction.py writes one. Of two records the newer counts, and a step of
trm/cards.py counts as it is there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from relay.app.cloud.machines import shipped  # noqa: E402
from relay.app.cloud.rates import Efficiency, Rate, Rates  # noqa: E402
from trm.cards import CPU, ROWS, Row, flops_of  # noqa: E402

RECORDS = ROOT / "docs" / "records"
OUT = ROOT / "relay" / "app" / "data" / "rates.yaml"
HEAD = """# Measured steps. Written by `python benchmarks/rates.py` from docs/records; no rate is typed.
"""
TASKS = {"arc": "arc1"}
"""Shapes of trm/cards.py that are no task's name."""
TOGETHER = "2026-11-28_two_gpus"


def rates() -> Rates:
    """All that the records hold."""
    found = [_rate(row) for row in ROWS if row.card != CPU]
    newest: dict[tuple[str, str, str, int], Rate] = {}
    for path in sorted(RECORDS.glob("*/rates.json")):
        rows = (Rate.model_validate(row) for row in json.loads(path.read_text()))
        newest |= {_shape(row): row for row in rows}
    known = {_shape(one) for one in found}
    found += [row for shape, row in newest.items() if shape not in known]
    return Rates(rates=tuple(found), together=tuple(together()))


def _shape(rate: Rate) -> tuple[str, str, str, int]:
    return rate.task, rate.card, rate.method, rate.gpus


def _rate(row: Row) -> Rate:
    if not stands_in_record(row):
        raise SystemExit(f"{row.ms} ms of {row.task} on {row.card} is not in docs/records/{row.record}")
    card = shipped().card(row.card)
    assert card is not None, row.card
    return Rate(
        task=TASKS.get(row.task, row.task), card=card.name, method=row.how, gpus=row.processes, ms=row.ms,
        step_tflop=round(flops_of(row.task) / 1e12, 4), n=row.n, torch=row.torch, triton=row.triton, record=row.record,
    )  # fmt: skip


def stands_in_record(row: Row) -> bool:
    """Whether a record's page or files have this number, to the digits of the row."""
    digits = len(f"{row.ms:g}".partition(".")[2])
    texts = [path.read_text() for path in (RECORDS / row.record).iterdir() if path.suffix in (".json", ".md")]
    numbers = {f"{float(found):.{digits}f}" for text in texts for found in re.findall(r"\d+\.?\d*", text)}
    return f"{row.ms:.{digits}f}" in numbers


def together() -> Iterator[Efficiency]:
    """Of two GPUs, against one in the same call."""
    rows = json.loads((RECORDS / TOGETHER / "together.json").read_text())["rows"]
    one, two = (min(row["ms"] for row in rows if row["processes"] == count) for count in (1, 2))
    n = min(row["n"] for row in rows)
    yield Efficiency(task="sudoku", card="H200", gpus=2, share=round(one / two / 2, 4), n=n, record=TOGETHER)


def main() -> None:
    """Write the file."""
    OUT.write_text(HEAD + yaml.safe_dump(rates().model_dump(mode="json"), sort_keys=False, width=120))
    print(OUT)


if __name__ == "__main__":
    main()
