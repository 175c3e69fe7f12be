"""Types of the fields of stored objects, validated as if a stranger wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from relay.core.ledger.frozen import ADDED, EMPTY, LINE, MAX_DIGESTS, MAX_GPUS, MAX_KEPT, TEXT, clean, escaped
from relay.core.workload import Step


def cut(limit: int) -> Callable[[Any], Any]:
    """A validator that makes text printable and cuts it to `limit` bytes as JSON: a state must fit into an entry."""
    return lambda value: clean(value, limit, escaped) if isinstance(value, str) else value


Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Claim = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""The beginning of a digest that identifies a person, a run or a clause (relay/people/accounts.py)."""
Epoch = Annotated[int, Field(ge=0, lt=2**53)]
Time = Annotated[float, Field(ge=0, lt=1e11)]
"""Unix seconds by the store's clock."""
Text = Annotated[str, BeforeValidator(cut(TEXT))]
Line = Annotated[str, BeforeValidator(cut(LINE))]
"""Text and Line are for people: control characters are removed, and text that is too long as JSON is cut."""
Exact = Annotated[str, Field(pattern=r"^[ !#-\[\]-~]{0,200}$")]
"""A name, a Ref, a path in ASCII: never changed, refused if too long."""
Gpu = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,21}$")]
"""A kind of GPU by its short name, or cpu."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
GpuIndex = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
Whole = Annotated[int, Field(ge=0, lt=2**53)]
METRIC_NAME = r"^[ !#-\[\]-~]{1,64}$"
MetricName = Annotated[str, Field(pattern=METRIC_NAME)]
Metrics = Annotated[dict[MetricName, float], Field(max_length=32)]
Certified = Literal["exact", "not-exact", "unknown"]


class Strict(BaseModel):
    """Refuses unknown keys and silent conversions; immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Sparing(Strict):
    """Leaves out fields that later versions added while they are empty, so that entries without them stay the same
    bytes."""

    added: ClassVar[tuple[str, ...]] = ()
    """Names of these fields; all are empty by default."""

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in serialize(self).items() if key not in self.added or value not in EMPTY}


# --- Slots that an entry passes over because they are unreadable, and checkpoints they may have committed (P4) ------


class Kept(Sparing):
    """A checkpoint that a passed-over entry may have committed. Clean-up leaves it; `fork` can take it."""

    added: ClassVar[tuple[str, ...]] = ADDED["Kept"]

    slot: Step
    """The newest slot passed over by the entry that keeps it."""
    step: Step
    epoch: Epoch
    manifest: Exact
    """Name of its manifest."""
    ref: Exact
    """The store's Ref of the manifest."""
    sha256: Digest
    """Of the manifest's bytes, as read when the entry was written."""
    base: tuple[Step, Epoch] | None = None
    """Key of the checkpoint that it borrows files from, which is kept as well."""

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch)."""
        return self.step, self.epoch

    @property
    def folder(self) -> str:
        """Prefix of its own files."""
        return self.manifest.rpartition("/")[0] + "/"


class Passed(Sparing):
    """The slots that an entry passes over; part of every entry whose base is not the slot before it (format 5)."""

    added: ClassVar[tuple[str, ...]] = ADDED["Passed"]

    digests: Annotated[tuple[Digest, ...], Field(min_length=1, max_length=MAX_DIGESTS)]
    """SHA-256 of the bytes that were read in the newest slots passed over, oldest first."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Checkpoints that these slots may have committed, oldest first."""
    unkept: Annotated[int, Field(gt=0, lt=2**53)] | None = None
    """Number of older ones without room in `kept`."""
    hinted: tuple[Step, Digest] | None = None
    """The slot among them that the log's hint names, and the digest of its entry according to the hint."""
