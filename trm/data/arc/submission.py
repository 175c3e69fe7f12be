"""Checks, scores and begins submission.json of ARC-AGI. Standard library only: the file can be copied and used alone.

python submission.py SUBMISSION TASKS       prints every fault; exit 0 or 65
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIDE, COLORS = 30, 10
"""Greatest height and width of a grid; number of colors."""
ATTEMPTS = ("attempt_1", "attempt_2")
BAD_DATA = 65
_MOST_BYTES = 1 << 28

Grid = list[list[int]]
RawTask = Mapping[str, Any]
"""{"train": [{"input", "output"}, …], "test": [{"input"}, …]}"""
Submission = dict[str, list[dict[str, Grid]]]


class Unreadable(ValueError):
    """A file of tasks or solutions that cannot be used; the message names file, task and pair."""


@dataclass(frozen=True)
class Fault:
    """One reason for which the competition would refuse a submission, or count an attempt as wrong."""

    text: str
    task: str | None = None
    test: int | None = None
    """Test input, from 1."""
    attempt: str | None = None

    def __str__(self) -> str:
        where = [f"task {self.task}"] * (self.task is not None) + [f"test {self.test}"] * (self.test is not None)
        return one_line(
            f"{', '.join([*where, *([self.attempt] if self.attempt else [])]) or 'submission'}: {self.text}"
        )


def one_line(text: str) -> str:
    """The text with a question mark for each character that would break the line or control a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def grid_fault(raw: object, side: int = SIDE) -> str | None:
    """What keeps a value from being a grid: 1 to `side` rows of equal length 1 to `side`, of whole numbers 0 to 9."""
    if not isinstance(raw, list) or not all(isinstance(row, list) for row in raw):
        return "it is not a list of rows"
    if not raw or not raw[0]:
        return "it has no cells"
    if len(raw) > side or len(raw[0]) > side:
        return f"it has {len(raw)} x {len(raw[0])} cells; {side} x {side} is the most"
    for number, row in enumerate(raw, 1):
        if len(row) != len(raw[0]):
            return f"row {number} has the length {len(row)}, the first row {len(raw[0])}"
        odd = [cell for cell in row if type(cell) is not int or not 0 <= cell < COLORS]
        if odd:
            return f"row {number} holds {odd[0]!r:.40}, which is not a color from 0 to 9"
    return None


def faults(made: object, tasks: Mapping[str, RawTask]) -> list[Fault]:
    """Everything that is wrong with a submission for these tasks."""
    if not isinstance(made, dict):
        return [Fault("it is not an object with the tasks as keys")]
    found = [Fault("it is missing", name) for name in tasks if name not in made]
    found += [Fault("the tasks file does not have it", str(name)[:80]) for name in made if name not in tasks]
    for name in (name for name in tasks if name in made):
        outputs, count = made[name], len(tasks[name]["test"])
        if not isinstance(outputs, list) or len(outputs) != count:
            had = f"a list of {len(outputs)}" if isinstance(outputs, list) else "no list"
            found.append(Fault(f"it has {had}; it needs one output for each test input: {count}", name))
            continue
        for number, output in enumerate(outputs, 1):
            found += _output_faults(name, number, output)
    return found


def _output_faults(name: str, number: int, output: object) -> list[Fault]:
    if not isinstance(output, dict):
        return [Fault("it is not an object with two attempts", name, number)]
    found = [
        Fault("it is not one of the two attempts", name, number, str(key)[:80]) for key in output.keys() - ATTEMPTS
    ]
    for attempt in ATTEMPTS:
        fault = grid_fault(output[attempt]) if attempt in output else "it is missing"
        found += [Fault(fault, name, number, attempt)] if fault else []
    return found


def check(path: Path, tasks: Mapping[str, RawTask]) -> list[Fault]:
    """The faults of a file."""
    try:
        return faults(read_json(path), tasks)
    except Unreadable as error:
        return [Fault(str(error))]


def read_json(path: Path) -> Any:
    """A file's content. A key that comes twice is an error: readers disagree on which value counts."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise Unreadable(f"{path}: {twice!r:.100} comes twice")
        return made

    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable(f"{path} is not a file")  # a pipe would be waited for
        if about.st_size > _MOST_BYTES:
            raise Unreadable(f"{path} has more than {_MOST_BYTES:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"{path} is not complete JSON: {error.msg} in line {error.lineno}") from error
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a number of thousands of digits
        raise Unreadable(f"{path} is not JSON: {type(error).__name__}") from error


def read_tasks(path: Path) -> dict[str, RawTask]:
    """The tasks of a file of challenges, or of a folder with one JSON file a task. Raises Unreadable."""
    if os.path.isdir(path):  # noqa: PTH112 - Path's raises for a name that is too long
        raw: Any = {file.stem: read_json(file) for file in sorted(path.glob("*.json"))}
    else:
        raw = read_json(path)
    if not isinstance(raw, dict) or not raw:
        raise Unreadable(f"{path} holds no tasks. Name a file of challenges, {{task: {{train, test}}}}.")
    for name, task in raw.items():
        for kind, parts in (("train", ("input", "output")), ("test", ("input",))):
            pairs = task.get(kind) if isinstance(task, dict) else None
            if not isinstance(pairs, list) or not pairs:
                raise Unreadable(f"{path}, task {name:.80}: it has no list {kind} with a pair")
            for number, pair in enumerate(pairs, 1):
                for part in parts:
                    fault = grid_fault(pair.get(part)) if isinstance(pair, dict) else "it is not a pair"
                    if fault:
                        raise Unreadable(f"{path}, task {name:.80}, {kind} {number}, {part}: {fault}")
    return raw


def fallback(task: RawTask) -> list[dict[str, Grid]]:
    """Attempts without a model: the input, and its shape in the commonest color of the demonstrations' outputs."""
    return [attempts((), task, test) for test in range(len(task["test"]))]


