"""Compiled code of a toy: a folder of small files that "compiling" fills, and the archive of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SECRET = b"0123456789abcdef0123456789abcdef"
KEY = "ab" * 32


@dataclass
class ToyKernels:
    """`names` are what the workload needs at its first step; `compile` makes those that are not there."""

    folder: Path
    key: str = KEY
    names: tuple[str, ...] = ("forward", "backward")
    tally: dict[str, int] = field(default_factory=lambda: {"kernels_loaded": 0, "kernels_compiled": 0})
    unpacked: list[bytes] = field(default_factory=list)

    def open(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        return len(list(self.folder.iterdir()))

    def compile(self) -> None:
        for name in self.names:
            there = (self.folder / name).exists()
            self.tally["kernels_loaded" if there else "kernels_compiled"] += 1
            (self.folder / name).write_text(f"code of {name}")

    def unpack(self, data: bytes) -> int:
        self.unpacked.append(data)
        files = json.loads(data)
        for name, content in files.items():
            (self.folder / name).write_text(content)
        return len(files)

    def pack(self) -> bytes:
        return json.dumps({path.name: path.read_text() for path in sorted(self.folder.iterdir())}).encode()

    def counts(self) -> Mapping[str, int]:
        return dict(self.tally)
