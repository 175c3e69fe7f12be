"""Writes the training file of the complete run: the published 1,000 puzzles, and 500 others that only validate.

    python data.py train_1k.csv train_extra_1k.csv train_1500.csv

A run draws its training rows from the file by its seed and validates on rows that are left over. This file has its rows
in such an order that seed 0 draws exactly the published thousand, in their own order; so what is pinned of the training
puzzles is what train_1k.csv alone would pin. Run it where the package can be imported.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from trm.rng import Stream

from trm import rng
from trm.data.sudoku import read_csv
from trm.tasks import split

SEED, TRAIN, VALID = 0, 1000, 500


def read(path: str) -> list[list[str]]:
    """Its rows without the header."""
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))[1:]


def main() -> None:
    """Write the file, then look with the product's own code which rows it draws."""
    known, further, out = sys.argv[1:]
    order = rng.permutations(SEED, 0, Stream.BUILD, 1, TRAIN + VALID)[0]
    places = order[:TRAIN].sort().values.tolist()
    rest = sorted(set(range(TRAIN + VALID)) - set(places))
    rows = dict(zip(places, read(known), strict=True)) | dict(zip(rest, read(further)[:VALID], strict=True))
    with Path(out).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("source", "question", "answer", "rating"))
        writer.writerows(rows[place] for place in sorted(rows))
    (train, labels), valid = split(read_csv(Path(out)), TRAIN, SEED)
    inputs, answers = read_csv(Path(known))
    assert valid is not None and bool((train == inputs).all()) and bool((labels == answers).all())
    print(f"{out}: trains on {len(train):,} rows of {known}, validates on {len(valid[0]):,} of {further}")


if __name__ == "__main__":
    main()
