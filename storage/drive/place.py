"""Addresses of stores on Google Drive: a folder's id and the id of the first slot; asks nobody whether they exist."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.contract import BadAddress

ID = re.compile(r"[A-Za-z0-9_-]{10,100}")
"""File ids are opaque; these are the characters that they and URLs of Drive are made of."""
_SEE = "See docs/how-to/drive.md."


@dataclass(frozen=True)
class Place:
    """Where a store is."""

    folder: str
    first: str
    """Id of slot 0 of the store's directory (docs/decisions/0005-drive-slots.md)."""

    @staticmethod
    def parse(url: str) -> Place:
        """Raises BadAddress."""
        parts = url.removeprefix("drive://").rstrip("/").split("/")
        if parts[0] == "new":
            raise BadAddress(
                f"{url} asks for a new store, which only `init` makes. Run it once and use the address that it prints. "
                f"{_SEE}"
            )
        if len(parts) != 2 or not all(ID.fullmatch(part) for part in parts):
            raise BadAddress(
                "a Google Drive address is drive://FOLDER_ID/FIRST_ID, as `init` printed it; drive://new lets `init` "
                f"make a folder. A folder's web address or name is none. {_SEE}"
            )
        return Place(*parts)

    @staticmethod
    def wanted(url: str) -> str | None:
        """The id of the folder in which a new store is wanted ('root' is My Drive); None for any other address.

        Raises BadAddress.
        """
        parts = url.removeprefix("drive://").rstrip("/").split("/")
        if parts[0] != "new":
            return None
        if len(parts) > 2 or (len(parts) == 2 and not ID.fullmatch(parts[1])):
            raise BadAddress(
                f"{url}: write drive://new, or drive://new/ID with the id of the folder to put it in. {_SEE}"
            )
        return parts[1] if len(parts) == 2 else "root"

    @property
    def address(self) -> str:
        """The address that opens this place again."""
        return f"drive://{self.folder}/{self.first}"
