"""Compiled code of a toy: a folder of small files that "compiling" fills, the archive of it, sessions that use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.core.checkpoint.compilecache import WarmStart, signature
from relay.core.events import CompileCache
from relay.core.names import CACHES
from relay.core.session.timing import Startup
from tests.core.lab import Lab, Session
from tests.core.toy import ToyWorkload

SECRET = b"0123456789abcdef0123456789abcdef"
KEY = "ab" * 32
NAME = CACHES + KEY
GOOD = b'{"forward": "code of forward"}'


@dataclass
class ToyKernels:
    """The workload needs `names` at its first step; `compile` makes those that are not there."""

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


class Compiling(ToyWorkload):
    """Its first step compiles, and `late` ones from step 5 on."""

    def __init__(self, kernels: ToyKernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.late: tuple[str, ...] = ()
        """Compiled later on."""

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Any], None]) -> None:
        if not self.trained:
            self.kernels.compile()
        elif self.late and self.step >= 5:
            self.kernels.names += self.late
            self.late = ()
            self.kernels.compile()
        super().advance(until, should_stop, report)


def session(lab: Lab, machine: str, secret: bytes = SECRET, key: str = KEY, **plan: Any) -> tuple[Session, ToyKernels]:
    kernels = ToyKernels(lab.tmp / machine / "kernels", key)
    made = lab.session(machine=machine, workload=Compiling(kernels), **plan)
    ctx = made.ctx
    ctx.startup = Startup(made.process.monotonic())
    ctx.warm = WarmStart(made.process, made.store, kernels, secret, ctx.listener.event)
    return made, kernels


def told(made: Session) -> list[str]:
    return [line for line in made.told if line.startswith("Compile cache")]


def heard(made: Session) -> list[CompileCache]:
    return [event for event in made.heard.events if isinstance(event, CompileCache)]


def signed(payload: bytes, secret: bytes = SECRET, key: str = KEY) -> bytes:
    return signature(secret, key, payload) + payload
