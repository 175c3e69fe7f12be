"""What other processes do to one store on the fake Drive: race for slots, or upload until killed."""

from __future__ import annotations

import json
import os
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from storage.drive import upload
from storage.drive.client import Client
from storage.drive.credentials import credentials
from storage.drive.place import Place
from storage.drive.store import DriveStore
from storage.log import Log, Won
from tests.storage.drive.redirect import PORT, install

LEDGER = "runs/p/r/ledger/"


def connect_at(port: int, environ: dict[str, str], address: str) -> DriveStore:
    """A client of the fake at a port."""
    os.environ[PORT] = str(port)
    install()
    return DriveStore(Place.parse(address), Client(credentials(environ), address))


def race(
    port: int, environ: dict[str, str], address: str, racer: int, slots: int, barrier: Barrier, results: Path
) -> None:
    """Append to every slot together with the others; write down the slots won and the bytes seen in those lost."""
    store = connect_at(port, environ, address)
    log = Log(store, LEDGER, sleep=lambda seconds: time.sleep(min(seconds, 0.02)))
    won, lost = [], {}
    for slot in range(slots):
        barrier.wait(timeout=120)
        outcome = log.append(slot, payload(racer, slot), attempts=40)
        if isinstance(outcome, Won):
            won.append(slot)
        else:
            lost[slot] = outcome.data.decode()
    results.write_text(json.dumps({"won": won, "lost": lost}))


def payload(racer: int, slot: int) -> bytes:
    """What a racer writes: never what another writes."""
    return f"{racer:04d}-{slot:06d} ".encode() * 100


def send(port: int, environ: dict[str, str], address: str, path: Path, name: str, part: int) -> None:
    """Upload a file, as a process that may be killed at any moment."""
    upload.PART, upload.SMALL = part, part
    connect_at(port, environ, address).put(name, path)
