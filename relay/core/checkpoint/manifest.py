"""A checkpoint's list of files, validated as if a stranger wrote it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from relay.core.ledger.canonical import NotCanonical, loads
from relay.core.ledger.fields import Digest, Epoch, Metrics, Strict, Text
from relay.core.ledger.state import NextDigest
from relay.core.names import MANIFEST, Name, Names
from relay.core.workload import Step

MAX_BYTES = 1_000_000
MAX_FILES = 1_000

FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
StoreText = Annotated[str, Field(pattern=r"^[ !#-\[\]-~]{1,400}$")]
"""A key or a Ref: never changed, refused if it is too long or not printable ASCII."""


class BadManifest(ValueError):
    """The bytes are not a manifest of this checkpoint; `str(e)` is one line with the reason."""

    def __init__(self, text: str, field: str = "") -> None:
        """field: the wrong one, dotted; empty if the document as a whole is wrong."""
        super().__init__(text)
        self.field = field


class FileEntry(Strict):
    """One file of a checkpoint."""

    name: FileName
    ref: StoreText
    """The store's Ref."""
    key: StoreText
    """Full name in the store."""
    size: Annotated[int, Field(ge=0, lt=2**50)]
    sha256: Digest


class Manifest(Strict):
    """All that a reader needs to fetch and check a checkpoint (P6, P11)."""

    format: Literal[1] = 1
    project: Name
    run: Name
    step: Step
    epoch: Epoch
    state_hash: Digest
    files: Annotated[tuple[FileEntry, ...], Field(max_length=MAX_FILES)]
    config_hash: Digest
    fingerprint: dict[Annotated[str, Field(max_length=60)], Text]
    code_version: Text
    next: NextDigest | None = None
    metrics: Metrics = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_ours(self) -> Manifest:
        folded = [entry.name.casefold() for entry in self.files]
        if len(set(folded)) != len(folded) or MANIFEST in folded:
            raise ValueError("file names are not unique")
        names = Names(self.project, self.run)
        for entry in self.files:
            place = names.parse_checkpoint(entry.key)
            if place is None or place[2] != entry.name:
                raise ValueError(f"{entry.key!r} is not a file of run {self.project}/{self.run}")
        return self

    def owns(self, entry: FileEntry) -> bool:
        """Whether a file belongs to this checkpoint; otherwise it belongs to an earlier one of this run."""
        place = Names(self.project, self.run).parse_checkpoint(entry.key)
        return place is not None and place[:2] == (self.step, self.epoch)

    def borrowed(self) -> tuple[FileEntry, ...]:
        """The files that belong to an earlier checkpoint."""
        return tuple(entry for entry in self.files if not self.owns(entry))


def encode(manifest: Manifest) -> bytes:
    """JSON bytes, at most `MAX_BYTES`; ValueError beyond."""
    data = manifest.model_dump_json(indent=1).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"manifest of {len(data)} bytes, at most {MAX_BYTES} are allowed")
    return data


def decode(
    data: bytes, *, project: str, run: str, step: int, epoch: int, folder: str, lender: str | None = None
) -> Manifest:
    """Parse a manifest and check that it is this checkpoint's. Raises BadManifest.

    folder: prefix of the checkpoint's own files, next to the manifest.
    lender: prefix of the checkpoint that it may borrow files from, according to the ledger.
    """
    try:
        loads(data, MAX_BYTES)
        manifest = Manifest.model_validate_json(data)
    except NotCanonical as error:
        raise BadManifest(f"manifest: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise BadManifest(f"manifest is not valid: {field} {first['msg']}", field) from error
    place = {"project": project, "run": run, "step": step, "epoch": epoch}
    for field, wanted in place.items():
        if getattr(manifest, field) != wanted:
            found = f"{manifest.project}/{manifest.run} step_{manifest.step}.e{manifest.epoch}"
            raise BadManifest(f"manifest is of {found}", field)
    for number, entry in enumerate(manifest.files):
        owner = folder if manifest.owns(entry) else lender
        if owner is None or not entry.key.startswith(owner):
            raise BadManifest(f"manifest names {entry.key}, a file of another checkpoint", f"files.{number}.key")
    return manifest
