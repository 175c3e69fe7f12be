"""Parses and checks hf:// addresses, and gives them as addresses of the S3 gateway."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from storage.contract import BadAddress
from storage.s3.address import S3Address

GATEWAY = "https://s3.hf.co"
REGION = "us-east-1"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
"""Of a namespace or a bucket, as of every repository there."""
_FORM = "Write hf://buckets/NAMESPACE/BUCKET, or hf://new/NAMESPACE/BUCKET for `init` to make the bucket."
_PUBLIC = "?public=1"


@dataclass(frozen=True)
class HFAddress(S3Address):
    """`hf://buckets/NAMESPACE/BUCKET/prefix?public=1`; the prefix and the rest may be absent."""

    namespace: str = ""
    public: bool = False
    """Whether everybody on the internet may read the bucket; the person who wrote the address wants that."""

    def __str__(self) -> str:
        parts = (self.namespace, self.bucket, *([self.prefix] if self.prefix else []))
        return f"hf://buckets/{'/'.join(parts)}{_PUBLIC * self.public}"

    @property
    def bucket_id(self) -> str:
        """The bucket's name on the Hub."""
        return f"{self.namespace}/{self.bucket}"

    @staticmethod
    def parse(url: str) -> HFAddress:
        """The parts of an address. Raises BadAddress, which never repeats a possible secret."""
        return _parsed(url, "buckets")

    @staticmethod
    def wanted(url: str) -> HFAddress | None:
        """The store that hf://new/… asks for; None for any other address. Raises BadAddress."""
        return _parsed(url, "new") if url.startswith("hf://new/") else None


def _parsed(url: str, kind: str) -> HFAddress:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadAddress(f"the hf:// address is not a URL. {_FORM}") from None
    if "@" in url or parts.fragment:
        raise BadAddress(f"an hf:// address cannot hold a token or a key. {_FORM}")
    if parts.netloc == "new" and kind != "new":
        raise BadAddress(f"{url[:120]} is an address that `init` makes. {_FORM}")
    names = [part for part in parts.path.split("/") if part]
    _demand(parts.netloc == kind and len(names) >= 2, "it does not name a bucket")
    _demand(all(_NAME.fullmatch(name) for name in names), "a name in it may have letters, digits, '.', '_' and '-'")
    _demand(not any(".." in name for name in names), "a name in it holds two dots")
    _demand(len(url) <= 300, "it is longer than 300 characters")
    _demand(parts.query in ("", _PUBLIC[1:]), f"the only setting in it is {_PUBLIC[1:]}")
    namespace, bucket, *prefix = names
    endpoint = f"{GATEWAY}/{namespace}"
    return HFAddress(bucket, "/".join(prefix), endpoint, REGION, "path", namespace, bool(parts.query))


def _demand(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BadAddress(f"the hf:// address cannot be opened: {otherwise}. {_FORM}")
