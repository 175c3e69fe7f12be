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

from tests.storage.fakes import redirect

ROOT = Path(__file__).parents[3]
SITE = os.pathsep.join([str(Path(__file__).parent / "site"), str(ROOT)])
"""PYTHONPATH of a command that takes the fakes for the real services."""


class Process:
    """A running fake."""

    def __init__(self, port: int) -> None:
        self.port = port

    def control(self, verb: str, **told: Any) -> Any:
        """Ask something of the fake outside its protocol (control.py beside it)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/control/{verb}", json.dumps(told).encode())
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)


class Member:
    """A user of a fake service, and what is done to it."""

    def __init__(self, fake: Process, name: str, holds: dict[str, Any]) -> None:
        self.fake = fake
        self.name = name
        self.holds = holds

    def change(self, **told: Any) -> None:
        """Change the user itself: quota, rate, latency, list_lag and what else its fake's world.py names."""
        self.fake.control("account", name=self.name, **told)

    def fault(self, kind: str, **told: Any) -> None:
        """Plan a fault."""
        self.fake.control("fault", account=self.name, kind=kind, **told)

    def heal(self) -> None:
        """No more planned faults."""
        self.fake.control("heal", account=self.name)

    def look(self, **told: Any) -> dict[str, Any]:
        """Files, requests by route, faults met, bytes received, upload sessions and more."""
        return dict(self.fake.control("look", account=self.name, **told))

    def asked(self, route: str) -> int:
        """How often routes beginning so were asked."""
        return sum(number for name, number in self.look()["counts"].items() if name.startswith(route))


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

    def __init__(self, serving: Callable[[], AbstractContextManager[P]]) -> None:
        self._serving = serving
        self._running: list[tuple[AbstractContextManager[P], P]] = []

    def __call__(self) -> P:
        if not self._running:
            redirect.install()
            holding = self._serving()
            self._running.append((holding, holding.__enter__()))
        return self._running[0][1]
