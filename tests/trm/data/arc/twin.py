"""The reference's builder as its description has it (reference/arc.md 3, trm.md 9 and 10), grid by grid with numpy.

The product draws the same numbers without these operations; tests compare every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from trm.data.arc.tasks import Grid, Task

Puzzle = list[tuple[np.ndarray, np.ndarray]]


def dihedral(grid: np.ndarray, t: int) -> np.ndarray:
    return [
        lambda x: x,
        lambda x: np.rot90(x, 1),
        lambda x: np.rot90(x, 2),
        lambda x: np.rot90(x, 3),
        np.fliplr,
        np.flipud,
        np.transpose,
        lambda x: np.fliplr(np.rot90(x, 1)),
    ][t](grid)


def grid_hash(grid: np.ndarray) -> str:
    return hashlib.sha256(bytes(grid.shape) + np.ascontiguousarray(grid).tobytes()).hexdigest()


def puzzle_hash(parts: Mapping[str, Puzzle]) -> str:
    pairs = sorted(f"{grid_hash(a)}|{grid_hash(b)}" for puzzle in parts.values() for a, b in puzzle)
    return hashlib.sha256("|".join(pairs).encode()).hexdigest()


def sequence(grid: np.ndarray, down: int, across: int, side: int) -> np.ndarray:
    canvas = np.zeros((side, side), np.uint8)
    rows, columns = grid.shape
    canvas[down : down + rows, across : across + columns] = grid + 2
    if down + rows < side:
        canvas[down + rows, across : across + columns] = 1
    if across + columns < side:
        canvas[down : down + rows, across + columns] = 1
    return canvas.flatten()


def array(grid: Grid | None) -> np.ndarray:
    return np.array(grid, dtype=np.uint8)


def build(subsets: Mapping[str, Sequence[Task]], test_set: str, num_aug: int, side: int) -> dict[str, object]:
    """Names, and for both parts the reference's arrays, with the training part first."""
    np.random.seed(42)
    parts: dict[str, list[list[tuple[str, Puzzle]]]] = {"train": [], "test": []}
    for subset, tasks in subsets.items():
        order = list(tasks)
        np.random.shuffle(order)
        for task in order:
            kinds = {"train": task.demonstrations, "test": task.tests}
            goes = {"train": "train", "test": "test" if subset == test_set else "train"}
            plain: dict[str, Puzzle] = {}
            for kind in task.order:
                plain.setdefault(goes[kind], []).extend((array(p.input), array(p.output)) for p in kinds[kind])
            group, seen = [(task.name, plain)], {puzzle_hash(plain)}
            for _ in range(5 * num_aug):
                t = np.random.randint(0, 8)
                mapping = np.concatenate(([0], np.random.permutation(np.arange(1, 10)))).astype(np.uint8)
                name = f"{task.name}|||t{t}|||{''.join(map(str, mapping))}"
                made = {
                    part: [(dihedral(mapping[a], t), dihedral(mapping[b], t)) for a, b in puzzle]
                    for part, puzzle in plain.items()
                }
                if puzzle_hash(made) not in seen:
                    seen.add(puzzle_hash(made))
                    group.append((name, made))
                if len(group) == num_aug + 1:
                    break
            for part in plain:
                parts[part].append([(name, made[part]) for name, made in group])
    names: dict[str, int] = {}
    for groups in parts.values():
        for name, _ in (one for group in groups for one in group):
            names.setdefault(name, len(names) + 1)
    found: dict[str, object] = {"names": ["<blank>", *names]}
    for part, groups in parts.items():
        inputs, labels, ids, puzzles, edges = [], [], [], [0], [0]
        for group in groups:
            for name, puzzle in group:
                fixed = np.random.randint(0, len(puzzle))
                for number, (a, b) in enumerate(puzzle):
                    down = across = 0
                    if part == "train" and number != fixed:
                        down = np.random.randint(0, side - max(len(a), len(b)) + 1)
                        across = np.random.randint(0, side - max(a.shape[1], b.shape[1]) + 1)
                    inputs.append(sequence(a, down, across, side))
                    labels.append(sequence(b, down, across, side))
                ids.append(names[name])
                puzzles.append(puzzles[-1] + len(puzzle))
            edges.append(len(ids))
        found[part] = {
            "inputs": np.stack(inputs),
            "labels": np.stack(labels),
            "puzzle_identifiers": np.array(ids, np.int32),
            "puzzle_indices": np.array(puzzles, np.int32),
            "group_indices": np.array(edges, np.int32),
        }
    return found
