"""A file up to an S3 server and down again: the relay's transfer against the SDK's own upload_file and download_file.

    python -m benchmarks.s3_throughput [ministack|seaweedfs] [megabytes] [rounds]

Both verify nothing twice: the relay's upload is checked by the server's own hash, its download by SHA-256. Prints the
median of each and the ratio, and the most memory this process ever used. Servers and clients share this machine.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from storage.base import open_store
from storage.transfer import Wanted, download, file_digest, upload
from tests.storage.s3.servers import BUCKET, ENVIRONMENT, UNWANTED, server


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def memory() -> float:
    """Most megabytes this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(name: str = "ministack", megabytes: str = "250", rounds: str = "3") -> None:
    for unwanted in UNWANTED:
        os.environ.pop(unwanted, None)
    os.environ.update(ENVIRONMENT)
    folder, size = Path(tempfile.mkdtemp(prefix="s3-throughput-")), int(megabytes) * 1_000_000
    source = folder / "model"
    source.write_bytes(Random(0).randbytes(size))
    running = server(name)
    store, sdk = open_store(running.address("bench")), running.sdk()
    warm = folder / "warm"
    warm.write_bytes(b"x" * 20_000_000)
    upload(store, folder, {"warm": "warm"})
    sdk.upload_file(str(warm), BUCKET, "warm")
    wanted = [Wanted(store.ref("model"), "model", *file_digest(source))]
    times: dict[str, list[float]] = {"up relay": [], "up sdk": [], "down relay": [], "down sdk": []}
    peaks = [memory()]
    for _ in range(int(rounds)):
        sdk.delete_object(Bucket=BUCKET, Key="bench/model")
        times["up relay"].append(timed(lambda: upload(store, folder, {"model": "model"})))
        times["down relay"].append(timed(lambda: download(store, wanted, folder / "got")))
        (folder / "got" / "model").unlink()
        peaks.append(memory())
        times["up sdk"].append(timed(lambda: sdk.upload_file(str(source), BUCKET, "sdk")))
        times["down sdk"].append(timed(lambda: sdk.download_file(BUCKET, "sdk", str(folder / "sdk"))))
    print(f"{name}, {megabytes} MB, {rounds} rounds")
    for way in ("up", "down"):
        ours, theirs = (statistics.median(times[f"{way} {who}"]) for who in ("relay", "sdk"))
        rate = size / 1e6
        print(f"{way:5} relay {rate / ours:6.1f} MB/s, SDK {rate / theirs:6.1f} MB/s, ratio {theirs / ours:.2f}")
    print(
        f"memory: {peaks[0]:.0f} MB before, {peaks[1]:.0f} MB after the relay's first round, {memory():.0f} MB in all"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
