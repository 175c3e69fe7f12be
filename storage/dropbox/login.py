"""Signs in to Dropbox by PKCE with the SDK's own flow, for a refresh token of the smallest permissions."""

from __future__ import annotations

from importlib.util import find_spec

from storage.contract import BadAddress, Denied, Unavailable
from storage.dropbox.credentials import KEY, REFRESH
from storage.logins import Asked, Desk, answered, opens
from storage.packages import install

SCOPES = ["files.metadata.read", "files.content.read", "files.content.write"]
_TIMEOUT_S = 30


def log_in(desk: Desk, asked: Asked) -> dict[str, str]:
    """The variables that open the app's folder.

    Without `asked.app_key` the person is asked for it; it is not a secret. Raises BadAddress, BadAnswer, Denied,
    Unavailable; no error holds a secret.
    """
    if find_spec("dropbox") is None:
        raise BadAddress(f"signing in to Dropbox needs the extra dropbox. Install it: `{install('dropbox')}`.")
    import requests
    from dropbox import DropboxOAuth2FlowNoRedirect

    key = asked.app_key or answered(desk, "App key (App Console > your app > Settings): ")
    flow = DropboxOAuth2FlowNoRedirect(
        key, use_pkce=True, token_access_type="offline", scope=SCOPES, timeout=_TIMEOUT_S
    )
    opens(desk, flow.start(), "Then copy the code that it shows.")
    code = answered(desk, "Code: ")
    try:
        told = flow.finish(code)
    except requests.HTTPError as error:
        status = getattr(error.response, "status_code", "unknown")
        raise Denied(
            f"Dropbox refused the code (status {status}). A code is good for one attempt, some "
            "minutes long. Run the same command again, and check the app key."
        ) from None
    except requests.RequestException as error:
        raise Unavailable(f"Dropbox does not answer ({type(error).__name__}). Run the same command again.") from None
    except (KeyError, ValueError) as error:
        raise Unavailable("Dropbox's answer is not a token. Is a proxy or login in the way?") from error
    if not told.refresh_token:
        raise Denied("Dropbox gave no refresh token. Run the same command again.")
    _check(set((told.scope or "").split()))
    return {REFRESH: told.refresh_token, KEY: key}


def _check(granted: set[str]) -> None:
    """Raises Denied for a token that cannot do what a store needs."""
    if lacking := [scope for scope in SCOPES if granted and scope not in granted]:
        raise Denied(
            f"the app lacks the permission {', '.join(lacking)}. Tick it in the App Console under Permissions, press "
            "Submit, and run the same command again."
        )
