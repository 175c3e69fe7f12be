"""Uploads and downloads files: in parallel, resumable, verified byte for byte.

An upload never replaces other bytes under its key, except bytes that the same call has just sent wrongly.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from storage.contract import Corrupt, Exists, Missing, Ref, Store, TooLong, check_name
from storage.digests import BlockHasher, Digests, HashesBlocks, sharing
from storage.evidence import Arrived, settled
from storage.oserrors import os_errors
from storage.parallel import ahead, begin, in_parallel
from storage.uploads import listening, unreadable
from storage.wrapper import innermost

CHUNK = 8 << 20
"""Size of a piece, bytes; each worker keeps one in memory for each file in flight."""
_SLICE = 1 << 20
"""Size of a write to this disk, bytes: longer writes are slower, as the kernel then needs long stretches of memory."""
_ATTEMPTS = 2
"""How often a file is sent before the upload fails."""

Progress = Callable[[int], None]
"""Called with a number of bytes just done; from any worker thread, one call at a time."""


@dataclass(frozen=True)
class Uploaded:
    """A file that is in the store, verified."""

    name: str
    """Name of the file, relative to its folder."""
    key: str
    """The name in the store."""
    ref: Ref
    size: int
    sha256: str


class Wanted(NamedTuple):
    """A file to fetch, and its expected content."""

    ref: Ref
    name: str
    size: int
    sha256: str


def upload(
    store: Store,
    folder: Path,
    keys: Mapping[str, str],
    *,
    workers: int = 4,
    progress: Progress = lambda _: None,
    sent: Progress = lambda _: None,
) -> list[Uploaded]:
    """Store the files `folder/name` under `keys[name]` and verify each by the store's own hash or by reading it back.

    A file that is stored already with the same bytes is not sent again; other bytes under a key stay, and raise Exists.
    Results are in the order of `keys`. With `workers=1` no thread is started.
    `progress` gets whole files, and may raise to stop the rest; `sent`, for display only, gets parts too.
    Raises Corrupt if a file arrives wrong twice, StoreError if it cannot be read, otherwise the store's errors.
    """
    whole, partly = _one_at_a_time(progress), _one_at_a_time(sent)

    def one(item: tuple[str, str]) -> Uploaded:
        gone: list[int] = []

        def count(more: int) -> None:
            gone.append(more)
            partly(more)

        with listening(count):
            done = _upload(store, folder / check_name(item[0]), *item, whole, workers > 1)
        partly(max(0, done.size - sum(gone)))
        return done

    return in_parallel(one, keys.items(), workers)


def create(store: Store, key: str, data: bytes) -> Ref:
    """Store bytes under a key and read them back; the same bytes may be stored already. Raises as `upload`."""

    def holds(ref: Ref) -> bool:
        try:
            return store.get(ref, limit=len(data)) == data
        except TooLong:
            return False

    send = store.put_new
    for _ in range(_ATTEMPTS):
        try:
            ref = send(key, data)
        except Exists:
            ref = store.ref(key)
            if not holds(ref) and not holds(ref):  # one bad read proves nothing
                raise taken(store, key) from None
            return ref
        if holds(ref):
            return ref
        send = store.put  # this call has just created the object
    raise Corrupt(f"{store.address}: {key} arrived damaged.")


def taken(store: Store, key: str) -> Exists:
    """The error for a key with other bytes."""
    return Exists(f"{store.address}: {key} holds other bytes, which were left unchanged.")


def download(
    store: Store,
    files: Iterable[Wanted | tuple[Ref, str, int, str]],
    folder: Path,
    *,
    workers: int = 4,
    progress: Progress = lambda _: None,
) -> list[Path]:
    """Fetch files into `folder`, each through a `.<name>.part`, which continues an interrupted download.

    `workers` files are fetched at a time, and `workers` pieces of each are read ahead while one is written.
    Only whole files of the right size and SHA-256 get their name; a file that has it already is not fetched again.
    Raises Corrupt, naming the object, if the store holds wrong bytes (evidence.settled has the proof);
    Unavailable if the connection changes them; ValueError for a name that could leave the folder; QuotaExceeded or
    Denied, naming the path, if this disk refuses; otherwise the store's errors.
    """
    report = _one_at_a_time(progress)
    wanted = [Wanted(*file) for file in files]
    for file in wanted:
        check_name(file.name)
    return in_parallel(lambda file: _download(store, file, folder / file.name, report, workers), wanted, workers)


def digest(store: Store, ref: Ref, *, most: int | None = None) -> tuple[int, str]:
    """Size and SHA-256 of a stored object, read in chunks; at most `most` bytes."""
    found = hashed(store, ref, most=most)
    return found.size, found.sha256


def hashed(store: Store, ref: Ref, *, most: int | None = None, block: int | None = None) -> Arrived:
    """The same, also hashed by blocks of `block` bytes if given."""
    sha, blocks, size = hashlib.sha256(), BlockHasher(block) if block else None, 0
    while most is None or size < most:
        wanted = CHUNK if most is None else min(CHUNK, most - size)
        piece = store.read_range(ref, size, wanted)
        sha.update(piece)
        if blocks:
            blocks.update(piece)
        size += len(piece)
        if len(piece) < wanted:
            break  # the object ends here
    return Arrived(size, sha.hexdigest(), blocks.hash() if blocks else None)


def file_digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file on this disk. Raises OSError."""
    with path.open("rb") as file:
        sha = hashlib.file_digest(file, "sha256")
        return file.tell(), sha.hexdigest()


