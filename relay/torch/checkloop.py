"""Traces the steps of a loop by digests of each part, random stream and batch, to find the first that differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from relay.core.ledger.canonical import digest, dumps
from relay.torch.digest import Digest
from relay.torch.loop import LoopWorkload
from relay.torch.plain import Book, Unstorable, encode

Row = dict[str, str]
"""Digests by name: `batch`, `random stream …` and `part …`."""
STREAM = "random stream"


class Trace:
    """Appends one line for each step to a file."""

    def __init__(self, path: Path, stop: int) -> None:
        """`stop`: the step after which the session ends; 0 for none."""
        self._path, self.stop = path, stop

    def step(self, workload: LoopWorkload, batch: Any) -> None:
        """A step was made with this batch."""
        if self.stop and workload.step > self.stop:
            return
        row = {"batch": of_value(batch)}
        for name, state in workload.streams.capture().items():
            row[f"{STREAM} {name}"] = of_value(state)
        found = workload.state()
        for part in workload.parts:
            plain = digest(dumps(found.nodes[part.name]))
            row[f"part {part.name}"] = digest((of_tensors(found.of(part.name)) + plain).encode())
        with self._path.open("a") as file:
            file.write(json.dumps([workload.step, row]) + "\n")


def of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """A digest of named tensors."""
    return Digest(tensors, {}).text


def of_value(value: Any) -> str:
    """A digest of any plain value with tensors; of its type for others."""
    book = Book()
    try:
        node = encode(value, "value", book)
    except Unstorable:
        return digest(f"{type(value).__qualname__}".encode())
    return digest((of_tensors(book.tensors) + digest(dumps(node))).encode())


@dataclass(frozen=True)
class Difference:
    """The first step whose digests differ, and the names that differ there; what comes first is the likelier cause."""

    step: int
    names: tuple[str, ...]


def first_difference(whole: Sequence[tuple[int, Row]], resumed: Sequence[tuple[int, Row]]) -> Difference | None:
    """Compare the steps that both traces have. A random stream that no step draws from may begin anywhere."""
    rows = dict(whole)
    idle = {name for name in resumed[0][1] if _is_idle(name, whole) and _is_idle(name, resumed)} if resumed else set()
    for step, row in resumed:
        names = tuple(name for name in row if name not in idle and rows[step].get(name) != row[name])
        if names:
            return Difference(step, names)
    return None


def _is_idle(name: str, trace: Sequence[tuple[int, Row]]) -> bool:
    return name.startswith(STREAM) and len({row.get(name) for _, row in trace}) == 1


def read_trace(path: Path) -> Iterator[tuple[int, Row]]:
    """(step, digests) of a trace."""
    for line in path.read_text().splitlines():
        step, row = json.loads(line)
        yield int(step), dict(row)
