"""Parses and checks s3:// addresses: bucket, prefix and how to reach them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from storage.contract import BadAddress

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_LONGEST_PREFIX = 100
_KEYS = ("endpoint_url", "region", "addressing")
ADDRESSING = ("path", "virtual", "auto")


@dataclass(frozen=True)
class S3Address:
    """`s3://bucket/prefix?endpoint_url=…&region=…&addressing=…`; everything after the bucket may be absent."""

    bucket: str
    prefix: str = ""
    """Prefix of every key, '' or without a slash at its ends."""
    endpoint_url: str | None = None
    """URL of a server other than AWS."""
    region: str | None = None
    addressing: str | None = None
    """'path': the bucket is in the path; 'virtual': in the host name; None: path if there is an endpoint_url."""

    def __str__(self) -> str:
        given = {key: value for key in _KEYS if (value := getattr(self, key))}
        query = "&".join(f"{key}={quote(value, safe='/:[]')}" for key, value in given.items())
        return f"s3://{self.bucket}" + f"/{self.prefix}" * bool(self.prefix) + f"?{query}" * bool(query)

    @property
    def root(self) -> str:
        """The beginning of every key."""
        return f"{self.prefix}/" if self.prefix else ""


def parse(url: str) -> S3Address:
    """The parts of an address. Raises BadAddress, which never repeats a possible secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadAddress("the s3:// address is not a URL. Write s3://bucket/prefix.") from None
    if "@" in parts.netloc + parts.path or parts.fragment:  # a key may hold a slash, so that its end looks like a path
        raise BadAddress(
            "an s3:// address cannot hold a user, key or password. Write s3://bucket/prefix; give credentials in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in ~/.aws/credentials."
        )
    query = _query(parts)
    prefix = parts.path.strip("/")
    name, colon, _ = parts.netloc.partition(":")
    shown = f"{name[:80]}:…" if colon else name[:80]
    _demand(bool(_BUCKET.fullmatch(parts.netloc)), f"{shown!r} is not a bucket name")
    _demand(not prefix or bool(_PREFIX.fullmatch(prefix)), f"{prefix[:80]!r} is not a prefix (letters, digits, ._-/)")
    _demand(len(prefix) <= _LONGEST_PREFIX, f"the prefix is longer than {_LONGEST_PREFIX} characters")
    region, addressing = query.get("region"), query.get("addressing")
    _demand(region is None or is_region(region), _no_region(region or ""))
    _demand(addressing in (None, *ADDRESSING), f"addressing is one of {', '.join(ADDRESSING)}")
    endpoint = check_endpoint(query["endpoint_url"]) if "endpoint_url" in query else None
    return S3Address(parts.netloc, prefix, endpoint, region, addressing)


def check_endpoint(url: str) -> str:
    """The URL of a server, without a slash at its end. Raises BadAddress."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadAddress("the endpoint_url of the s3:// address is not a URL.") from None
    plain = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    _demand(plain, "its endpoint_url does not begin with https:// or http:// and a host")
    _demand("@" not in parts.netloc, "its endpoint_url holds a user or password; give credentials in the environment")
    _demand(not parts.query and not parts.fragment, "its endpoint_url has a query; write & between the settings")
    return url.rstrip("/")


def is_region(name: str) -> bool:
    """Whether a region can have this name."""
    return _REGION.fullmatch(name) is not None


def _no_region(text: str) -> str:
    blank = "holds a blank" if any(letter.isspace() for letter in text) else "is not one"
    return f"the region {blank} (it is written like eu-central-1)"


def is_local(endpoint_url: str) -> bool:
    """Whether a server is on this machine."""
    host = urlsplit(endpoint_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _query(parts: SplitResult) -> dict[str, str]:
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        raise BadAddress("the part after ? in the s3:// address is not key=value&key=value.") from None
    keys = [key for key, _ in pairs]
    unknown = sorted(set(keys) - set(_KEYS))
    _demand(not unknown, f"it has a setting {', '.join(unknown)[:80]}, but known are {', '.join(_KEYS)}")
    _demand(len(keys) == len(set(keys)), "it has a setting twice")
    return dict(pairs)


def _demand(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BadAddress(f"the s3:// address cannot be opened: {otherwise}. Write s3://bucket/prefix.")
