"""Signs in to Google by PKCE with google-auth-oauthlib, for a refresh token of scope drive.file."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from storage.contract import BadAddress, Denied, Unavailable
from storage.drive.credentials import NARROW, TOKEN, TOKEN_URI, check_scopes
from storage.drive.credentials import credentials as parsed
from storage.guides import guide
from storage.logins import Asked, BadAnswer, Desk, answered, opens
from storage.packages import install
from storage.regular import regular_or_piped

AUTH_URI = "https://accounts.google.com/o/oauth2/auth"
REDIRECT = "http://127.0.0.1:1"
"""Where Google sends the browser afterwards. Nothing listens there: the person copies the page's address."""
_TIMEOUT_S, _LIMIT = 30, 100_000
_SEE = f"{guide('drive')} shows how to make one."


def log_in(desk: Desk, asked: Asked) -> dict[str, str]:
    """The variables that open a store on Drive.

    Without `asked.client` the person is asked for the OAuth client's file. Raises BadAddress,
    BadAnswer, Denied, Unavailable; no error holds a secret.
    """
    if find_spec("google_auth_oauthlib") is None:
        raise BadAddress(f"signing in to Google needs the extra drive. Install it: `{install('drive')}`.")
    import requests
    from google_auth_oauthlib.flow import Flow
    from oauthlib.oauth2 import OAuth2Error

    app = _client(desk, asked.client)
    flow = Flow.from_client_config({"installed": app}, [NARROW], redirect_uri=REDIRECT, autogenerate_code_verifier=True)
    url, state = flow.authorization_url(access_type="offline", prompt="consent")
    opens(desk, url, f"The browser ends on a page at {REDIRECT} that cannot load. Copy its whole address.")
    code = _code(answered(desk, "Address: "), state)
    try:
        told = flow.fetch_token(code=code, timeout=_TIMEOUT_S)
    except OAuth2Error as error:
        raise Denied(
            f"Google refused the code ({error.error}). A code is good for one attempt, some minutes long. Run the same "
            "command again."
        ) from None
    except Warning:  # oauthlib's for other permissions than asked for
        raise Denied("Google granted other permissions. Run the same command again, and leave the tick.") from None
    except requests.RequestException as error:
        raise Unavailable(f"Google does not answer ({type(error).__name__}). Run the same command again.") from None
    except ValueError as error:
        raise Unavailable("Google's answer is not a token. Is a proxy or login in the way?") from error
    return {TOKEN: _token(app, told)}


def _token(app: dict[str, str], told: Any) -> str:
    """The token's JSON, without the access token, which is over in an hour. Raises Denied."""
    refresh = told.get("refresh_token")
    if not refresh:
        raise Denied("Google gave no refresh token. Run the same command again.")
    kept = {"type": "authorized_user", "client_id": app["client_id"], "client_secret": app["client_secret"]}
    text = json.dumps({**kept, "refresh_token": refresh})
    scopes = told.get("scope") or [NARROW]
    check_scopes(scopes.split() if isinstance(scopes, str) else scopes, parsed({TOKEN: text}))
    return text


def _client(desk: Desk, path: Path | None) -> dict[str, str]:
    """The OAuth client. Its file is trusted for its id and secret only: never for where codes are sent."""
    where = str(path) if path else desk.ask("File of the OAuth client (client.json), or its text: ").strip()
    try:
        text = where if where.startswith("{") else _read(Path(where).expanduser())
        found = json.loads(text)
    except (ValueError, RecursionError, RuntimeError) as error:
        raise BadAnswer(f"the OAuth client is not JSON. Download it again. {_SEE}") from error
    app = found.get("installed") if isinstance(found, dict) else None
    names = ("client_id", "client_secret")
    named: dict[str, Any] = {name: app.get(name) for name in names} if isinstance(app, dict) else {}
    if not named or not all(isinstance(value, str) and value for value in named.values()):
        raise BadAnswer(f"the file is not of an OAuth client of the kind Desktop app. {_SEE}")
    return {**named, "auth_uri": AUTH_URI, "token_uri": TOKEN_URI}


def _read(path: Path) -> str:
    try:
        with regular_or_piped(path).open(encoding="utf-8") as file:
            return file.read(_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise BadAnswer(f"cannot read the OAuth client in {path}: {reason}. {_SEE}") from error


def _code(answer: str, state: str) -> str:
    """The code in the address of the last page, or the answer itself. Raises BadAnswer, Denied."""
    if "://" not in answer:
        return answer
    try:
        told = parse_qs(urlsplit(answer).query)
    except ValueError:
        told = {}
    if "error" in told:
        raise Denied(f"Google did not allow it ({told['error'][0][:60]}). Run the same command again.")
    if told.get("state") != [state]:
        raise BadAnswer("the address is of another sign-in. Run the same command again, and copy the newest page's.")
    if len(told.get("code", [])) != 1:
        raise BadAnswer("the address holds no code. Copy all of it, to its end.")
    return told["code"][0]
