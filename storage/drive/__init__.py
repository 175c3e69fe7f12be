"""A store in a Google Drive folder. Importing this needs no Google package; opening an address does."""

from __future__ import annotations

import os
from importlib.util import find_spec

from storage.contract import BadAddress, Store
from storage.drive.place import DriveAddress
from storage.packages import install, pip

_PROXIES = ("https_proxy", "HTTPS_PROXY")


def open_drive(url: str, read_only: bool) -> Store:
    """The store at drive://FOLDER_ID/FIRST_ID, with the credentials of the environment; sends nothing.

    Raises BadAddress for another address or without the packages, Denied without credentials.
    """
    place = DriveAddress.parse(url)
    _need_packages()
    from storage.drive.client import DriveClient
    from storage.drive.credentials import DriveCredentials, credentials
    from storage.drive.store import DriveStore

    def held() -> DriveCredentials:
        return credentials(os.environ)

    return DriveStore(place, DriveClient(held(), place.address, held), read_only=read_only)


def make_drive(url: str) -> str:
    """The address of a new store, for drive://new or drive://new/PARENT_ID; any other address as it is.

    Creates a folder and the first slot in it. Raises BadAddress, Denied, and the store's errors.
    """
    parent = DriveAddress.wanted(url)
    if parent is None:
        return url
    _need_packages()
    from storage.drive.client import DriveClient
    from storage.drive.credentials import credentials
    from storage.drive.store import make

    return make(DriveClient(credentials(os.environ), url), parent).address


def _need_packages() -> None:
    if find_spec("googleapiclient") is None or find_spec("google_auth_httplib2") is None:
        raise BadAddress(f"drive:// addresses need Google's packages. Install it: `{install('drive')}`.")
    if find_spec("socks") is None and any(os.environ.get(name) for name in _PROXIES):
        # without PySocks, httplib2 ignores the proxy of the environment and connects directly
        raise BadAddress(
            f"HTTPS_PROXY names a proxy, and Google's packages need PySocks for it. Install it: "
            f"`{pip()} install pysocks`. Nothing was sent."
        )
