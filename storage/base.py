"""What the rest of the program knows of stores: their contract, its errors, and opening one; holds nothing itself.

Backends take the contract from storage/contract.py: this module knows them, through those that open addresses.
"""

from __future__ import annotations

from storage.contract import (
    BadAddress,
    BlockHash,
    Corrupt,
    Creates,
    Denied,
    Exists,
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
from storage.openers import make_store, open_store
from storage.wrapper import fresh

__all__ = [
    "BadAddress",
    "BlockHash",
    "Corrupt",
    "Creates",
    "Denied",
    "Exists",
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
    "check_name",
    "check_prefix",
    "check_ref",
    "fresh",
    "make_store",
    "open_store",
]
