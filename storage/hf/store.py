"""An S3 store behind Hugging Face's gateway, which refuses to write into a bucket that strangers can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from storage.contract import BadAddress, Exists, Missing
from storage.hf.hub import is_public, refuse_public
from storage.hf.place import HFAddress
from storage.s3.errors import Failure, status_of, translate
from storage.s3.multipart import Multipart, Unfinished
from storage.s3.store import S3Store
from storage.uploads import unreadable

ONE_REQUEST = 5 << 30
"""Longest body of one request, bytes, as of S3; the gateway's documentation names none."""


class HFStore(S3Store):
    """As S3Store. Conditions are documented for PutObject only, so that what must be new is sent in one request."""

    where: HFAddress

    def __init__(self, where: HFAddress, *, read_only: bool = False) -> None:
        super().__init__(where, read_only=read_only)
        self._multipart = _Parts(self._clients, where.bucket, self.address)
        self._asked = False

    def fresh(self) -> HFStore:
        """As wrapper.Reconnects."""
        return HFStore(self.where, read_only=self.read_only)

    def describe(self) -> list[str]:
        """As reach.Describes: who can read the bucket."""
        told = {
            True: "public: everybody can read it",
            False: "private: the Hub shows it to no stranger",
            None: "not known to be private",
        }
        return [f"bucket {self.where.bucket_id} is {told[is_public(self.where)]}"]

    def _send_in_parts(self, name: str, path: Path, new: bool) -> None:
        if not new:
            super()._send_in_parts(name, path, new)
        elif path.stat().st_size <= ONE_REQUEST:
            self._send_whole(name, path)
        elif self._is_there(name):
            raise Exists(f"{self.address}: {name} exists already.")
        else:  # two writers of so long a file can race here; each session uses names of its own
            super()._send_in_parts(name, path, new)

    def _send_whole(self, name: str, path: Path) -> None:
        """One conditional request for a long file, read while it is sent; a broken one is sent again whole."""
        try:
            with path.open("rb") as body:
                self._clients.once.put_object(**self._place(name), Body=body, IfNoneMatch="*")
        except Failure as error:
            if status_of(error) == 412:
                raise Exists(f"{self.address}: {name} exists already.") from error
            raise translate(error, self.address, name) from error
        except OSError as error:
            raise unreadable(path, error) from error

    def _is_there(self, name: str) -> bool:
        try:
            self.stat(self.ref(name))
        except Missing:
            return False
        return True

    def _check_writable(self, name: str) -> None:
        super()._check_writable(name)
        if not self._asked:
            refuse_public(self.where)
            self._asked = True


class _Parts(Multipart):
    """Uploads in parts. The documentation does not list the request for unfinished ones; without it none is resumed."""

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        try:
            yield from super().unfinished(prefix)
        except BadAddress:
            return
