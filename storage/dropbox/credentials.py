"""Reads Dropbox credentials from the environment and checks their form; never shows them, sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.contract import Denied
from storage.guides import guide

REFRESH, KEY, SECRET, ACCESS = (
    "DROPBOX_REFRESH_TOKEN",
    "DROPBOX_APP_KEY",
    "DROPBOX_APP_SECRET",
    "DROPBOX_ACCESS_TOKEN",
)
_SEE = f"{guide('dropbox')} shows how to make one."


@dataclass(frozen=True)
class DropboxCredentials:
    """A refresh token with its app's key (and secret, unless the token was made by PKCE), or an access token."""

    refresh_token: str | None = field(default=None, repr=False)
    app_key: str | None = field(default=None, repr=False)
    app_secret: str | None = field(default=None, repr=False)
    access_token: str | None = field(default=None, repr=False)

    @property
    def source(self) -> str:
        """The variables they come from, for messages."""
        return f"{REFRESH} and {KEY}" if self.refresh_token else ACCESS

    def masked(self, text: str) -> str:
        """The text without any secret: servers and libraries quote what they received."""
        for secret in (self.refresh_token, self.app_secret, self.access_token):
            text = text.replace(secret, "***") if secret else text
        return text


def credentials(environ: Mapping[str, str]) -> DropboxCredentials:
    """The refresh token if there is one, otherwise the access token. Raises Denied if both are missing, or garbled."""
    found = {name: environ.get(name, "").strip() or None for name in (REFRESH, KEY, SECRET, ACCESS)}
    for name, value in found.items():
        if value and not (value.isascii() and value.isprintable() and " " not in value):
            raise Denied(f"{name} holds characters that no Dropbox credential has. Copy it again, without blanks.")
    if found[REFRESH]:
        if not found[KEY]:
            raise Denied(f"{REFRESH} is set but {KEY} is not. Set it to the key of the app that made the token.")
        return DropboxCredentials(found[REFRESH], found[KEY], found[SECRET])
    if not found[ACCESS]:
        raise Denied(f"no Dropbox credentials. Set {REFRESH} and {KEY} (or, for a few hours, {ACCESS}). {_SEE}")
    return DropboxCredentials(access_token=found[ACCESS])
