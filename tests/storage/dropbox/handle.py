"""A running fake Dropbox as tests hold it: start, accounts, faults, looking in; and clients of the real store."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from storage.dropbox.client import Client
from storage.dropbox.credentials import Credentials, credentials
from storage.dropbox.place import Place
from storage.dropbox.store import DropboxStore
from tests.storage.dropbox.redirect import PORT, install
from tests.storage.fakes import process
from tests.storage.fakes.process import Process

_number = count(1)


class Fake(Process):
    """A fake service in a process of its own."""

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


def serving() -> AbstractContextManager[Fake]:
    """A fake of one's own, which ends with this process."""
    return process.serving("tests.storage.dropbox.fake", PORT, Fake)


running = process.Shared(serving, install)