def _upload(store: Store, path: Path, name: str, key: str, progress: Progress, beside: bool) -> Uploaded:
    """`beside`: hash the file while it is being sent."""
    try:
        hashing = innermost(store)
        block = hashing.block_of(path.stat().st_size) if isinstance(hashing, HashesBlocks) else None
        known = Digests(path, block, beside=beside)
        ref, send = _present(store, key, known), store.put_new
        for _ in range(_ATTEMPTS):
            if ref is None:
                try:
                    with sharing(known):
                        sent = send(key, path)
                except Exists:  # ours, and its answer was lost, or another writer's
                    ref = _present(store, key, known)
                    continue
                ref, send = sent if _same(store, sent, known) else None, store.put
        size, sha256 = known.whole()
    except OSError as error:
        raise unreadable(path, error) from error
    if ref is None:
        raise Corrupt(
            f"{store.address}: {key} was sent {_ATTEMPTS} times and arrived damaged. The file is still "
            f"at {path}. Check the storage and the connection, then run again."
        )
    progress(size)
    return Uploaded(name, key, ref, size, sha256)


def _present(store: Store, key: str, known: Digests) -> Ref | None:
    """The Ref of `key` if the store has exactly these bytes there. Raises Exists if it has others."""
    if not store.unique_names:
        return None
    ref = store.ref(key)
    try:
        if _same(store, ref, known) or _same(store, ref, known):  # one bad read proves nothing
            return ref
    except Missing:
        return None
    raise taken(store, key)


def _same(store: Store, ref: Ref, known: Digests) -> bool:
    """Whether the stored object is these bytes, by the server's hash or by reading it back. Raises OSError."""
    stat = store.stat(ref)
    size, sha256 = known.whole()
    if stat.size != size:
        return False
    if not stat.hash_tested:
        stat = replace(stat, sha256=None, block_hash=None)
    if stat.sha256 is None and stat.block_hash is not None:
        block = stat.block_hash.block
        by_block = known if known.block == block else Digests(known.path, block, beside=False)
        return by_block.whole() == known.whole() and by_block.over_blocks() == stat.block_hash
    return (stat.sha256 or digest(store, ref)[1]) == sha256


def _download(store: Store, file: Wanted, path: Path, progress: Progress, workers: int) -> Path:
    part = path.with_name(f".{path.name}.part")  # no valid name begins with a dot

    def go_on(source: Store, block: int | None = None) -> Arrived:
        return _fetch(source, file, part, progress, workers, block)

    def begin_again(source: Store, block: int | None) -> Arrived:
        part.unlink(missing_ok=True)
        return go_on(source, block)

    def right(found: Arrived) -> bool:
        return (found.size, found.sha256) == (file.size, file.sha256)

    with os_errors(path, reading=False, here=True):
        if path.is_file() and file_digest(path) == (file.size, file.sha256):
            progress(file.size)
            return path
        part.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists() and right(go_on(store))  # otherwise its beginning may be wrong: no evidence
        if not (resumed or right(settled(store, file.ref, begin_again, right, file.size))):
            part.unlink()
            raise Corrupt(
                f"{store.address}: {file.ref} is damaged: read in full twice, it is not the {file.size} bytes with "
                f"SHA-256 {file.sha256} that were stored. Other checkpoints are not affected."
            )
        part.replace(path)
        return path


def _fetch(
    store: Store, file: Wanted, part: Path, progress: Progress, workers: int, block: int | None = None
) -> Arrived:
    """Append the bytes that the part file lacks, and one more if the object is too long; returns its content."""

    def read(at: int) -> bytes:
        return store.read_range(file.ref, at, min(CHUNK, file.size - at + 1))

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o666), "r+b") as out:
        sha = hashlib.file_digest(out, "sha256")
        done = out.tell()
        for piece in ahead(read, range(done, file.size + 1, CHUNK), workers):
            _keep(out, sha, piece, beside=workers > 1)
            done += len(piece)
            progress(len(piece))
            if len(piece) < CHUNK:
                break  # the object ends here
    return Arrived(done, sha.hexdigest(), Digests(part, block, beside=False).over_blocks() if block else None)


def _keep(out: BinaryIO, sha: hashlib._Hash, piece: bytes, *, beside: bool) -> None:
    """Write a piece and hash it; `beside`: both at once."""
    hashing = begin(sha.update, piece) if beside else None
    for at in range(0, len(piece), _SLICE):
        out.write(memoryview(piece)[at : at + _SLICE])
    if hashing:
        hashing.result()
    else:
        sha.update(piece)


def _one_at_a_time(progress: Progress) -> Progress:
    lock = threading.Lock()

    def report(count: int) -> None:
        with lock:
            progress(count)

    return report
