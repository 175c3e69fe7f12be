"""A running fake Dropbox as tests hold it: start, accounts, faults, looking in; and clients of the real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from storage.dropbox.client import Client
from storage.dropbox.credentials import Credentials, credentials
from storage.dropbox.place import Place
from storage.dropbox.store import DropboxStore
from tests.storage.dropbox.redirect import PORT

ROOT = Path(__file__).parents[3]
_number = count(1)


class Fake:
    """A fake service in a process of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def control(self, verb: str, **told: Any) -> Any:
        """Ask something of the fake outside its protocol (tests/storage/dropbox/fake/control.py)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/control/{verb}", json.dumps(told).encode())
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def account(self, **told: Any) -> Person:
        """A new account."""
        name = f"person{next(_number)}-{os.getpid()}"
        return Person(self, name, self.control("account", name=name, **told))


class Person:
    """An account: what its owner puts into the environment, and what is done to it."""

    def __init__(self, fake: Fake, name: str, holds: dict[str, str]) -> None:
        self.fake = fake
        self.name = name
        self.holds = holds

    @property
    def environ(self) -> dict[str, str]:
        """Refresh token and app key."""
        return {"DROPBOX_REFRESH_TOKEN": self.holds["refresh_token"], "DROPBOX_APP_KEY": self.holds["app_key"]}

    def store(
        self, url: str = "dropbox:///relay", *, short_lived: bool = False, read_only: bool = False
    ) -> DropboxStore:
        """A client with a refresh token, or with an access token only."""
        place = Place.parse(url)
        return DropboxStore(place, Client(self.credentials(short_lived), place), read_only=read_only)

    def credentials(self, short_lived: bool = False) -> Credentials:
        """As the environment would give them."""
        return credentials({"DROPBOX_ACCESS_TOKEN": self.holds["access_token"]} if short_lived else self.environ)

    def change(self, **told: Any) -> None:
        """Change the account itself: quota, scopes, rate, latency, list_lag, revoked, …"""
        self.fake.control("account", name=self.name, **told)

    def fault(self, kind: str, **told: Any) -> None:
        """Plan a fault."""
        self.fake.control("fault", account=self.name, kind=kind, **told)

    def heal(self) -> None:
        """No more planned faults."""
        self.fake.control("heal", account=self.name)

    def look(self, **told: Any) -> dict[str, Any]:
        """Files, folders, requests by route, faults met, bytes received and upload sessions."""
        return dict(self.fake.control("look", account=self.name, **told))

    def asked(self, route: str) -> int:
        """How often a route was asked."""
        return int(self.look()["counts"].get(route, 0))


@contextmanager
def serving() -> Iterator[Fake]:
    """A fake of one's own, which ends with this process."""
    command = [sys.executable, "-m", "tests.storage.dropbox.fake", "--with-parent"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        fake = Fake(int(process.stdout.readline()))
        os.environ[PORT] = str(fake.port)
        yield fake
    finally:
        process.kill()
        process.communicate()


_running: list[Any] = []


def running() -> Fake:
    """The one fake of this process, started at first need; clients in this process reach it from then on."""
    from tests.storage.dropbox.redirect import install

    if not _running:
        install()
        holding = serving()
        _running.extend([holding, holding.__enter__()])
    fake: Fake = _running[1]
    return fake
