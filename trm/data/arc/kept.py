"""Keeps what a build draws in a file, because the published sets take a minute or two at the start of each session."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from safetensors import numpy as safetensors

from relay.torch.faults import DataError
from relay.torch.files import replacing
from trm.data.arc.tasks import Task
from trm.data.arc.variants import Draws, draw

SLOW = 50_000
"""Variants that take some seconds to draw."""


def draws_below(
    root: Path, subsets: Mapping[str, Sequence[Task]], test_set: str, num_aug: int, side: int, slow: int = SLOW
) -> Draws:
    """Those of `variants.draw`. Many are kept below `root`, under the hash of all that decides them."""
    given = list(subsets.items()), test_set, num_aug, side
    if num_aug * sum(map(len, subsets.values())) < slow:
        return draw(dict(given[0]), *given[1:])
    path = root / f"arc-{hashlib.sha256(repr(given).encode()).hexdigest()}.draws"
    with suppress(OSError):
        if (found := _read(path.read_bytes())) is not None:
            return found
    made = draw(dict(given[0]), *given[1:])
    packed = safetensors.save(vars(made))
    with suppress(DataError), replacing(path) as file:  # without room the next session draws again
        file.write(hashlib.sha256(packed).digest() + packed)
    return made


def _read(content: bytes) -> Draws | None:
    """None if a byte is not as it was written."""
    digest, packed = content[:32], content[32:]
    if hashlib.sha256(packed).digest() != digest:
        return None
    return Draws(**safetensors.load(packed))
