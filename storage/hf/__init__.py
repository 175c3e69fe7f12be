"""A store in a Storage Bucket of Hugging Face, through its S3 gateway. Importing this needs no SDK."""

from __future__ import annotations

import os
from importlib.util import find_spec

from storage.contract import BadAddress, Denied, Store
from storage.guides import guide
from storage.hf.place import HFAddress
from storage.packages import install

_AMAZON = ("AKIA", "ASIA")
"""How the ids of Amazon's own keys begin."""


def open_hf(url: str, read_only: bool) -> Store:
    """The store at hf://buckets/NAMESPACE/BUCKET, with the environment's credentials; sends nothing.

    Raises BadAddress for another address or without the packages, Denied for a key that is Amazon's.
    """
    where = HFAddress.parse(url)
    _need("boto3")
    if os.environ.get("AWS_ACCESS_KEY_ID", "").startswith(_AMAZON):
        raise Denied(
            "AWS_ACCESS_KEY_ID holds a key of Amazon's, and hf:// addresses need one of Hugging Face's (HFAK…). "
            f"{guide('hf')} shows how to make one."
        )
    from storage.hf.store import HFStore

    return HFStore(where, read_only=read_only)


def make_hf(url: str) -> str:
    """The address of a new bucket, for hf://new/NAMESPACE/BUCKET; any other address as it is.

    Creates the bucket, private unless the address ends in ?public=1; an existing one stays as it is. Raises BadAddress,
    Denied, and the store's errors.
    """
    wanted = HFAddress.wanted(url)
    if wanted is None:
        return url
    _need("boto3", "huggingface_hub")
    from storage.hf.hub import create

    create(wanted)
    return str(wanted)


def _need(*modules: str) -> None:
    if any(find_spec(module) is None for module in modules):
        raise BadAddress(f"hf:// addresses need the packages of the extra hf. Install it: `{install('hf')}`.")
