"""Compares upload and download by the relay with the one-line call of the service's own SDK.

    python -m benchmarks.throughput --backend s3-ministack|s3-seaweedfs|dropbox|drive [--mb 250] [--rounds 5]
        [--megabits 1000]

Starts the server, or the fake service, in a separate process on this machine, with --megabits behind a link of that
speed. Both sides take turns in every round, each first equally often. Prints medians of the time, of the processor
seconds of this process and of the server, the peak memory of this process, and the ratio of the medians: above 1 the
relay is faster.

The relay verifies uploads by the server's own hash, and downloads by their SHA-256. The one-line calls verify less:
boto3 sends a CRC32 of every part and checks nothing in the download of an object in parts; Dropbox's and Google's SDKs
check neither direction.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.link import slowed
from storage.base import Ref, Store, open_store
from storage.transfer import Wanted, download, upload

TICKS = os.sysconf("SC_CLK_TCK")
MEBI = 1 << 20


class Cost(NamedTuple):
    """Cost of one transfer: seconds, processor seconds here and in the server, peak MiB of this process."""

    wall: float
    here: float
    server: float
    memory: float


@dataclass
class Sdk:
    """The SDK's own way; `down` finds the file by the result of `up`."""

    up: Callable[[Path], str]
    down: Callable[[str, Path], object]


def s3(name: str, megabits: float) -> tuple[Store, Sdk]:
    import boto3
    from botocore.config import Config

    from tests.storage.s3.servers import BUCKET, ENVIRONMENT, UNWANTED, server

    for unwanted in UNWANTED:
        os.environ.pop(unwanted, None)
    os.environ.update(ENVIRONMENT)
    running = server(name)
    if megabits:
        port = slowed(urlsplit(running.endpoint_url).port or 80, megabits)
        running = replace(running, endpoint_url=f"http://127.0.0.1:{port}")
    sdk = boto3.client(
        "s3",
        endpoint_url=running.endpoint_url,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )

    def up(path: Path) -> str:
        sdk.upload_file(str(path), BUCKET, "sdk")
        return "sdk"

    return open_store(running.address("bench")), Sdk(up, lambda key, path: sdk.download_file(BUCKET, key, str(path)))


def dropbox(megabits: float) -> tuple[Store, Sdk]:
    """`files_upload` takes 150 MB at most: a larger file needs a session."""
    import dropbox as package
    from dropbox.files import CommitInfo, UploadSessionCursor, WriteMode

    from tests.storage.dropbox.handle import PORT, running

    person = running().account()
    slow_down(PORT, megabits)
    sdk = package.Dropbox(person.holds["access_token"])

    def up(path: Path, piece: int = 8 * MEBI) -> str:
        with path.open("rb") as file:
            session = sdk.files_upload_session_start(file.read(piece)).session_id
            size = path.stat().st_size
            while size - (at := file.tell()) > piece:
                sdk.files_upload_session_append_v2(file.read(piece), UploadSessionCursor(session, at))
            commit = CommitInfo("/sdk", WriteMode.overwrite)
            sdk.files_upload_session_finish(file.read(piece), UploadSessionCursor(session, at), commit)
        return "/sdk"

    return person.store(), Sdk(up, lambda name, path: sdk.files_download_to_file(str(path), name))


def drive(megabits: float) -> tuple[Store, Sdk]:
    from googleapiclient.http import MediaFileUpload, MediaIoBaseDownload

    from tests.storage.drive.handle import PORT, running
    from tests.storage.drive.stores import Drive

    person = running().person()
    slow_down(PORT, megabits)
    store, service = Drive(person).store(), person.service()

    def up(path: Path) -> str:
        media = MediaFileUpload(str(path), "application/octet-stream", resumable=True)
        return str(service.files().create(body={"name": "sdk"}, media_body=media, fields="id").execute()["id"])

    def down(file: str, path: Path) -> None:
        with path.open("wb") as out:
            fetching, done = MediaIoBaseDownload(out, service.files().get_media(fileId=file)), False
            while not done:
                _, done = fetching.next_chunk()
        service.files().delete(fileId=file).execute()

    return store, Sdk(up, down)


