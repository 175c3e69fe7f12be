"""What an entry passes over: slots that could not be read as entries, and checkpoints they may have named (P4)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from relay.core.ledger.fields import Digest, Epoch, Exact, Sparing
from relay.core.ledger.frozen import ADDED, MAX_DIGESTS, MAX_KEPT
from relay.core.workload import Step


class Kept(Sparing):
    """A checkpoint that an entry which was passed over may have committed. Clean-up leaves it; `fork` can take it."""

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
    """Of the manifest's bytes as they were read when the entry was written."""
    base: tuple[Step, Epoch] | None = None
    """Key of the checkpoint that it borrows files from, which is kept with it."""

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch)."""
        return self.step, self.epoch

    @property
    def folder(self) -> str:
        """Prefix of its own files."""
        return self.manifest.rpartition("/")[0] + "/"


class Passed(Sparing):
    """Part of every entry whose base lies before the slot just before it (format 5)."""

    added: ClassVar[tuple[str, ...]] = ADDED["Passed"]

    digests: Annotated[tuple[Digest, ...], Field(min_length=1, max_length=MAX_DIGESTS)]
    """SHA-256 of the bytes that were read in the newest slots passed over, oldest first."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Checkpoints that these slots may have committed, oldest first."""
    unkept: Annotated[int, Field(gt=0, lt=2**53)] | None = None
    """How many older ones found no room in `kept`."""
    hinted: tuple[Step, Digest] | None = None
    """The slot among them that the log's hint names, and the digest that its entry had by the hint."""
