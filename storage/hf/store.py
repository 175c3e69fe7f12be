"""An S3 store behind Hugging Face's gateway, which refuses to write into a bucket that strangers can read."""

from __future__ import annotations

from collections.abc import Iterator

from storage.contract import BadAddress
from storage.hf.hub import is_public, refuse_public
from storage.hf.place import HFAddress
from storage.s3.multipart import Multipart, Unfinished
from storage.s3.store import S3Store


class HFStore(S3Store):
    """As S3Store. Conditions are documented for PutObject only; a ledger entry is always one PutObject."""

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
        told = {True: "public: everybody can read it", False: "private: the Hub shows it to no stranger"}
        return [f"bucket {self.where.bucket_id} is {told.get(is_public(self.where), 'not known to be private')}"]

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
