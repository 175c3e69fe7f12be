"""Addresses of stores on Google Drive: a folder's id and the first slot's id; sends nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.contract import BadAddress
from storage.guides import guide

ID = re.compile(r"[A-Za-z0-9_-]{10,100}")
"""Ids are opaque; Drive's ids and URLs use only these characters."""
_SEE = f"See {guide('drive')}."


@dataclass(frozen=True)
class DriveAddress:
    """The place of a store."""

    folder: str
    first: str
    """Id of slot 0 of the store's directory (docs/decisions/0005-drive-slots.md)."""

    @staticmethod
    def parse(url: str) -> DriveAddress:
        """Raises BadAddress."""
        parts = url.removeprefix("drive://").rstrip("/").split("/")
        if parts[0] == "new":
            raise BadAddress(
                f"{url} asks for a new store, and only `init` creates one. Run it once and use the printed address. "
                f"{_SEE}"
            )
        if len(parts) != 2 or not all(ID.fullmatch(part) for part in parts):
            raise BadAddress(
                "a Google Drive address is drive://FOLDER_ID/FIRST_ID, as `init` printed it. drive://new lets `init` "
                f"make a folder. A folder's web address or name does not work. {_SEE}"
            )
        return DriveAddress(*parts)

    @staticmethod
    def wanted(url: str) -> str | None:
        """The id of the folder in which to create a new store ('root' is My Drive); None for any other address.

        Raises BadAddress.
        """
        parts = url.removeprefix("drive://").rstrip("/").split("/")
        if parts[0] != "new":
            return None
        if len(parts) > 2 or (len(parts) == 2 and not ID.fullmatch(parts[1])):
            raise BadAddress(f"{url}: write drive://new, or drive://new/ID with the id of the parent folder. {_SEE}")
        return parts[1] if len(parts) == 2 else "root"

    @property
    def address(self) -> str:
        """The address that opens this place."""
        return f"drive://{self.folder}/{self.first}"
