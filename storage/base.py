"""The stores as the rest of the program uses them: their contract, its errors, and `open_store` for an address.

The contract is in storage/contract.py. A backend is imported only when an address needs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from storage.contract import (
    BadAddress,
    BadSetting,
    BlockHash,
    Corrupt,
    Creates,
    Denied,
    Exists,
    Expired,
    LostEntry,
    Missing,
    OutcomeUnknown,
    QuotaExceeded,
    Ref,
    Stat,
    Store,
    StoreError,
    Throttled,
    TooLong,
    Unavailable,
    check_name,
    check_prefix,
    check_ref,
)
from storage.kinds import KINDS, function
from storage.wrapper import fresh

__all__ = [
    "BadAddress",
    "BadSetting",
    "BlockHash",
    "Corrupt",
    "Creates",
    "Denied",
    "Exists",
    "Expired",
    "LostEntry",
    "Missing",
    "OutcomeUnknown",
    "QuotaExceeded",
    "Ref",
    "Stat",
    "Store",
    "StoreError",
    "Throttled",
    "TooLong",
    "Unavailable",
    "check_address",
    "check_name",
    "check_prefix",
    "check_ref",
    "fresh",
    "is_address",
    "make_store",
    "open_store",
]

_KIND = re.compile(rf"([a-z][a-z0-9+.-]*):|({'|'.join(KINDS)})//", re.IGNORECASE | re.ASCII)
"""How an address begins, also one that lacks its slashes or its colon."""
_REMOTE = re.compile(r"[^/\s]*@[^/]*:")
"""An address as ssh and scp write it."""
_QUOTES = "\"'`“”„‘’«»"
_BLANKS = " \t\r\n\v\f\u00a0\u200b\ufeff"
"""Blanks, seen and unseen, that a copied line may carry at its ends."""
_DROPPED = re.compile(r"[\t\r\n]")
"""Characters that urlsplit silently removes from an address; the store would then be elsewhere."""


def is_address(text: str) -> bool:
    """Whether the text is meant as an address, as `file:/x`, `C:\\x` and `"s3://b"` are too; otherwise it is a plain
    path. Opening an address that is none of the known ones is refused."""
    return _KIND.match(text) is not None or _misread(text) is not None


def _misread(text: str) -> str | None:
    """Why the text would become the name of a folder by mistake, and the fix; None if it may be a path or an address.

    Never repeats the text: a broken address may hold a secret.
    """
    if not text.strip():
        return None
    line = text.rstrip("\r\n") if "://" in text else text  # a line end after an address changes nothing
    if line.strip(_BLANKS) != line:
        return "begins or ends with a blank. Remove the blank"
    if line[:1] in _QUOTES:
        return (
            f"begins with a quote ({line[:1]}). Remove the quotes; `docker run --env-file` and YAML blocks keep them. "
            "For a folder of that name write ./ before it"
        )
    if line.startswith("\\\\"):
        return r"begins with \\, as Windows writes a share. Mount the share and give the folder where it is mounted"
    if line.startswith("$"):
        return "begins with $, and nothing replaced that variable. Write its value, or ./ before a folder of that name"
    if _REMOTE.match(line):
        return (
            "names a folder of another machine. Mount it and give the folder where it is mounted, or write ./ before a "
            "folder of that name"
        )
    if "://" in line and not _KIND.match(line):
        return f"holds :// but does not begin with a known kind. Known are {_KNOWN}"
    return None


def check_address(text: str) -> None:
    """Raises BadAddress for an unknown kind of store, and for text that would become a folder name by mistake."""
    if why := _misread(text):
        raise BadAddress(f"the store address {why}.")
    scheme, mark, _ = text.partition("://")
    if mark and scheme not in KINDS:
        raise BadAddress(f"unknown kind of store {scheme}:// in the address. Known are {_KNOWN}.")
    if not mark and (kind := _KIND.match(text)):
        name = (kind[1] or kind[2]).lower()
        known = f"Write {name}:// with a colon and two slashes" if name in KINDS else "Known are " + _KNOWN
        raise BadAddress(f"{text} is not a store address. {known}; for a folder of that name write ./{text}.")


def open_file(url: str, read_only: bool) -> Store:
    """The folder at a file:// address. Raises BadAddress."""
    if _DROPPED.search(url.strip()):
        raise BadAddress(f"{url!r} holds a tab or the end of a line. Copy the address again, on one line.")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadAddress(
            f"{url} is not a local folder. Write file:///absolute/path with three slashes, or a plain path."
        )
    return _open_path(unquote(parts.path, errors="surrogateescape"), read_only)  # as Path.as_uri writes them


def _open_path(path: str, read_only: bool) -> Store:
    """The store in a folder."""
    from storage.local import LocalStore

    if not path.strip():
        raise BadAddress("the store address is empty. Give a folder path, or file:///path.")
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:
        raise BadAddress(f"{path}: unknown home folder. Write the whole path.") from error
    return LocalStore(folder, read_only=read_only)


def open_memory(url: str, read_only: bool) -> Store:
    """A store of this process alone, for tests."""
    from storage.memory import MemoryStore

    return MemoryStore(url.removeprefix("memory://"), read_only=read_only)


_KNOWN = ", ".join(f"{name}://" for name in KINDS) + " and plain folder paths"


def open_store(url: str, *, read_only: bool = False) -> Store:
    """The store at an address of one of the kinds of storage/kinds.py, or in the folder at a plain path.

    With `read_only` the store writes nothing, not even a probe of the clock, and writing verbs raise Denied.
    Opening sends nothing: the first write creates a local folder. Raises BadAddress, or Denied without
    credentials.
    """
    check_address(url)
    scheme, mark, _ = url.partition("://")
    store: Store = function(KINDS[scheme].opens)(url, read_only) if mark else _open_path(url, read_only)
    return store


def make_store(url: str) -> str:
    """The address of a store to create: drive://new and hf://new/… create one now, others stay as given.

    Raises StoreError.
    """
    kind = KINDS.get(url.partition("://")[0])
    return str(function(kind.makes)(url)) if kind and kind.makes else url
