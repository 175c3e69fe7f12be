"""Publishes files as a static Space of Hugging Face, in one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping

from storage.contract import BadAddress, Denied, StoreError, Unavailable
from storage.hf.hub import endpoint
from storage.packages import install

SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def publish_space(space: str, files: Mapping[str, bytes]) -> str:
    """Write the files into the Space OWNER/NAME with the token of HF_TOKEN or of a login; returns its address.

    A Space that does not exist is created, public; an existing one keeps its visibility and its other files. Raises
    BadAddress without the package or for another name, Denied, Unavailable.
    """
    if not SPACE.fullmatch(space):
        raise BadAddress(f"{space!r} names no Space; write OWNER/NAME.")
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.errors import HfHubHTTPError, HTTPError
    except ModuleNotFoundError as missing:
        raise BadAddress(f"A Space needs one more package: `{install('hub')}`.") from missing
    api = HfApi(endpoint=endpoint())
    try:
        api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
        added = [CommitOperationAdd(name, data) for name, data in files.items()]
        api.create_commit(space, added, commit_message="The run as it is now", repo_type="space")
    except HfHubHTTPError as error:
        raise _refused(space, error.response.status_code) from error
    except (HTTPError, OSError) as error:
        raise Unavailable(f"{endpoint()} does not answer ({type(error).__name__}). Try again.") from error
    return f"{endpoint()}/spaces/{space}"


def _refused(space: str, status: int) -> StoreError:
    if status in (401, 403, 404):
        return Denied(
            f"{endpoint()} does not let this token write the Space {space} (status {status}). Set HF_TOKEN to a token "
            f"that may write in {space.partition('/')[0]}."
        )
    return Unavailable(f"{endpoint()} did not take the Space {space} (status {status}). Try again.")
