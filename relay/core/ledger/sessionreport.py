"""The report of one session (relay.session/1), and its metrics between two commits. Strict and bounded both ways.

It holds ids only: no label, host, path or address. The ledger is the truth; the report adds details, and is advice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from relay.core.ledger.canonical import NotCanonical, digest, dumps, loads
from relay.core.ledger.entry import is_newer
from relay.core.ledger.fields import (
    Certified,
    Digest,
    Epoch,
    Gpu,
    Id,
    Line,
    MetricName,
    Metrics,
    Seconds,
    Strict,
    Text,
    Time,
)
from relay.core.ledger.frozen import ASKED, MAX_COLUMNS, MAX_METRICS, MAX_NAME, MAX_ROWS
from relay.core.names import Name
from relay.core.workload import Step

# --- Metrics between two commits: bounded in memory, thinned by step, written as columns ----------------------------

GATHERED = 8 * MAX_ROWS
"""Most rows that wait for their commit; more are thinned."""
DIGITS = 5
"""Significant digits that are kept; a curve shows no more."""
MAX_STATE = 230_000
"""Bytes of the largest state that leaves room for a table in an entry; with a larger one there is no table."""

_ABOUT_ITSELF = re.compile(rf".*(_s|_ms|_bytes)|goodput|evaluated_(step|score|rows)|.*/{ASKED}")

WholeSeconds = Annotated[int, Field(ge=0, le=10**9)]


class MetricsRow(NamedTuple):
    """The metrics of one step. `at`: monotonic seconds of the session while the row waits, seconds since the lease once
    it is written."""

    step: int
    at: float
    values: Mapping[str, float]


class Samples(Strict):
    """Row i holds the metrics of step `steps[i]`; null where a metric is absent at that step."""

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_ROWS)]
    seconds: Annotated[tuple[WholeSeconds, ...], Field(max_length=MAX_ROWS)]
    """Since the session's lease; all 0 if another session trained these steps."""
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

    def rows(self) -> Iterator[MetricsRow]:
        """One row for each step, without the metrics that are absent there."""
        for i, step in enumerate(self.steps):
            values = {name: value for name, column in self.columns.items() if (value := column[i]) is not None}
            yield MetricsRow(step, float(self.seconds[i]), values)


class Gathered:
    """The metrics of training since the newest commit. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: list[MetricsRow] = []

    def add(self, step: int, at: float, metrics: Mapping[str, float]) -> None:
        """Add the metrics of `step`. They replace rows of this step and later ones: training may repeat a step."""
        values = {name: value for name, value in metrics.items() if math.isfinite(value)}
        while self._rows and self._rows[-1].step >= step:
            self._rows.pop()
        if values:
            self._rows.append(MetricsRow(step, at, values))
        if len(self._rows) > GATHERED:
            self._rows = list(thinned(self._rows, GATHERED // 2))

    def since(self, committed: int) -> tuple[MetricsRow, ...]:
        """Rows after the committed step; earlier ones are dropped."""
        self._rows = [row for row in self._rows if row.step > committed]
        return tuple(self._rows)


def thinned(rows: Sequence[MetricsRow], most: int) -> Sequence[MetricsRow]:
    """At most `most` of the rows: the newest, and those at multiples of the smallest power of two that suffices.

    So the choice depends on the steps alone, not on the times of the commits.
    """
    if len(rows) <= most:
        return rows
    stride = 1
    while True:
        stride *= 2
        kept = [row for row in rows[:-1] if row.step % stride == 0]
        if len(kept) < most:
            return [*kept, rows[-1]]


def on_clock(rows: Sequence[MetricsRow], began: float) -> list[MetricsRow]:
    """The rows with `at` since a lease that began at the monotonic second `began`."""
    return [row._replace(at=max(0.0, row.at - began)) for row in rows]


def untimed(samples: Samples | None) -> list[MetricsRow]:
    """The rows of a table that another session of this machine kept, without their times: its clock is unknown here."""
    return [row._replace(at=0.0) for row in samples.rows()] if samples else []


def table(rows: Sequence[MetricsRow], after: int, up_to: int) -> Samples | None:
    """Rows of the steps after `after` up to `up_to`, as an entry holds them; None without any."""
    fitting = thinned([row for row in rows if after < row.step <= up_to], MAX_ROWS)
    short = dict.fromkeys(name for row in fitting for name in row.values if len(name) <= MAX_NAME)
    names = list(short)[:MAX_COLUMNS]
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
    """Whether a metric describes the session (times, sizes, goodput, a carried evaluation, a missing test) and not
    training."""
    return bool(_ABOUT_ITSELF.fullmatch(name))


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics that an entry can hold: finite numbers, short names, a bounded count."""
    good = {name[:MAX_NAME]: float(value) for name, value in metrics.items() if math.isfinite(value)}
    return dict(list(good.items())[-MAX_METRICS:])


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{DIGITS}g}")
    return short if math.isfinite(short) else value  # the largest double would be rounded up to infinity


