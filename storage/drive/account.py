"""What Drive tells of the account: who it is, how full it is; knows no files."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from storage.contract import QuotaExceeded, StoreError
from storage.drive.client import Client
from storage.retry import patiently

_ATTEMPTS = 5


class Account:
    """Asked again by itself, for no wrapper knows of it. All methods raise StoreErrors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def quota(self) -> tuple[int, int | None]:
        """Bytes used and bytes allowed; None where nothing is said to limit it."""
        about = self._about("asking for the free space", "storageQuota")
        with self._client.telling("asking for the free space"):
            quota = about.get("storageQuota", {})
            return int(quota.get("usage", 0)), int(quota["limit"]) if "limit" in quota else None

    def digest(self) -> str:
        """Of who this is to Drive; says nothing to people and is the same on every machine."""
        about = self._about("asking who this is", "user(permissionId)")
        with self._client.telling("asking who this is"):
            return hashlib.sha256(str(about["user"]["permissionId"]).encode()).hexdigest()[:32]

    @contextmanager
    def explaining_quota(self) -> Iterator[None]:
        """A full Drive says how full it is, if it may be asked."""
        try:
            yield
        except QuotaExceeded as error:
            try:
                used, limit = self.quota()
            except StoreError:
                raise error from None
            of = f"of {limit / 1e9:.2f} GB are" if limit else "GB are"
            raise QuotaExceeded(f"{error} {used / 1e9:.2f} {of} used.") from error

    def _about(self, what: str, fields: str) -> Any:
        return patiently(
            lambda: self._client.ask(what, lambda drive: drive.about().get(fields=fields)),
            sleep=time.sleep,
            jitter=random.random,
            attempts=_ATTEMPTS,
        )
