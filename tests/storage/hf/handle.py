"""A running fake Hugging Face as tests hold it: buckets, credentials, looking in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from tests.storage.fakes import process, redirect
from tests.storage.fakes.process import SITE, Process
from tests.storage.fakes.redirect import HF as PORT

_number = count(1)


class Fake(Process):
    """A fake service in a process of its own."""

    def bucket(self, private: bool = True) -> str:
        """The address of a new bucket."""
        name = f"ana/relay-{next(_number)}"
        self.control("bucket", name=name, private=private)
        return f"hf://buckets/{name}"

    def key(self) -> dict[str, str]:
        """Fresh S3 credentials, as variables."""
        return dict(self.control("key"))

    def look(self) -> dict[str, Any]:
        """Buckets, requests, tokens."""
        return dict(self.control("look"))

    def environ(self) -> dict[str, str]:
        """What a process needs to take this for the real service."""
        return {PORT: str(self.port), "PYTHONPATH": SITE, "HF_ENDPOINT": f"http://127.0.0.1:{self.port}"}


def serving() -> AbstractContextManager[Fake]:
    """A fake of one's own, which ends with this process."""
    return process.serving("tests.storage.hf.fake", PORT, Fake)


_shared = process.Shared(serving)


def running() -> Fake:
    """The one fake of this process, to which the SDK of S3 is led too."""
    fake = _shared()
    redirect.install()
    return fake
