"""What one of several processes that append to one log does; a module of its own, so that each can import it."""

from __future__ import annotations

import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from storage.base import open_store
from storage.log import Log, Won

LOG = "race/ledger/"


def entry(racer: int, slot: int) -> bytes:
    """Unique to the intent, as a real entry is by its nonce."""
    return f"{racer:04d} wants {slot:04d}".encode() * 100


def race(address: str, racer: int, slots: int, barrier: Barrier, results: Path) -> None:
    """Append to every slot together with the others; write down the slots won."""
    log = Log(open_store(address), LOG, sleep=lambda seconds: time.sleep(min(seconds, 0.2)))
    won: list[int] = []
    for slot in range(slots):
        barrier.wait(timeout=120)
        if isinstance(log.append(slot, entry(racer, slot), attempts=30), Won):
            won.append(slot)
    results.write_text(" ".join(map(str, won)))
