"""Compares ARC builds with the reference's golden hashes: `python benchmarks/arc_builds.py FOLDER [--full]`.

FOLDER holds arc-agi_{training,evaluation,concept,training2,evaluation2}_{challenges,solutions}.json as the reference
bundles them (Apache-2.0 and MIT; not part of this repository). Prints a line for each check; ends with 1 if one fails.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from trm.data.arc import folder
from trm.data.arc.rows import of_build
from trm.data.arc.tasks import read_subsets
from trm.data.arc.variants import Build, build
from trm.data.arc.votes import Votes
from trm.presets import KS

ARC1, ARC2 = ("training", "evaluation", "concept"), ("training2", "evaluation2", "concept")
GOLDEN = {
    "A": (ARC2, "evaluation2", 0, {
        "identifiers.json": "5e90ed41", "test_puzzles.json": "fc56e4de", "train/inputs": "35db83c5",
        "train/labels": "291d610b", "train/puzzle_identifiers": "be452623", "train/puzzle_indices": "19e0b40d",
        "train/group_indices": "7ae49dda", "test/inputs": "c204c1b9", "test/labels": "f3038677",
    }),
    "C": (("concept", "evaluation"), "evaluation", 3, {
        "identifiers.json": "7bf8300b", "test_puzzles.json": "c0db7043", "train/inputs": "756959af",
        "train/labels": "bd61cd7b", "train/puzzle_indices": "d18591f8", "test/inputs": "aeac21e0",
        "test/labels": "95dc38b8",
    }),
    "E": (("evaluation2",), "evaluation2", 4, {
        "identifiers.json": "71fd3efd", "test/inputs": "cee4c6b7", "test/labels": "a47755b4",
        "train/inputs": "ef4a6cbd", "train/labels": "04b754d1",
    }),
}  # fmt: skip
"""Beginnings of SHA-256: of arrays' bytes, and of JSON files."""
EVALUATED = {
    "E": ((0.672222222222, 0.744444444444, *[0.902777777778] * 4), (119, 135), "017cea01"),
    "C": ((0.59625, 0.7525, *[0.91875] * 4), (249, 316), "6d576905"),
}
"""pass@K for all K, right outputs with one and two attempts, and the submission with sorted keys."""
FULL = {
    "ARC-1": (ARC1, "evaluation", 876_406, 3_633_410, 385_815, "9f42efad"),
    "ARC-2": (ARC2, "evaluation2", 1_191_730, 5_163_277, 170_393, "d7ff9bad"),
}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hashes(made: Build) -> dict[str, str]:
    """Of everything that the folder holds."""
    with TemporaryDirectory() as scratch:
        place = Path(scratch) / "set"
        folder.write(made, place)
        found = {path.name: sha(path.read_bytes()) for path in place.glob("*.json")}
        for path in place.glob("*/*.npy"):
            name = f"{path.parent.name}/{path.stem.removeprefix('all__')}"
            found[name] = sha(np.load(path).tobytes())
        return found


def checks(source: Path, full: bool) -> Iterator[tuple[str, bool]]:
    """Each check, and whether it holds."""
    for name, (subsets, test_set, num_aug, golden) in GOLDEN.items():
        made = build(read_subsets(source, subsets), test_set, num_aug)
        found = hashes(made)
        yield from ((f"{name} {what}", found[what].startswith(begin)) for what, begin in golden.items())
        if name in EVALUATED:
            yield f"{name} evaluation", evaluation(made) == EVALUATED[name]
    for name, (subsets, test_set, identifiers, train, test, begin) in FULL.items() if full else ():
        began = time.monotonic()
        made = build(read_subsets(source, subsets), test_set, 1000)
        counts = len(made.names), made.train.count, made.test.count
        right = counts == (identifiers, train, test) and made.names.hash.startswith(begin)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        yield f"{name} {counts} in {time.monotonic() - began:.0f} s, peak {peak:.2f} GB", right


def evaluation(made: Build) -> tuple[tuple[float, ...], tuple[int, int], str]:
    """The golden predictions (right, copied, wrong and empty rows in turn) under the reference's rules."""
    data = of_build(made, made.test)
    inputs, labels = (tensor.numpy() for tensor in data.tokens(0, data.size))
    rows = np.arange(data.size)
    kind, answers = (rows**2 + rows // 7) % 5, labels.copy()
    answers[kind == 1] = inputs[kind == 1]
    answers[kind == 2, 0] = 2 + (answers[kind == 2, 0].astype(int) - 1) % 10
    answers[kind == 4] = 0
    votes = Votes(data, upstream=True)
    votes.add(0, answers, ((37 * rows) % 17 - 8) / 4)
    score = votes.score()
    assert score is not None
    text = json.dumps(votes.reference_submission(), sort_keys=True, separators=(",", ":"))
    return tuple(round(score.by_task[k], 12) for k in KS), score.right, sha(text.encode())[:8]


def main() -> int:
    """Run all checks."""
    failed = 0
    for what, holds in checks(Path(sys.argv[1]), "--full" in sys.argv):
        print(f"{'equal' if holds else 'DIFFERENT'}  {what}", flush=True)
        failed += not holds
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
