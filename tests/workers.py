"""Forks pytest's workers from one process that has imported the tests.

Imports are two thirds of a worker's start. In a fresh clone each worker would also compile all tests, several times as
long. Called with an address and the paths to collect, it imports them and waits there for orders
(tests/acceptance/warm.py). Called as `python` by execnet, it orders a worker and passes on its exit code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ORDER = "-u"
"""The first option that execnet gives to `python`."""


class Workers:
    """The process that the workers are forked from, while they run."""

    def __init__(self, options: Sequence[str], paths: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory()  # a short name: a socket's has some hundred bytes at most
        address = f"{self._folder.name}/workers"
        self.python = f"{sys.executable} -S {__file__} {address}"
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, *options, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # a worker gets a terminal's interrupt once, from the process that ordered it
        )
        assert self._process.stdout is not None
        while self._process.stdout.readline() not in (b"ready\n", b""):
            pass

    def close(self) -> None:
        """The workers have ended."""
        self._process.communicate()
        self._folder.cleanup()


def import_all(arguments: Sequence[str]) -> None:
    """Import the modules that pytest would collect. A module that cannot be imported is left to the workers to report.

    With one thread, because the threads that torch computes with would be missing in a fork, which waits for them.
    """
    import pytest

    import trm  # noqa: F401 - before torch, as in tests/conftest.py
    import torch  # isort: skip

    class Modules:
        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
            return []

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pytest.main(["-n0", "--collect-only", *arguments], plugins=[Modules()])
    torch.set_num_threads(threads)


def main(address: str, *words: str) -> None:
    """A process that imports and forks, or the order of a worker."""
    if words[0] == ORDER:
        from tests.acceptance.python_of_docs import forked

        sys.exit(forked(list(words[1:]), address))
    from tests.acceptance.warm import serve

    import_all(words)
    serve(address)
    os._exit(0)  # to take the imported modules apart would take seconds


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    main(*sys.argv[1:])
