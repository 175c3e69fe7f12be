"""A running fake Drive as tests hold it: start, users, faults, looking in; and services of the real SDK."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

from google.oauth2 import service_account
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build

from tests.storage.fakes import process
from tests.storage.fakes.process import SITE, Member, Process
from tests.storage.fakes.redirect import DRIVE as PORT

TOKEN_URI = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/"
_number = count(1)


class Fake(Process):
    """A fake service in a process of its own."""

    def person(self, scopes: tuple[str, ...] = ("drive.file",), **told: Any) -> Person:
        """A new user who has allowed the usual client these scopes; `service` makes it a service account."""
        name = f"person{next(_number)}-{os.getpid()}"
        self.control("account", name=name, **told)
        return Person(self, name, self.control("grant", account=name, scopes=scopes), scopes)

    def drive(self, name: str, **roles: Any) -> str:
        """A shared drive; `roles` by the names of its members."""
        return str(self.control("drive", name=name, roles=roles))

    @contextmanager
    def ways(self, **told: Any) -> Iterator[None]:
        """The service doing for a while what its documentation leaves open: `ids`, `sees`, `race`, `ahead`."""
        usual = {"ids": "anyone", "sees": "client", "race": "finish", "ahead": 0.0}
        self.control("set", **told)
        try:
            yield
        finally:
            self.control("set", **{name: usual[name] for name in told})

    def environ(self) -> dict[str, str]:
        """What a command's environment needs to take this for the real service."""
        return {PORT: str(self.port), "PYTHONPATH": SITE}


class Person(Member):
    """A user and what one OAuth client holds of it, and what is done to it."""

    fake: Fake

    def __init__(self, fake: Fake, name: str, holds: dict[str, Any], scopes: tuple[str, ...]) -> None:
        super().__init__(fake, name, holds)
        self.scopes = scopes

    @property
    def email(self) -> str:
        return str(self.holds["email"])

    def with_client(self, client: str, scopes: tuple[str, ...] = ("drive.file",)) -> Person:
        """The same user as another OAuth client sees it."""
        holds = self.fake.control("grant", account=self.name, client=client, scopes=scopes)
        return Person(self.fake, self.name, holds, scopes)

    def authorized_user(self) -> dict[str, str]:
        """What a file of user credentials holds."""
        kept = ("client_id", "client_secret", "refresh_token")
        return {"type": "authorized_user", "token_uri": TOKEN_URI, **{name: self.holds[name] for name in kept}}

    def service_account(self) -> dict[str, str]:
        """What a service account's key file holds."""
        return {
            "type": "service_account", "client_email": self.email, "private_key": self.holds["private_key"],
            "private_key_id": "1", "client_id": "1", "project_id": "relay", "token_uri": TOKEN_URI,
        }  # fmt: skip

    def credentials(self, short_lived: bool = False) -> Any:
        """Of Google's auth library: with a refresh token or key, or with an access token only."""
        if short_lived:
            return Credentials(self.holds["access_token"])
        wanted = [SCOPE + scope for scope in self.scopes]
        if "private_key" in self.holds:
            return service_account.Credentials.from_service_account_info(self.service_account(), scopes=wanted)
        return Credentials.from_authorized_user_info(self.authorized_user())

    def service(self, version: str = "v3", short_lived: bool = True) -> Any:
        """A service of the real SDK."""
        return build("drive", version, credentials=self.credentials(short_lived))

    def expire(self, **told: Any) -> None:
        """All access tokens expire now; `revoke=True`: refresh tokens die too."""
        self.fake.control("expire", account=self.name, **told)

    def share(self, file: str, **roles: str | None) -> None:
        """Give others, by their names, a role on a file; None takes it away."""
        self.fake.control("share", file=file, roles=roles)


def serving() -> AbstractContextManager[Fake]:
    """A fake of one's own, which ends with this process."""
    return process.serving("tests.storage.drive.fake", PORT, Fake)


running = process.Shared(serving)
