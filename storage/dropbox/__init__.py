"""A store in a Dropbox folder. Importing this needs no Dropbox SDK; opening an address does."""

from __future__ import annotations

import os
from importlib.util import find_spec

from storage.contract import BadAddress, Store
from storage.dropbox.place import DropboxAddress
from storage.packages import install


def open_dropbox(url: str, read_only: bool) -> Store:
    """The store at dropbox:///folder or dropbox://ns:ID/folder, with the environment's credentials; sends nothing.

    Raises BadAddress for another address or without the SDK, Denied without credentials.
    """
    place = DropboxAddress.parse(url)
    if find_spec("dropbox") is None:
        raise BadAddress(f"dropbox:// addresses need Dropbox's package. Install it: `{install('dropbox')}`.")
    from storage.dropbox.client import DropboxClient
    from storage.dropbox.credentials import DropboxCredentials, credentials
    from storage.dropbox.store import DropboxStore

    def held() -> DropboxCredentials:
        return credentials(os.environ)

    return DropboxStore(place, DropboxClient(held(), place, held), read_only=read_only)