MAX_BYTES = 64_000
MAX_CHECKPOINTS = 50
SCHEMA = "relay.session/1"
SHORTEST_S = 1e-3
"""A shorter time is too short for a rate."""
PhaseName = Literal[
    "import",
    "prepare",
    "acquire",
    "restore",
    "cache",
    "compile",
    "capture",
    "train",
    "evaluate",
    "snapshot",
    "upload",
    "release",
    "other",
]
"""`upload` is the wait for it at the end; an upload during training takes no time of its own."""


class Newer(ValueError):
    """A later version wrote the report."""


class Made(Strict):
    """A checkpoint that the session committed."""

    step: Step
    state_hash: Digest
    bytes: Step


class Happened(Strict):
    """An incident of the session."""

    at: Time
    step: Step
    cause: Line
    text: Text


class Left(Strict):
    """The account's remaining quota in seconds, and its source; times are the store's clock."""

    left_s: Seconds
    of_s: Seconds | None = None
    source: Line
    read_at: Time
    resets_at: Time | None = None


class SessionReport(Strict):
    """One session's own report at its end. Durations are seconds, sizes bytes, times the store's clock."""

    format: Literal[1] = 1
    project: Name
    run: Name
    run_id: Id
    epoch: Epoch
    account: Name
    provider: Name | None = None
    cloud: Name | None = None
    gpu: Gpu | None = None
    environment: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")], Line], Field(max_length=20)] = Field(
        default={}
    )
    """The workload's fingerprint: versions, device, threads."""
    code_version: Line = ""
    config_hash: Digest
    started: Time
    """The lease's own time."""
    wall_s: Seconds
    """From the start of the process to this report."""
    lease_s: Seconds
    phases: dict[PhaseName, Seconds]
    """Add up to `wall_s`."""
    stall_s: tuple[Seconds, ...] = Field(default=(), max_length=MAX_CHECKPOINTS)
    """Delay of training by each of the newest checkpoints, where it was measured; part of `train`."""
    from_step: Step
    to_step: Step
    """The newest step of this session that is durable."""
    steps_per_hour: Annotated[float, Field(ge=0)] | None = None
    """Durable steps per hour of lease."""
    goodput: Annotated[float, Field(ge=0, le=1)]
    metrics: Metrics = Field(default={})
    validated_step: Step | None = None
    validation: float | None = None
    """The newest checkpoint's score: its headline metric, larger is better."""
    checkpoints: tuple[Made, ...] = Field(default=(), max_length=MAX_CHECKPOINTS)
    """The newest ones, oldest first."""
    commits: Step
    certified: Certified
    why: Line = ""
    follows: Epoch | None = None
    """The epoch whose checkpoint it continued from."""
    incidents: tuple[Happened, ...] = Field(default=(), max_length=20)
    exit_code: Annotated[int, Field(ge=0, le=255)]
    end: Line
    at_risk_s: Seconds
    """Most work that a kill could have lost."""
    unsent: bool = False
    """A checkpoint is only on that machine's disk."""
    quota: Left | None = None
    """None: no quota is configured, or it could not be read in the time left."""
    next: Name | None = None

    def document(self) -> dict[str, Any]:
        """The report as a relay.session/1 document."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}


def encode(report: SessionReport) -> bytes:
    """Canonical bytes of the report and its SHA-256. Raises ValueError beyond MAX_BYTES."""
    document = report.document()
    data = dumps({"report": document, "sha256": digest(dumps(document))})
    if len(data) > MAX_BYTES:
        raise ValueError(f"a session report of {len(data)} bytes; at most {MAX_BYTES} are allowed")
    return data


def decode(data: bytes) -> SessionReport:
    """Parse stored bytes. Raises Newer, or ValueError (one line) if no session of this version wrote them."""
    try:
        whole = loads(data, MAX_BYTES)
        if not isinstance(whole, dict) or set(whole) != {"report", "sha256"} or not isinstance(whole["report"], dict):
            raise ValueError("it is not a report and its SHA-256")
        if digest(dumps(whole["report"])) != whole["sha256"]:
            raise ValueError("its SHA-256 does not fit it")
    except NotCanonical as error:
        raise ValueError(str(error)) from error
    return parse(whole["report"])


def parse(document: dict[str, Any]) -> SessionReport:
    """The validated report of a relay.session/1 document. Raises Newer, ValueError (one line)."""
    found = dict(document)
    schema, number = found.pop("schema", None), found.get("format")
    if is_newer(number):
        raise Newer(f"it has format {number}, which a newer version wrote")
    if schema != SCHEMA:
        raise ValueError(f"it is not {SCHEMA}")
    try:
        return SessionReport.model_validate_json(dumps(found))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(str(part) for part in problem['loc'])[:80]}: {problem['msg'][:120]}") from error


def per_hour(steps: int, seconds: float) -> float | None:
    """Steps an hour; None without steps or with too short a time (a stranger's state may claim any values)."""
    return steps * 3600 / seconds if steps > 0 and seconds >= SHORTEST_S else None


def named(fingerprint: dict[str, str]) -> dict[str, str]:
    """The part of a fingerprint that a report can hold."""
    fits = {key: value for key, value in fingerprint.items() if re.fullmatch(r"[a-z_]{1,32}", key)}
    return dict(list(fits.items())[:20])
