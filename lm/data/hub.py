"""FineWeb-Edu from the Hugging Face hub, in shards; validation and test are documents of a shard that none trains on.

The set is under ODC-By; each shard has some 250 million characters and takes 0.1 GB.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from lm.data.documents import documents
from relay.torch.faults import DataError
from relay.torch.files import Fetching, Report, download, permit
from storage.wording import counted

REPO = "karpathy/fineweb-edu-100b-shuffle"
HELD_OUT = 1822
"""The last shard."""
TRIES = 5
SHARD_GB, TEXT_GB = 0.1, 0.25
_WAIT_S = 2.0
_INSTEAD = "set data.train to a file of your own"


def name_of(shard: int) -> str:
    """The name of its file."""
    return f"shard_{shard:05d}.parquet"


def fetch(root: Path, shards: int, report: Report, fetching: Fetching | None) -> list[Path]:
    """The paths of the held-out shard and of the first shards; what is not below `root` is downloaded.

    Prints disk and time first. Raises DataError after some tries, NotHere if `fetching` is None.
    """
    folder = root / "fineweb-edu"
    paths = [folder / name_of(shard) for shard in (HELD_OUT, *range(shards))]
    absent = [path for path in paths if not path.exists()]
    if not absent:
        return paths
    size = f"{len(absent) * SHARD_GB:.1f} GB"
    shown = permit(fetching, f"FineWeb-Edu (data.train=hub, {counted(len(absent), 'shard')}, {size})", folder)
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = len(absent) * SHARD_GB + shards * TEXT_GB, shutil.disk_usage(folder).free / 1e9
    report(
        f"Downloading {counted(len(absent), 'shard')} of FineWeb-Edu, some {size}; with its tokens {needed:.1f} GB of "
        f"disk, {free:.1f} GB are free. At 30 MB/s this takes {len(absent) * SHARD_GB * 1000 / 30 / 60:.0f} minutes."
    )
    if needed > free:
        raise DataError(f"{folder} has {free:.1f} GB free, and {needed:.1f} GB are needed. Set fewer data.shards.")
    for number, path in enumerate(absent, 1):
        began = time.monotonic()
        _try(path, shown)
        mb, seconds = path.stat().st_size / 1e6, max(time.monotonic() - began, 1e-3)
        report(f"{path.name} ({number} of {len(absent)}): {mb:,.1f} MB, {mb / seconds:,.1f} MB/s")
    return paths


def _try(path: Path, fetching: Fetching) -> None:
    for left in reversed(range(TRIES)):
        try:
            download(REPO, path, fetching, _INSTEAD)
            return
        except DataError:
            if not left:
                raise
            time.sleep(_WAIT_S * (TRIES - left))


def held_out(path: Path, most: int, odd: bool) -> Iterator[str]:
    """Every second document of the held-out shard, some `most` bytes."""
    for number, document in enumerate(documents(path)):
        if number % 2 == odd:
            yield document
            most -= len(document)
            if most <= 0:
                return
