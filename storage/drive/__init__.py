"""A store in a Google Drive folder; importing this needs no Google package, opening an address does."""

from __future__ import annotations

import os
from importlib.util import find_spec

from storage.contract import BadAddress, Store
from storage.drive.place import Place
from storage.packages import install, pip

_PROXIES = ("https_proxy", "HTTPS_PROXY")


def open_drive(url: str, read_only: bool) -> Store:
    """The store at drive://FOLDER_ID/FIRST_ID, with the credentials of the environment; asks nothing.

    Raises BadAddress for another address or without the packages, Denied without credentials.
    """
    place = Place.parse(url)
    _need_packages()
    from storage.drive.client import Client
    from storage.drive.credentials import credentials
    from storage.drive.store import DriveStore

    return DriveStore(place, Client(credentials(os.environ), place.address), read_only=read_only)


def make_drive(url: str) -> str:
    """The address of a new store, for drive://new or drive://new/PARENT_ID; any other address as it is.

    Makes a folder and the first slot in it. Raises BadAddress, Denied, and what the store raises.
    """
    parent = Place.wanted(url)
    if parent is None:
        return url
    _need_packages()
    from storage.drive.client import Client
    from storage.drive.credentials import credentials
    from storage.drive.store import make

    return make(Client(credentials(os.environ), url), parent).address


def _need_packages() -> None:
    if find_spec("googleapiclient") is None or find_spec("google_auth_httplib2") is None:
        raise BadAddress(f"drive:// addresses need Google's packages. Install it: `{install('drive')}`.")
    if find_spec("socks") is None and any(os.environ.get(name) for name in _PROXIES):
        # httplib2 goes to the network directly where it has no PySocks, whatever the environment says
        raise BadAddress(
            f"HTTPS_PROXY names a proxy, which Google's packages use only with PySocks. Install it: "
            f"`{pip()} install pysocks`. Nothing was sent."
        )
