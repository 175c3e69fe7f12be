"""A store in a bucket of S3 or of a compatible server. Importing this needs no SDK; opening an address does."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec

from storage.contract import BadAddress, Store
from storage.packages import install
from storage.s3.address import check_endpoint, parse

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def open_s3(url: str, read_only: bool) -> Store:
    """The store at an s3:// address; without endpoint_url at the environment's endpoint, or AWS. Sends nothing.

    Raises BadAddress, also without the SDK.
    """
    where = parse(url)
    if find_spec("boto3") is None:
        raise BadAddress(f"s3:// addresses need Amazon's package. Install it: `{install('s3')}`.")
    named = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    if where.endpoint_url is None and named:
        where = replace(where, endpoint_url=check_endpoint(named))
    from storage.s3.store import S3Store

    return S3Store(where, read_only=read_only)
