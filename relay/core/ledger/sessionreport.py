"""What one session leaves behind of itself: relay.session/1, strict and bounded both ways; knows no store or clock.

It holds ids only: no label, host, path or address. The ledger is the truth; this tells more, and is advice.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from relay.core.ledger.canonical import NotCanonical, digest, dumps, loads
from relay.core.ledger.entry import is_newer
from relay.core.ledger.fields import Certified, Digest, Epoch, Gpu, Id, Line, Metrics, Seconds, Strict, Text, Time
from relay.core.names import Name
from relay.core.workload import Step

MAX_BYTES = 64_000
MAX_CHECKPOINTS = 50
SCHEMA = "relay.session/1"
SHORTEST_S = 1e-3
"""A shorter time tells no pace."""
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
"""`upload` is what training had to wait for at the end; what runs beside training costs no time of its own."""


class Newer(ValueError):
    """A later version wrote it."""


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
    """What is left of the account's hours, in seconds, and how that is known; times are the store's clock."""

    left_s: Seconds
    of_s: Seconds | None = None
    source: Line
    read_at: Time
    resets_at: Time | None = None


class SessionReport(Strict):
    """One session, as it saw itself when it ended. Durations are seconds, sizes bytes, times the store's clock."""

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
    """By how much the newest checkpoints delayed training, where that could be measured; part of `train`."""
    from_step: Step
    to_step: Step
    """The newest step of this session that is durable."""
    steps_per_hour: Annotated[float, Field(ge=0)] | None = None
    """Durable steps per hour of lease."""
    goodput: Annotated[float, Field(ge=0, le=1)]
    metrics: Metrics = Field(default={})
    validated_step: Step | None = None
    validation: float | None = None
    """Share of puzzles of the validation rows that were solved."""
    checkpoints: tuple[Made, ...] = Field(default=(), max_length=MAX_CHECKPOINTS)
    """The newest ones, oldest first."""
    commits: Step
    certified: Certified
    why: Line = ""
    follows: Epoch | None = None
    """The epoch whose checkpoint it went on from."""
    incidents: tuple[Happened, ...] = Field(default=(), max_length=20)
    exit_code: Annotated[int, Field(ge=0, le=255)]
    end: Line
    at_risk_s: Seconds
    """At most this much work a kill could have cost."""
    unsent: bool = False
    """A checkpoint is on that machine only."""
    quota: Left | None = None
    """None: nobody named hours, or it could not be read in the time left."""
    next: Name | None = None

    def document(self) -> dict[str, Any]:
        """relay.session/1."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}


def encode(report: SessionReport) -> bytes:
    """Canonical bytes of the report and its SHA-256. Raises ValueError beyond MAX_BYTES."""
    document = report.document()
    data = dumps({"report": document, "sha256": digest(dumps(document))})
    if len(data) > MAX_BYTES:
        raise ValueError(f"a session report of {len(data)} bytes; at most {MAX_BYTES} are allowed")
    return data


def decode(data: bytes) -> SessionReport:
    """What a session left in a store. Raises Newer, or ValueError (one line) for what none of this version wrote."""
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
    """The validated report of a relay.session/1. Raises Newer, ValueError (one line)."""
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
    """Steps an hour; None where none was gained or no time is known (a stranger's state may claim any)."""
    return steps * 3600 / seconds if steps > 0 and seconds >= SHORTEST_S else None


def named(fingerprint: dict[str, str]) -> dict[str, str]:
    """Of a fingerprint, what a report can hold."""
    fits = {key: value for key, value in fingerprint.items() if key.isascii() and key.replace("_", "").islower()}
    return dict(list(fits.items())[:20])