def attempts(candidates: Iterable[Grid], task: RawTask, test: int) -> dict[str, Grid]:
    """The first two different grids of the candidates and then the fallback; one twice if there is no other."""
    question: Grid = task["test"][test]["input"]
    counts = Counter(cell for pair in task["train"] for row in pair["output"] for cell in row)
    color = min(counts, key=lambda one: (-counts[one], one))
    chosen: list[Grid] = []
    for grid in (*candidates, question, [[color] * len(row) for row in question]):
        if grid not in chosen and len(chosen) < len(ATTEMPTS):
            chosen.append(grid)
    return dict(zip(ATTEMPTS, (chosen[0], chosen[-1]), strict=True))


def text_of(made: Submission, tasks: Mapping[str, RawTask]) -> bytes:
    """submission.json. Raises ValueError if it would not be valid."""
    found = faults(made, tasks)
    if found:
        raise ValueError(f"the submission would not be valid: {found[0]}")
    return json.dumps(made).encode()


def replace(path: Path, content: bytes) -> None:
    """Write a file so that after any crash it is the old one or the new one. Raises OSError, and leaves the old one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Scored:
    """Right outputs of each task: (with one attempt, with two, of so many)."""

    tasks: Mapping[str, tuple[int, int, int]]

    @property
    def outputs(self) -> int:
        """Test outputs."""
        return sum(of for _, _, of in self.tasks.values())

    @property
    def right(self) -> tuple[int, int]:
        """Right outputs with one attempt and with two."""
        return sum(one for one, _, _ in self.tasks.values()), sum(two for _, two, _ in self.tasks.values())

    @property
    def by_output(self) -> float:
        """The competition's score: share of outputs that one of two attempts solves."""
        return self.right[1] / self.outputs

    def by_task(self, count: int) -> float:
        """Mean over tasks of the share of their outputs, with so many attempts: 1 or 2."""
        return math.fsum(found[count - 1] / found[2] for found in self.tasks.values()) / len(self.tasks)


def score(made: Submission, solutions: Mapping[str, Sequence[Grid]]) -> Scored:
    """Compare a valid submission with the solutions of its tasks."""
    return Scored({name: _right(made[name], grids) for name, grids in solutions.items()})


def _right(outputs: Sequence[Mapping[str, Grid]], truths: Sequence[Grid]) -> tuple[int, int, int]:
    first = [output[ATTEMPTS[0]] == truth for output, truth in zip(outputs, truths, strict=True)]
    either = [truth in output.values() for output, truth in zip(outputs, truths, strict=True)]
    return sum(first), sum(either), len(truths)


def read_solutions(path: Path) -> dict[str, list[Grid]]:
    """A file of solutions, {task: [grid, …]}, or of tasks that hold their outputs. Raises Unreadable."""
    raw = read_json(path)
    if isinstance(raw, dict):
        raw = {name: _outputs(found) if isinstance(found, dict) else found for name, found in raw.items()}
    if not isinstance(raw, dict) or not raw or not all(isinstance(grids, list) and grids for grids in raw.values()):
        raise Unreadable(f"{path} holds no solutions, {{task: [grid, …]}}")
    for name, grids in raw.items():
        for number, grid in enumerate(grids, 1):
            if fault := grid_fault(grid):
                raise Unreadable(f"{path}, task {name:.80}, test {number}: {fault}")
    return raw


def _outputs(task: RawTask) -> list[object]:
    tests = task.get("test")
    return [pair.get("output") for pair in tests if isinstance(pair, dict)] if isinstance(tests, list) else []


def as_tasks(solutions: Mapping[str, Sequence[Grid]]) -> dict[str, RawTask]:
    """Tasks with so many test inputs, for `faults`: a submission is scored only if it fits the solutions."""
    return {name: {"test": grids} for name, grids in solutions.items()}


FIELDS = (
    "score_outputs", "score_tasks", "pass_at", "candidates", "coverage", "provenance", "votes", "valid", "complete",
)  # fmt: skip
"""Of relay.arc/1, null where a command does not know them."""


def document(command: str, **found: Any) -> dict[str, Any]:
    """relay.arc/1, which every command about submissions prints with --json."""
    return {"schema": "relay.arc/1", "command": command} | dict.fromkeys(FIELDS) | found


def main(words: Sequence[str]) -> int:
    """The command line of this file alone."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = check(Path(words[0]), read_tasks(Path(words[1])))
    except Unreadable as error:
        print(one_line(str(error)), file=sys.stderr)
        return BAD_DATA
    print("\n".join(map(str, found)) or f"{words[0]} is valid.")
    return BAD_DATA if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