def slow_down(variable: str, megabits: float) -> None:
    """Put a link in front of the fake service whose port the environment names."""
    if megabits:
        os.environ[variable] = str(slowed(int(os.environ[variable]), megabits))


BACKENDS: dict[str, Callable[[float], tuple[Store, Sdk]]] = {
    "s3-ministack": lambda megabits: s3("ministack", megabits),
    "s3-seaweedfs": lambda megabits: s3("seaweedfs", megabits),
    "dropbox": dropbox,
    "drive": drive,
}


def measured(work: Callable[[], Any]) -> tuple[Any, Cost]:
    """The result of the work, and its cost."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory
    before = (time.perf_counter(), time.process_time(), server_seconds())
    result = work()
    after = (time.perf_counter(), time.process_time(), server_seconds())
    return result, Cost(*(b - a for a, b in zip(before, after, strict=True)), most_memory())


def most_memory() -> float:
    """MiB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def server_seconds() -> float:
    """Processor seconds of the children of this process."""
    children: set[str] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):  # a thread that has just ended
            children.update(task.read_text().split())
    stats = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS


def one_round(store: Store, sdk: Sdk, folder: Path, relay_first: bool) -> dict[str, Cost]:
    """Both sides up and down once."""
    costs: dict[str, Cost] = {}

    def relay() -> None:
        sent, costs["up relay"] = measured(lambda: upload(store, folder, {"model": "model"}))
        wanted = [Wanted(sent[0].ref, "model", sent[0].size, sent[0].sha256)]
        _, costs["down relay"] = measured(lambda: download(store, wanted, folder / "got"))
        (folder / "got" / "model").unlink()
        store.delete(Ref(sent[0].ref))

    def sdks() -> None:
        key, costs["up sdk"] = measured(lambda: sdk.up(folder / "model"))
        _, costs["down sdk"] = measured(lambda: sdk.down(key, folder / "sdk"))
        (folder / "sdk").unlink()

    for side in (relay, sdks) if relay_first else (sdks, relay):
        side()
    return costs


def report(backend: str, megabytes: int, rounds: list[dict[str, Cost]]) -> None:
    """A row for each direction and side, then the ratio."""
    print(f"{backend}, {megabytes} MB, medians of n={len(rounds)}")
    print("| | MB/s | seconds | processor here | processor server | most memory MiB |\n|---|---|---|---|---|---|")
    medians = {what: [statistics.median(values) for values in zip(*(r[what] for r in rounds), strict=True)]
               for what in rounds[0]}  # fmt: skip
    for what, (wall, here, server, memory) in sorted(medians.items(), reverse=True):
        print(f"| {what} | {megabytes / wall:.0f} | {wall:.2f} | {here:.2f} | {server:.2f} | {memory:.0f} |")
    for way in ("up", "down"):
        each = sorted(r[f"{way} sdk"].wall / r[f"{way} relay"].wall for r in rounds)
        ratio = medians[f"{way} sdk"][0] / medians[f"{way} relay"][0]
        print(f"{way}: ratio {ratio:.2f} (single rounds {each[0]:.2f} to {each[-1]:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=sorted(BACKENDS), required=True)
    parser.add_argument("--mb", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabits", type=float, default=0.0, help="of the link; 0: as fast as this machine")
    args = parser.parse_args()
    store, sdk = BACKENDS[args.backend](args.megabits)
    folder = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        with (folder / "model").open("wb") as file:
            for _ in range(args.mb):
                file.write(os.urandom(1_000_000))
        one_round(store, sdk, folder, relay_first=True)  # connections, probes and caches
        rounds: list[dict[str, Cost]] = []
        for number in range(args.rounds):
            rounds.append(one_round(store, sdk, folder, relay_first=bool(number % 2)))
        report(f"{args.backend}{f', {args.megabits:g} Mbit/s' if args.megabits else ''}", args.mb, rounds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
