"""Asks the Hub what its S3 gateway cannot tell: whether strangers may read a bucket; creates buckets."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException

from storage.contract import BadAddress, Denied, StoreError, Unavailable
from storage.hf.place import HFAddress
from storage.packages import install

_TIMEOUT_S, _LIMIT = 10, 100_000
_HIDDEN = (401, 403, 404)
"""Answers to a stranger about a bucket that is private, or absent."""


def endpoint() -> str:
    """The Hub's URL, as huggingface_hub takes it from the environment."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_public(where: HFAddress) -> bool | None:
    """Whether a stranger sees the bucket; None if the Hub gives no clear answer. Sends no token."""
    asked = urllib.request.Request(f"{endpoint()}/api/buckets/{where.bucket_id}")
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            told = json.loads(answer.read(_LIMIT))
    except urllib.error.HTTPError as error:
        error.close()
        return False if error.code in _HIDDEN else None
    except (OSError, HTTPException, ValueError, RecursionError):
        return None
    private = told.get("private") if isinstance(told, dict) else None
    return not private if isinstance(private, bool) else None


def refuse_public(where: HFAddress) -> None:
    """Raises BadAddress (78) for a bucket that strangers can read, unless the address says that they may."""
    if not where.public and is_public(where):
        raise BadAddress(
            f"{where} is public: everybody on the internet can read the run, its people's names and its checkpoints. "
            f"Make it private at {endpoint()}/buckets/{where.bucket_id}/settings. If it is meant to be public, end the "
            "address with ?public=1."
        )


def create(where: HFAddress) -> None:
    """Create the bucket with the token of HF_TOKEN or of huggingface_hub's own login; keeps an existing one.

    Raises BadAddress for an existing bucket that is public against the address, Denied, Unavailable.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    api = HfApi(endpoint=endpoint())
    if not hasattr(api, "create_bucket"):
        raise BadAddress(f"this huggingface_hub is too old for buckets. Upgrade it: `{install('hf')} --upgrade`.")
    try:
        api.create_bucket(where.bucket_id, private=not where.public, exist_ok=True)
    except HfHubHTTPError as error:
        raise _refused(where, error.response.status_code) from error
    except (HTTPError, OSError) as error:
        raise Unavailable(f"{endpoint()} does not answer ({type(error).__name__}). Try again.") from error
    except (KeyError, ValueError) as error:
        raise Unavailable(f"the answer of {endpoint()} is not the Hub's. Is a proxy or login in the way?") from error
    refuse_public(where)


def _refused(where: HFAddress, status: int) -> StoreError:
    if status in (401, 403):
        return Denied(
            f"{endpoint()} does not let this token create the bucket {where.bucket_id} (status {status}). Set HF_TOKEN "
            f"to a token that may write in {where.namespace}, or make the bucket on the page and use its address."
        )
    return Unavailable(f"{endpoint()} did not create the bucket {where.bucket_id} (status {status}). Try again.")
