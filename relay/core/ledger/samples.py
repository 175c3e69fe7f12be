"""Metrics between two commits: kept in bounded memory, thinned by step, written as columns; knows no training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from relay.core.ledger.fields import MetricName, Strict
from relay.core.ledger.frozen import MAX_COLUMNS, MAX_METRICS, MAX_NAME, MAX_ROWS
from relay.core.workload import Step

GATHERED = 8 * MAX_ROWS
"""Rows that wait for their commit; a whole day without one is thinned to this."""
DIGITS = 5
"""Significant digits that are kept: what a curve can show."""
MAX_STATE = 230_000
"""Bytes of a state beside which every table fits into an entry; beside a larger one there is none."""

_ABOUT_ITSELF = re.compile(r".*(_s|_ms|_bytes)|goodput")

Place = Annotated[int, Field(ge=0, le=10**9)]


class Row(NamedTuple):
    """What training told at one step. `at` is a second: of the session's clock while it waits, of the lease once
    written."""

    step: int
    at: float
    values: Mapping[str, float]


class Samples(Strict):
    """Row i is what was told at step `steps[i]`; null where a metric was not told there."""

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_ROWS)]
    seconds: Annotated[tuple[Place, ...], Field(max_length=MAX_ROWS)]
    """Since the session's lease; all 0 where another session had trained them."""
    columns: Annotated[
        dict[MetricName, Annotated[tuple[float | None, ...], Field(max_length=MAX_ROWS)]],
        Field(min_length=1, max_length=MAX_COLUMNS),
    ]

    @model_validator(mode="after")
    def _is_a_table(self) -> Self:
        if {len(self.seconds), *map(len, self.columns.values())} != {len(self.steps)}:
            raise ValueError("its columns are not equally long")
        if any(one >= other for one, other in pairwise(self.steps)):
            raise ValueError("its steps do not grow")
        if any(one > other for one, other in pairwise(self.seconds)):
            raise ValueError("its seconds fall")
        return self

    def rows(self) -> Iterator[Row]:
        """One for each step, without what was not told there."""
        for i, step in enumerate(self.steps):
            told = {name: value for name, column in self.columns.items() if (value := column[i]) is not None}
            yield Row(step, float(self.seconds[i]), told)


class Gathered:
    """What training told since the newest commit; of one thread."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def add(self, step: int, at: float, metrics: Mapping[str, float]) -> None:
        """What was told at `step`, in place of anything told there or later: a step that is done again counts."""
        told = {name: value for name, value in metrics.items() if math.isfinite(value)}
        while self._rows and self._rows[-1].step >= step:
            self._rows.pop()
        if told:
            self._rows.append(Row(step, at, told))
        if len(self._rows) > GATHERED:
            self._rows = list(thinned(self._rows, GATHERED // 2))

    def since(self, committed: int) -> tuple[Row, ...]:
        """Rows after the committed step; the others are let go."""
        self._rows = [row for row in self._rows if row.step > committed]
        return tuple(self._rows)


def thinned(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """At most `most` of the rows: the newest, and those at the multiples of the smallest power of two that will do.

    So what is kept depends on the steps alone, not on when commits came.
    """
    if len(rows) <= most:
        return rows
    stride = 1
    while True:
        stride *= 2
        kept = [row for row in rows[:-1] if row.step % stride == 0]
        if len(kept) < most:
            return [*kept, rows[-1]]


def on_clock(rows: Sequence[Row], began: float) -> list[Row]:
    """The rows by the clock of a lease that began at that monotonic second."""
    return [row._replace(at=max(0.0, row.at - began)) for row in rows]


def untimed(samples: Samples | None) -> list[Row]:
    """The rows of a table that another session of this machine had kept: its clock says nothing here."""
    return [row._replace(at=0.0) for row in samples.rows()] if samples else []


def table(rows: Sequence[Row], after: int, up_to: int) -> Samples | None:
    """Rows of the steps after `after` up to `up_to`, as an entry holds them; None without any."""
    fitting = thinned([row for row in rows if after < row.step <= up_to], MAX_ROWS)
    told = dict.fromkeys(name for row in fitting for name in row.values if len(name) <= MAX_NAME)
    names = list(told)[:MAX_COLUMNS]
    if not names:
        return None
    seconds, latest = [], 0
    for row in fitting:
        latest = max(latest, min(10**9, int(row.at)))
        seconds.append(latest)
    return Samples(
        steps=tuple(row.step for row in fitting),
        seconds=tuple(seconds),
        columns={name: tuple(_short(row.values.get(name)) for row in fitting) for name in names},
    )


def about_itself(name: str) -> bool:
    """Whether a metric is what a session tells of itself (times, sizes, goodput), not of training."""
    return bool(_ABOUT_ITSELF.fullmatch(name))


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics an entry can hold: finite numbers, short names, a bounded count."""
    good = {name[:MAX_NAME]: float(value) for name, value in metrics.items() if math.isfinite(value)}
    return dict(list(good.items())[-MAX_METRICS:])


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{DIGITS}g}")
    return short if math.isfinite(short) else value  # the largest of all would be rounded up to infinity
