"""A fake service in a process of its own, as tests hold it: start, and what is asked of it outside its protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

ROOT = Path(__file__).parents[3]


class Process:
    """A running fake."""

    def __init__(self, port: int) -> None:
        self.port = port

    def control(self, verb: str, **told: Any) -> Any:
        """Ask something of the fake outside its protocol (control.py beside it)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/control/{verb}", json.dumps(told).encode())
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)


P = TypeVar("P", bound=Process)


@contextmanager
def serving(module: str, variable: str, kind: Callable[[int], P]) -> Iterator[P]:
    """A fake of one's own, which ends with this process; `variable` tells clients its port."""
    command = [sys.executable, "-m", module, "--with-parent"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        fake = kind(int(process.stdout.readline()))
        os.environ[variable] = str(fake.port)
        yield fake
    finally:
        process.kill()
        process.communicate()


class Shared(Generic[P]):
    """The one fake of this process, started at first need; clients in this process reach it from then on."""

    def __init__(self, serving: Callable[[], AbstractContextManager[P]], install: Callable[[], None]) -> None:
        self._serving, self._install = serving, install
        self._running: list[tuple[AbstractContextManager[P], P]] = []

    def __call__(self) -> P:
        if not self._running:
            self._install()
            holding = self._serving()
            self._running.append((holding, holding.__enter__()))
        return self._running[0][1]
