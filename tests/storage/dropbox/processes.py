"""What other processes do to one fake Dropbox: race for slots, or upload until killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

from storage.dropbox import store as store_module
from storage.dropbox import upload
from storage.dropbox.client import Client
from storage.dropbox.credentials import credentials
from storage.dropbox.place import Place
from storage.dropbox.store import DropboxStore
from storage.log import Log, Won
from tests.storage.dropbox.redirect import PORT, install

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.storage.dropbox.preload"])


def start(work: Callable[..., None], port: int, *args: object) -> BaseProcess:
    """Run `work(port, …)` in a process of its own."""
    process = SPAWN.Process(target=work, args=(port, *args))
    process.start()
    return process


def connect(port: int, environ: dict[str, str], url: str) -> DropboxStore:
    """A client of the fake at a port."""
    os.environ[PORT] = str(port)
    install()
    place = Place.parse(url)
    return DropboxStore(place, Client(credentials(environ), place))


def race(port: int, environ: dict[str, str], url: str, racer: int, slots: int, barrier: Barrier, results: Path) -> None:
    """Append to every slot together with the others; write down the slots won and the bytes seen in those lost."""
    log = Log(connect(port, environ, url), "runs/p/r/ledger/", sleep=lambda seconds: time.sleep(min(seconds, 0.02)))
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


def send(port: int, environ: dict[str, str], path: Path, part: int, concurrent_from: int) -> None:
    """Upload a file, as a process that may be killed at any moment."""
    upload.PART, store_module.SMALL, upload.CONCURRENT_FROM = part, part, concurrent_from
    connect(port, environ, "dropbox:///relay").put("model", path)
