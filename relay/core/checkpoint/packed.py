"""A checkpoint on a machine's disk as its description there says it; knows no disk."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from relay.core.checkpoint.manifest import MAX_FILES, FileEntry, FileName
from relay.core.ledger.fields import Digest, Epoch, Id, Metrics, Sparing, Strict, Text
from relay.core.ledger.samples import Samples
from relay.core.ledger.state import NextDigest
from relay.core.names import Name
from relay.core.workload import Step


class LocalFile(Strict):
    """One file of the folder."""

    name: FileName
    size: Annotated[int, Field(ge=0)]
    sha256: Digest


class Packed(Sparing):
    """A checkpoint on this machine's disk, complete and hashed."""

    added: ClassVar[tuple[str, ...]] = ("samples", "base", "borrowed", "lends", "committed")

    format: Literal[1] = 1
    project: Name
    run: Name
    run_id: Id
    step: Step
    epoch: Epoch
    parent: tuple[Step, Epoch] | None
    """Key of the head it was trained from."""
    state_hash: Digest
    files: Annotated[tuple[LocalFile, ...], Field(max_length=MAX_FILES)]
    config_hash: Digest
    fingerprint: dict[Annotated[str, Field(max_length=60)], Text]
    next: NextDigest | None = None
    metrics: Metrics = Field(default_factory=dict)
    samples: Samples | None = None
    """What training had told since the parent."""
    base: tuple[Step, Epoch] | None = None
    """As `Checkpoint.base`."""
    borrowed: Annotated[tuple[FileEntry, ...], Field(max_length=MAX_FILES)] = ()
    """Which of the files lie in the store already, and where: in the checkpoint `base`."""
    lends: Annotated[tuple[FileName, ...], Field(max_length=MAX_FILES)] = ()
    """Which of its own files later checkpoints may borrow; not known of a checkpoint that was fetched."""
    committed: bool | None = None
    """True once the ledger has named it; else it may never have been sent."""

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.epoch

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def own(self) -> tuple[LocalFile, ...]:
        """The files that are sent under its own key."""
        borrowed = {file.name for file in self.borrowed}
        return tuple(file for file in self.files if file.name not in borrowed)

    @property
    def sent_bytes(self) -> int:
        """Size of these."""
        return sum(file.size for file in self.own)

    @property
    def lent(self) -> tuple[str, ...]:
        """Names of files that later checkpoints may borrow."""
        return self.lends or (tuple(file.name for file in self.files) if self.base == self.key else ())

    @property
    def unlent_bytes(self) -> int:
        """Size of those of its own files that each checkpoint has to send anew."""
        return sum(file.size for file in self.own if file.name not in self.lends)

    def alone(self) -> Packed:
        """The same with nothing borrowed: all its files are sent, and lends those that it borrowed."""
        if not self.borrowed:
            return self
        return self.model_copy(
            update={"base": self.key, "borrowed": (), "lends": tuple(file.name for file in self.borrowed)}
        )

    def renamed(self, epoch: int, parent: tuple[int, int] | None) -> Packed:
        """The same under another epoch."""
        base = (self.step, epoch) if self.base == self.key else self.base
        return self.model_copy(update={"epoch": epoch, "parent": parent, "base": base, "committed": None})
