"""A running fake Dropbox as tests hold it: start, accounts, faults, looking in; and clients of the real store."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from storage.dropbox.client import DropboxClient
from storage.dropbox.credentials import DropboxCredentials, credentials
from storage.dropbox.place import DropboxAddress
from storage.dropbox.store import DropboxStore
from tests.storage.fakes import process
from tests.storage.fakes.process import Member, Process
from tests.storage.fakes.redirect import DROPBOX as PORT

_number = count(1)


class Fake(Process):
    """A fake service in a process of its own."""

    def account(self, **told: Any) -> Person:
        """A new account."""
        name = f"person{next(_number)}-{os.getpid()}"
        return Person(self, name, self.control("account", name=name, **told))


class Person(Member):
    """An account: what its owner puts into the environment, and what is done to it."""

    fake: Fake

    @property
    def environ(self) -> dict[str, str]:
        """Refresh token and app key."""
        return {"DROPBOX_REFRESH_TOKEN": self.holds["refresh_token"], "DROPBOX_APP_KEY": self.holds["app_key"]}

    def store(
        self, url: str = "dropbox:///relay", *, short_lived: bool = False, read_only: bool = False
    ) -> DropboxStore:
        """A client with a refresh token, or with an access token only."""
        place = DropboxAddress.parse(url)
        return DropboxStore(place, DropboxClient(self.credentials(short_lived), place), read_only=read_only)

    def credentials(self, short_lived: bool = False) -> DropboxCredentials:
        """As the environment would give them."""
        return credentials({"DROPBOX_ACCESS_TOKEN": self.holds["access_token"]} if short_lived else self.environ)


def serving() -> AbstractContextManager[Fake]:
    """A fake of one's own, which ends with this process."""
    return process.serving("tests.storage.dropbox.fake", PORT, Fake)


running = process.Shared(serving)
