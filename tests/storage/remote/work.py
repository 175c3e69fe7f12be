"""What other processes do to a store: race for the slots of a log, or upload until killed; each imports this module."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import dropbox  # noqa: F401
import google.oauth2.credentials  # noqa: F401
import googleapiclient.discovery  # noqa: F401

import storage.s3.store  # noqa: F401
from storage.base import Store, open_store
from storage.drive import upload as drive_upload
from storage.dropbox import store as dropbox_store
from storage.dropbox import upload as dropbox_upload
from storage.log import Log, Won
from tests.storage.fakes import redirect

LEDGER = "runs/p/r/ledger/"
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.storage.remote.work", "tests.storage.s3.killed"])
"""All processes come from one server, which imports the SDKs once: a list that is set after its start has no effect."""


def start(work: Callable[..., None], *args: object) -> BaseProcess:
    """Run `work(…)` in a process of its own."""
    process = SPAWN.Process(target=work, args=args)
    process.start()
    return process


def connect(environ: dict[str, str], address: str) -> Store:
    """A client, as in a process with this environment."""
    os.environ.update(environ)
    redirect.install()
    return open_store(address)


def race(environ: dict[str, str], address: str, racer: int, slots: int, barrier: Barrier, results: Path) -> None:
    """Append to every slot together with the others; write down the slots won and the bytes seen in those lost."""
    store = connect(environ, address)
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
    """What a racer writes: never what another writes, as a real entry by its nonce."""
    return f"{racer:04d}-{slot:06d} ".encode() * 100


def send(environ: dict[str, str], address: str, path: Path, name: str, part: int, concurrent_from: int) -> None:
    """Upload a file in parts, as a process that may be killed at any moment."""
    drive_upload.PART = drive_upload.SMALL = part
    dropbox_upload.PART = dropbox_store.SMALL = part
    dropbox_upload.CONCURRENT_FROM = concurrent_from
    connect(environ, address).put(name, path)
