"""A file up to an S3 server and down again: the relay's transfer against the SDK's own upload_file and download_file.

    python -m benchmarks.s3_throughput [ministack|seaweedfs] [megabytes] [rounds]

The relay's upload is checked by the server's SHA-256 of each part, its download by the SHA-256 of the whole. The SDK's
upload carries CRC32, or SHA-256 where that is asked for; its download is not checked. Prints medians and their ratios,
and the most memory this process had used before, after the relay's first round, and in all. Servers and clients share
this machine.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from storage.base import open_store
from storage.transfer import Wanted, download, file_digest, upload
from tests.storage.s3.servers import BUCKET, ENVIRONMENT, UNWANTED, server

PAIRS = (("up relay", "up SDK"), ("up relay", "up SDK with SHA-256"), ("down relay", "down SDK"))


def memory() -> float:
    """Most megabytes this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def a_file(path: Path, megabytes: int) -> Path:
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    return path


def main(name: str = "ministack", megabytes: str = "250", rounds: str = "3") -> None:
    for unwanted in UNWANTED:
        os.environ.pop(unwanted, None)
    os.environ.update(ENVIRONMENT)
    folder = Path(tempfile.mkdtemp(prefix="s3-throughput-"))
    source, warm = a_file(folder / "model", int(megabytes)), a_file(folder / "warm", 20)
    running = server(name)
    store, sdk = open_store(running.address("bench")), running.sdk()
    upload(store, folder, {"warm": "warm"})
    sdk.upload_file(str(warm), BUCKET, "warm")
    wanted = [Wanted(store.ref("model"), "model", *file_digest(source))]
    times: dict[str, list[float]] = defaultdict(list)
    peaks = [memory()]

    def timed(what: str, work: Callable[[], object]) -> None:
        begun = time.perf_counter()
        work()
        times[what].append(time.perf_counter() - begun)

    checked = {"ChecksumAlgorithm": "SHA256"}
    for _ in range(int(rounds)):
        store.delete(store.ref("model"))
        timed("up relay", lambda: upload(store, folder, {"model": "model"}))
        timed("down relay", lambda: download(store, wanted, folder / "got"))
        (folder / "got" / "model").unlink()
        peaks.append(memory())
        timed("up SDK", lambda: sdk.upload_file(str(source), BUCKET, "sdk"))
        timed("up SDK with SHA-256", lambda: sdk.upload_file(str(source), BUCKET, "sdk-2", ExtraArgs=checked))
        timed("down SDK", lambda: sdk.download_file(BUCKET, "sdk", str(folder / "sdk")))
    print(f"{name}, {megabytes} MB, median of {rounds} rounds")
    for pair in PAIRS:
        mine, sdks = (statistics.median(times[what]) for what in pair)
        rates = ", ".join(f"{what} {int(megabytes) / statistics.median(times[what]):.0f} MB/s" for what in pair)
        print(f"{rates}: ratio {sdks / mine:.2f}")
    print(
        f"memory: {peaks[0]:.0f} MB before, {peaks[1]:.0f} MB after the relay's first round, {memory():.0f} MB in all"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
