"""However many files go up at once, no more parts are in memory than a store allows itself."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage.s3 import multipart
from storage.s3.multipart import Multipart


class Slow:
    """Both clients of a server that takes its time with each part, and counts those on their way."""

    def __init__(self) -> None:
        self.once = self.patient = self
        self.now = self.most = self.parts = 0
        self._lock = threading.Lock()

    def get_paginator(self, _: str) -> Any:
        return SimpleNamespace(paginate=lambda **_: [])

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "x"}

    def upload_part(self, *, Body: bytes, **_: Any) -> dict[str, str]:
        with self._lock:
            self.now, self.parts = self.now + 1, self.parts + 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self._lock:
            self.now -= 1
        return {"ETag": '"e"'}

    def complete_multipart_upload(self, **_: Any) -> None:
        pass


def test_parts_in_memory_are_bounded_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART", 1 << 20)
    server: Any = Slow()
    sending = Multipart(server, "bucket", "s3://bucket")
    for number in range(4):
        (tmp_path / f"f{number}").write_bytes(bytes(8 << 20))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: sending.put(f"f{n}", tmp_path / f"f{n}", verified=False), range(4)))
    assert server.parts == 32
    assert 2 <= server.most <= multipart.SENDERS, "four files, eight threads each, one bound"
