"""Reads Google credentials from the environment and checks their form; never shows them, sends nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from storage.contract import BadAddress, Denied
from storage.guides import guide
from storage.regular import regular_or_piped

TOKEN, FILE, OWN = "RELAY_DRIVE_TOKEN", "RELAY_DRIVE_TOKEN_FILE", "RELAY_DRIVE_OWN_ACCOUNT"
AUTH = "https://www.googleapis.com/auth/"
NARROW = AUTH + "drive.file"
"""Scope that shows only files of this OAuth client."""
WHOLE = AUTH + "drive"
TOKEN_URI = "https://oauth2.googleapis.com/token"
_HARMLESS = {"openid", "email", "profile", AUTH + "userinfo.email", AUTH + "userinfo.profile", NARROW}
_SEE = f"{guide('drive')} shows how to make one."
_FIELDS = {
    "user": ("refresh_token", "client_id", "client_secret"),
    "service": ("client_email", "private_key"),
}
_LIMIT = 100_000


@dataclass(frozen=True)
class DriveCredentials:
    """A refresh token with its OAuth client, a service account's key, or Colab's own sign-in."""

    kind: Literal["user", "service", "colab"]
    source: str
    """Where they come from, for messages."""
    own: bool = False
    """The account belongs to the person who runs this and is not shared: the token may read more than this store."""
    info: Mapping[str, str] = field(default_factory=dict, repr=False)

    def masked(self, text: str) -> str:
        """The text without any secret: servers and libraries quote what they received."""
        for name in ("refresh_token", "client_secret", "private_key"):
            secret = self.info.get(name)
            text = text.replace(secret, "***") if secret else text
        return text

    def google(self) -> Any:
        """Credentials for google-auth. No scopes are requested: the answer must show what the token can do."""
        if self.kind == "colab":
            return _of_colab()
        if self.kind == "service":
            from google.oauth2 import service_account

            info = {"token_uri": TOKEN_URI, **self.info}
            make = service_account.Credentials.from_service_account_info
            return make(info, scopes=[WHOLE if self.own else NARROW])  # type: ignore[no-untyped-call]
        from google.oauth2.credentials import Credentials as User

        wanted = {name: self.info[name] for name in _FIELDS["user"]}
        return User(token=None, token_uri=TOKEN_URI, **wanted)  # type: ignore[no-untyped-call]


def credentials(environ: Mapping[str, str]) -> DriveCredentials:
    """The token or key in the environment, otherwise Colab's sign-in on Colab. Raises Denied."""
    own = environ.get(OWN, "").strip().lower() in ("1", "true", "yes")
    text, source = environ.get(TOKEN, "").strip(), TOKEN
    if not text and environ.get(FILE, "").strip():
        path = os.path.expanduser(environ[FILE].strip())  # noqa: PTH111 - Path's raises for a user without a home
        text, source = _read(Path(path)), FILE
    if text:
        return _parsed(text, source, own)
    if _is_colab():
        return DriveCredentials("colab", "google.colab.auth", own=True)
    raise Denied(f"no Google Drive credentials. Set {TOKEN} (a token's JSON) or {FILE} (its path). {_SEE}")


def check_scopes(scopes: Iterable[str], credentials: DriveCredentials) -> None:
    """Checks that the token's scopes are sufficient, and not wider than allowed.

    Raises BadAddress (78) for a token that can read more than this store, Denied for one that cannot reach it.
    """
    found = set(scopes)
    if not {NARROW, WHOLE} & found:
        raise Denied(
            f"the token in {credentials.source} lacks the permission drive.file. Make a new token, and leave the "
            f"tick at the permission when Google asks. {_SEE}"
        )
    if credentials.own or found <= _HARMLESS:
        return
    more = ", ".join(sorted(scope.removeprefix(AUTH) for scope in found - _HARMLESS))
    raise BadAddress(
        f"the token in {credentials.source} has too many permissions ({more}). Anyone who holds it could read its "
        "owner's other files. Make one of scope drive.file only and revoke this one at "
        f"https://myaccount.google.com/connections. {_SEE} If the account is yours and only you hold the token, set "
        f"{OWN}=1."
    )


def _read(path: Path) -> str:
    try:
        with regular_or_piped(path).open(encoding="utf-8") as file:
            return file.read(_LIMIT).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise Denied(f"cannot read {path}, which {FILE} names: {reason}.") from error


def _parsed(text: str, source: str, own: bool) -> DriveCredentials:
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Denied(f"{source} is not JSON. Copy the whole token file, braces included. {_SEE}") from error
    kind: Literal["user", "service"] = "service" if _get(info, "type") == "service_account" else "user"
    missing = [name for name in _FIELDS[kind] if not _get(info, name)]
    if missing:
        hint = " This is a client's file, not a token." if _get(info, "installed") or _get(info, "web") else ""
        raise Denied(f"{source} lacks {' and '.join(missing)}.{hint} {_SEE}")
    plain = {str(name): value for name, value in info.items() if isinstance(value, str)}
    return DriveCredentials(kind, source, own, plain)


def _get(info: object, name: str) -> object:
    return info.get(name) if isinstance(info, dict) else None


def _is_colab() -> bool:
    try:
        return find_spec("google.colab") is not None
    except ModuleNotFoundError:
        return False


def _of_colab() -> Any:
    """Asks the user in the notebook; the token stays on that machine."""
    import google.auth
    from google.colab import auth

    auth.authenticate_user()
    return google.auth.default(scopes=[WHOLE])[0]
