"""Stores on the fake Drive as tests hold them: one address of one account, opened by any number of clients."""

from __future__ import annotations

import json
from pathlib import Path

from storage.drive.client import DriveClient
from storage.drive.credentials import DriveCredentials, credentials
from storage.drive.place import DriveAddress
from storage.drive.store import DriveStore, make
from tests.storage.drive.handle import Person


def holding(person: Person, *, own: bool = False) -> dict[str, str]:
    """What a person puts into the environment; `own` says that the token is shared with nobody."""
    kept = person.service_account() if "private_key" in person.holds else person.authorized_user()
    return {"RELAY_DRIVE_TOKEN": json.dumps(kept), **({"RELAY_DRIVE_OWN_ACCOUNT": "1"} if own else {})}


def credentials_of(person: Person, *, own: bool = False) -> DriveCredentials:
    """As that environment gives them."""
    return credentials(holding(person, own=own))


def connect(person: Person, address: str, *, own: bool = False, read_only: bool = False) -> DriveStore:
    """A new client of a store."""
    return DriveStore(
        DriveAddress.parse(address), DriveClient(credentials_of(person, own=own), address), read_only=read_only
    )


class Drive:
    """A store that a person has made."""

    def __init__(self, person: Person, parent: str = "root", *, own: bool = False) -> None:
        self.person = person
        self.own = own
        self.address = make(DriveClient(credentials_of(person, own=own), "drive://new"), parent).address

    def store(self, *, read_only: bool = False) -> DriveStore:
        """A new client of it."""
        return connect(self.person, self.address, own=self.own, read_only=read_only)

    def names(self) -> list[str]:
        """Names of everything in the folder, as a person sees them, but the directory's."""
        files = self.person.look()["files"].values()
        return sorted(f["name"] for f in files if "/" in f["name"] and not f["name"].startswith("directory"))


def big_file(folder: Path, size: int, seed: int = 1) -> Path:
    """A file of bytes that repeat nowhere."""
    from random import Random

    path = folder / "model.safetensors"
    path.write_bytes(Random(seed).randbytes(size))
    return path
