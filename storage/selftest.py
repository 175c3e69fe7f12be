"""The self-test of a store at opening: checks the promises that the log needs, on any backend."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import cast

from storage.capabilities import doubt
from storage.contract import BadAddress, Creates, Exists, Missing, Ref, Stat, Store, Unavailable
from storage.retry import patiently

_FOLDER = "selftest"
FEW, MANY = 1, 152
"""Races with a clear result: on a store that documents one winner, and on any other. A server that lets two win in 3 %
of races passes MANY with a probability of 0.97 ** 152 = 1 %, and FEW with one of 97 %."""
_UNCLEAR = 10
"""Most races without a clear result; lost replies make a race unclear."""
_ATTEMPTS = 6
"""Attempts of an exclusive write without an answer, each under a fresh name; storage.retry does the same for others."""


def self_test(
    store: Store,
    *,
    second: Store | None = None,
    racers: int = 8,
    token: Callable[[], str] = lambda: secrets.token_hex(16),
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write, read, race for and delete a few fresh objects under `selftest/`.

    `second` is another client of the same store, which sees what this one wrote and races with it.
    Raises BadAddress, naming the store and the broken promise, if the store must not hold a run; otherwise the
    store's errors (Denied, QuotaExceeded; Unavailable after several attempts). `token` gives fresh lower-case
    hexadecimal digits, `sleep` waits between attempts.
    """
    other = second or store
    patient = partial(patiently, sleep=sleep, jitter=lambda: int(token()[:8], 16) / 2**32, attempts=_ATTEMPTS)
    folder, number = f"{_FOLDER}/{token()}", count()
    _round_trip(store, f"{folder}/round-trip")  # with verbs that the caller's store retries
    patient(lambda: _second_put_fails(store, other, f"{folder}/twice-{next(number)}"))
    if known_bad := doubt(store).refused:
        _demand(store, False, f"its server is {known_bad}, which is known to let two writers win one name")
    clear, unclear, raced = 0, 0, list[Ref]()
    with ThreadPoolExecutor(racers) as pool:
        try:
            while clear < races(store):
                won = patient(lambda: _race((store, other), f"{folder}/race-{next(number)}", racers, pool, raced))
                clear, unclear = clear + won, unclear + (not won)
                if unclear == _UNCLEAR:
                    raise Unavailable(
                        f"{store.address}: no clear answer in {unclear} races of the self-test. Try again."
                    )
        finally:
            list(pool.map(store.delete, raced))


def races(store: Store) -> int:
    """How many races with a clear result the store must pass."""
    return MANY if doubt(store).unknown else FEW


def _round_trip(store: Store, name: str) -> None:
    """Reads an object back, whole, in part and by size; a deleted object is gone."""
    data = bytes(range(256)) * 5
    ref = store.put(name, data)
    try:
        _demand(store, store.get(ref) == data, "bytes read back differ from those written")
        _demand(
            store, store.read_range(ref, 300, 100) == data[300:400], "a part read back differs from the bytes written"
        )
        stat = store.stat(ref)
        _demand(store, stat.size == len(data), "the reported size is wrong")
        _demand(store, _hashes_agree(stat, data), "the reported hash is wrong")
    finally:
        store.delete(ref)
    _demand(store, _is_missing(store, ref), "a deleted object is still there")


def _hashes_agree(stat: Stat, data: bytes) -> bool:
    """Whether the server's hashes, by which uploads are verified, are those of the bytes."""
    if stat.sha256 not in (None, hashlib.sha256(data).hexdigest()):
        return False
    if stat.block_hash is None:
        return True
    block = stat.block_hash.block
    digests = [hashlib.sha256(data[at : at + block]).digest() for at in range(0, len(data), block)]
    return stat.block_hash.sha256 == hashlib.sha256(b"".join(digests)).hexdigest()


def _second_put_fails(store: Store, other: Store, name: str) -> None:
    """The first put_if_absent takes the name and keeps it, also for another client."""
    ref = _place(store, name)
    try:
        first, second = b"first " + name.encode(), b"second " + name.encode()
        if not _put(store, ref, name, first):
            _demand(store, store.get(ref) == first, "put_if_absent refused a fresh name and stored other bytes")
        _demand(store, not _put(other, ref, name, second), "put_if_absent overwrote an object")
        _demand(store, other.get(ref) == first, "a refused put_if_absent changed the object")
    finally:
        store.delete(ref)


def _race(clients: tuple[Store, Store], name: str, racers: int, pool: Executor, raced: list[Ref]) -> bool:
    """Several threads of both clients put_if_absent one name at once; True if one clearly won, False if replies were
    lost. `raced` gets what is to be deleted."""
    start, store = threading.Barrier(racers), clients[0]
    ref = _place(store, name)
    raced.append(ref)

    def race(number: int) -> bool | None:
        start.wait()
        try:
            return _put(clients[number % 2], ref, name, f"racer {number}".encode())
        except Unavailable:
            return None

    outcomes = list(pool.map(race, range(racers)))
    winners = [number for number, won in enumerate(outcomes) if won]
    _demand(store, len(winners) <= 1, f"{len(winners)} of {racers} simultaneous put_if_absent to one name succeeded")
    if not winners:
        return False
    _demand(store, store.get(ref) == f"racer {winners[0]}".encode(), "the stored bytes are not the race winner's")
    return True


def _place(store: Store, name: str) -> Ref:
    """The Ref for an object that only one client may write; where names are not unique, a reserved one."""
    return store.ref(name) if store.unique_names else cast(Creates, store).reserve(1)[0]


def _put(store: Store, ref: Ref, name: str, data: bytes) -> bool:
    """Whether put_if_absent succeeded; False for Exists."""
    try:
        if store.unique_names:
            store.put_if_absent(name, data)
        else:
            cast(Creates, store).create(ref, name, data)
    except Exists:
        return False
    return True


def _is_missing(store: Store, ref: Ref) -> bool:
    try:
        store.stat(ref)
    except Missing:
        return True
    return False


def _demand(store: Store, kept: bool, otherwise: str) -> None:
    if not kept:
        raise BadAddress(
            f"{store.address} must not hold a run: {otherwise}. Two sessions could overwrite each other's work there. "
            "Use another kind of storage."
        )
