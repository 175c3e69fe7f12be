"""A checkpoint's list of files, validated as if a stranger wrote it; knows nothing of transfer or of the ledger."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from relay.state import Digest, Name, NextDigest, Step, Strict, Text

MAX_BYTES = 1_000_000
MAX_FILES = 1_000
MANIFEST = "manifest.json"

FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
_KEY = re.compile(
    r"^checkpoints/(?P<project>[a-z0-9][a-z0-9_-]{0,63})/(?P<run>[a-z0-9][a-z0-9_-]{0,63})"
    r"/step_(?P<step>0|[1-9][0-9]{0,15})\.e(?P<epoch>0|[1-9][0-9]{0,15})/(?P<file>[a-z0-9][a-z0-9._-]{0,99})$",
    re.ASCII,
)


class BadManifest(ValueError):
    """The bytes are not a manifest of this checkpoint; one line saying why."""


class FileEntry(Strict):
    """One file of a checkpoint."""

    name: FileName
    ref: Text
    """The store's Ref."""
    key: Text
    """Full name in the store."""
    size: Annotated[int, Field(ge=0, lt=2**50)]
    sha256: Digest


class Manifest(Strict):
    """Everything a reader needs to fetch and check a checkpoint (P6, P11)."""

    format: Literal[1] = 1
    project: Name
    run: Name
    step: Step
    epoch: Annotated[int, Field(ge=1, lt=2**53)]
    state_hash: Digest
    files: Annotated[tuple[FileEntry, ...], Field(max_length=MAX_FILES)]
    config_hash: Digest
    fingerprint: dict[Annotated[str, Field(max_length=60)], Text]
    code_version: Text
    next: NextDigest | None = None
    metrics: dict[Annotated[str, Field(max_length=100)], float] = {}

    @model_validator(mode="after")
    def _names_are_ours(self) -> Manifest:
        folded = [entry.name.casefold() for entry in self.files]
        if len(set(folded)) != len(folded) or MANIFEST in folded:
            raise ValueError("file names are not unique")
        for entry in self.files:
            place = parse_key(entry.key)
            if (place.project, place.run, place.file) != (self.project, self.run, entry.name):
                raise ValueError(f"{entry.key!r} is not a file of run {self.project}/{self.run}")
        return self


class Place(Strict):
    """A checkpoint file's key, taken apart."""

    project: Name
    run: Name
    step: int
    epoch: int
    file: str

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch) of the checkpoint folder."""
        return self.step, self.epoch


def parse_key(key: str) -> Place:
    """Take a key apart; ValueError if it is not exactly of the form this program writes."""
    match = _KEY.match(key)
    if match is None or not match["file"].isascii() or "\n" in key:
        raise ValueError(f"{key[:120]!r} is not the name of a checkpoint file")
    return Place(
        project=match["project"],
        run=match["run"],
        step=int(match["step"]),
        epoch=int(match["epoch"]),
        file=match["file"],
    )


def folder_key(project: str, run: str, step: int, epoch: int) -> str:
    """Folder of one checkpoint in the store, without a trailing slash."""
    return f"checkpoints/{project}/{run}/step_{step}.e{epoch}"


def encode(manifest: Manifest) -> bytes:
    """JSON bytes, at most `MAX_BYTES`; ValueError beyond."""
    data = manifest.model_dump_json(indent=1).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"manifest of {len(data)} bytes, at most {MAX_BYTES} are allowed")
    return data


def decode(data: bytes, *, project: str, run: str, step: int, epoch: int) -> Manifest:
    """Parse and check that it is the manifest of exactly this checkpoint. Raises BadManifest."""
    if len(data) > MAX_BYTES:
        raise BadManifest(f"manifest of {len(data)} bytes, at most {MAX_BYTES} are allowed")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadManifest(f"manifest is not valid: {'.'.join(map(str, first['loc']))} {first['msg']}") from error
    if (manifest.project, manifest.run, manifest.step, manifest.epoch) != (project, run, step, epoch):
        raise BadManifest(f"manifest is of {manifest.project}/{manifest.run} step_{manifest.step}.e{manifest.epoch}")
    return manifest
