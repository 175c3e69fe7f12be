"""A warm interpreter for all tests of a worker, a fresh shared folder for each; ends the processes left running."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Relay, Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket's has some hundred bytes at most
        warm = Warm(Path(folder))
        yield warm
        warm.close()


@pytest.fixture
def relay(tmp_path: Path, warm: Warm) -> Iterator[Relay]:
    relay = Relay(tmp_path, warm)
    yield relay
    for process in relay.started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()
