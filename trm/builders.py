"""Translates the command lines of the reference's data builders into `prepare`. Needs no torch and no data."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

SEED = 42
"""Of the reference's ARC builder; ours has no other."""


def built(words: Sequence[str]) -> list[str] | None:
    """`prepare` for a builder's line (`dataset.build_arc_dataset --subsets …`, with or without dataset/ and .py); None
    for other words. Exits with 2 for a wrong line, as the builders do.
    """
    name = words[0].replace("/", ".").removesuffix(".py").removeprefix("dataset.") if words else ""
    return _BUILDERS[name](words[1:]) if name in _BUILDERS else None


def _arc(words: Sequence[str]) -> list[str]:
    parser = _parser("build_arc_dataset")
    parser.add_argument("--input-file-prefix", required=True)
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--subsets", nargs="+", required=True)
    parser.add_argument("--test-set-name", required=True)
    parser.add_argument("--num-aug", default="1000")
    parser.add_argument("--max-puzzles", help="data.max_tasks; the reference has no such option")
    parser.add_argument("--seed", type=int, choices=[SEED], default=SEED)
    given = parser.parse_args(words)
    task = "arc2" if "evaluation2" in given.subsets else "arc1"
    most = [f"data.max_tasks={given.max_puzzles}"] if given.max_puzzles else []
    return [
        "prepare",
        f"task={task}",
        f"data.source={given.input_file_prefix}",
        f"data.subsets=[{','.join(given.subsets)}]",
        f"data.test_set={given.test_set_name}",
        f"data.num_aug={given.num_aug}",
        *most,
        "--folder",
        given.output_dir,
    ]


def _sudoku(words: Sequence[str]) -> list[str]:
    parser = _parser("build_sudoku_dataset")
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--subsample-size", required=True, help="puzzles to train on")
    parser.add_argument("--num-aug", default="0")
    given = parser.parse_args(words)
    size = f"data.train_rows={given.subsample_size}"
    stored = ["--num-aug", given.num_aug] if given.num_aug != "0" else []
    return ["prepare", "task=sudoku", "data.train=hub", "data.test=hub", size, *stored, "--folder", given.output_dir]


def _parser(name: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"pretrain.py dataset.{name}", allow_abbrev=False)


_BUILDERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "build_arc_dataset": _arc,
    "build_sudoku_dataset": _sudoku,
}
