"""The table of the kinds of storage: everything outside a backend's own folder that names it.

A new backend is one entry here, one in storage/promises.py, and an extra in pyproject.toml.
`tests/storage/test_kinds.py` says what else is missing: the shell script's packages, the page, the tests' doubles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@dataclass(frozen=True)
class Group:
    """Credentials that are needed together and come from one source."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    """Variables that replace them."""


@dataclass(frozen=True)
class Kind:
    """What the rest of the program knows of one kind of storage. Functions are named as `module:function`."""

    opens: str
    """`(url, read_only) -> Store`; sends nothing."""
    makes: str = ""
    """`(url) -> url`: creates the store that an address such as drive://new asks for, and returns where it is."""
    signs_in: str = ""
    """`(desk, asked) -> variables`, for `login`."""
    extra: str = ""
    """The extra of pyproject.toml that brings its packages."""
    modules: tuple[str, ...] = ()
    """What must be importable before its address can be opened."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions a bug report names."""
    credentials: tuple[Group, ...] = ()
    """Variables that open it, the best group first."""
    access: str = ""
    """What a participant needs besides the address, for the invitation."""


_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
KINDS: dict[str, Kind] = {
    "file": Kind("storage.base:open_file", access="write access to that folder, in the same group as the others"),
    "memory": Kind("storage.base:open_memory"),
    "s3": Kind(
        "storage.s3:open_s3",
        extra="s3",
        modules=("boto3",),
        packages=("boto3",),
        credentials=(Group(_KEYS, ("AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"), ("AWS_PROFILE",)),),
        access="an access key of your own for this bucket, from its owner",
    ),
    "dropbox": Kind(
        "storage.dropbox:open_dropbox",
        signs_in="storage.dropbox.login:log_in",
        extra="dropbox",
        modules=("dropbox",),
        packages=("dropbox",),
        credentials=(
            Group(("DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY"), ("DROPBOX_APP_SECRET",)),
            Group(("DROPBOX_ACCESS_TOKEN",)),
        ),
        access="the app's token, sent separately",
    ),
    "drive": Kind(
        "storage.drive:open_drive",
        makes="storage.drive:make_drive",
        signs_in="storage.drive.login:log_in",
        extra="drive",
        modules=("googleapiclient", "google_auth_httplib2"),
        packages=("google-api-python-client",),
        credentials=(Group(("RELAY_DRIVE_TOKEN",), ("RELAY_DRIVE_OWN_ACCOUNT",), ("RELAY_DRIVE_TOKEN_FILE",)),),
        access="the storage account's token, sent separately",
    ),
    "hf": Kind(
        "storage.hf:open_hf",
        makes="storage.hf:make_hf",
        signs_in="storage.hf.login:log_in",
        extra="hf",
        modules=("boto3", "huggingface_hub"),
        packages=("huggingface_hub",),
        credentials=(Group(_KEYS, (), ("AWS_PROFILE",)),),
        access="S3 credentials of your own token, or the bucket owner's, sent separately",
    ),
}
"""By the scheme of the address."""
SIGNED_IN = tuple(sorted(name for name, kind in KINDS.items() if kind.signs_in))
"""Kinds that `login` knows."""
PACKAGES = tuple(package for kind in KINDS.values() for package in kind.packages)


def function(name: str) -> Any:
    """The function that an entry names; its module is imported now, because it may need an SDK."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def credentials(schemes: Iterable[str]) -> dict[str, tuple[Group, ...]]:
    """The variables of those kinds that need any, in alphabetical order."""
    return {name: KINDS[name].credentials for name in sorted(set(schemes) & set(KINDS)) if KINDS[name].credentials}


def lacking(schemes: Iterable[str]) -> bool:
    """Whether a package of one of these kinds is not installed."""
    return any(find_spec(module) is None for name in set(schemes) & set(KINDS) for module in KINDS[name].modules)
