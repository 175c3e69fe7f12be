"""Addresses of Dropbox folders and the paths of objects in them; sends nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from storage.contract import BadAddress
from storage.guides import guide

_PART = re.compile(r"[a-z0-9]([a-z0-9 ._-]{0,198}[a-z0-9_-])?")
_NAMESPACE = re.compile(r"ns:([0-9]{1,20})")


@dataclass(frozen=True)
class DropboxAddress:
    """A folder: in the app's own root, or in a shared folder by its namespace id, under any name."""

    namespace: str | None
    folder: str
    """'' or '/a/b', lower-case: Dropbox's paths have no case."""

    @staticmethod
    def parse(url: str) -> DropboxAddress:
        """Raises BadAddress."""
        host, _, path = url.removeprefix("dropbox://").partition("/")
        found = _NAMESPACE.fullmatch(host)
        if host and not found:
            raise BadAddress(
                "a Dropbox address is dropbox:///folder with three slashes (a folder of your app), or "
                f"dropbox://ns:NUMBER/folder (a shared folder by its id). See {guide('dropbox')}."
            )
        parts = [part for part in unquote(path).lower().split("/") if part]
        if not all(_PART.fullmatch(part) for part in parts):
            raise BadAddress(
                "the folder of a dropbox:// address may have letters, digits, blanks, '.', '_' and '-' only, and no "
                "part of it may begin or end with a blank or a dot."
            )
        return DropboxAddress(found[1] if found else None, "".join(f"/{part}" for part in parts))

    @property
    def address(self) -> str:
        """The address that opens this place."""
        return f"dropbox://{f'ns:{self.namespace}' if self.namespace else ''}{quote(self.folder or '/')}"

    def path(self, name: str) -> str:
        """The path of an object, or of a folder of objects ('' is the whole store)."""
        return f"{self.folder}/{name}" if name else self.folder
