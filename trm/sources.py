"""Describes where a training's puzzles came from, so that other participants can bring the same."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import BinaryIO, cast

from relay.core.runs.sources import Source
from trm.config import GENERATED, HUB, TrainConfig
from trm.data.arc.source import ArcDatasets
from trm.data.dataset import Dataset
from trm.data.folders import is_folder
from trm.tasks import Datasets

_BLOCK = 1 << 20


def sources(config: TrainConfig, data: Datasets | ArcDatasets) -> dict[str, Source]:
    """The source of the training and of the test puzzles; none for ARC's files, which every participant names alone."""
    if isinstance(data, ArcDatasets):
        keys = () if config.data.source or config.data.train != GENERATED else ("data.train", "data.test")
        return dict.fromkeys(keys, Source(kind="generated"))
    found = {"data.train": _source(config.data.train, data.train)}
    test = config.data.test
    return {**found, "data.test": Source(kind="generated") if test == GENERATED else _source(test, data.test)}


def _source(source: str, data: Dataset) -> Source:
    if source == GENERATED:
        return Source(kind="generated")
    if source == HUB:
        return Source(kind="hub")
    path = Path(source).expanduser().absolute()
    if is_folder(source):
        return Source(kind="folder", name=path.name, rows=data.size, sha256=data.content_hash)
    return Source(kind="file", name=path.name, rows=_rows(path), sha256=_digest(path))


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _rows(path: Path) -> int:
    """Lines of a CSV file that are not blank, without the header."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        raw = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if packed else plain
        return max(0, sum(bool(line.strip()) for line in raw) - 1)
