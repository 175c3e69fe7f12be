"""What one of several racing processes does; a module of its own, so that a spawned process can import it."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

from storage.base import Exists, Missing
from storage.local import LocalStore


def payload(racer: int) -> bytes:
    return f"{racer:04d}".encode() * 2500


def race(folder: Path, racer: int, rounds: int, barrier: Barrier, results: Path) -> None:
    """Append to every slot together with the others; write down the rounds won and the torn reads seen."""
    store = LocalStore(folder)
    won, torn = [], 0
    for number in range(rounds):
        name = f"race/{number:04d}"
        barrier.wait(timeout=60)
        with suppress(Missing):
            torn += not _whole(store.get(store.ref(name)))
        try:
            store.put_if_absent(name, payload(racer))
            won.append(number)
        except Exists:
            torn += not _whole(store.get(store.ref(name)))
    results.write_text(f"{torn}\n{' '.join(map(str, won))}")


def _whole(data: bytes) -> bool:
    return len(data) == 10_000 and data == data[:4] * 2500
