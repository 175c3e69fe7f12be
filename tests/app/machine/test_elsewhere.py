"""A system that is no Linux: without /proc, a boot id, mounts to read and Linux's own calls everything still works."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.app.cli import Desk

LINUX = re.compile(r"/proc\b|/sys\b|\bsched_\w+|pidfd_\w+|inotify|memfd|O_TMPFILE")
"""What only Linux has."""
KNOWN = {
    "relay/app/machine/env.py": "age of machine and process, firmware",
    "relay/core/lease/host.py": "boot id, one's own earlier session",
    "relay/core/lease/processage.py": "when a process started",
    "relay/core/resources.py": "limits of the whole system",
    "storage/local.py": "boot id, umask",
    "storage/mounts.py": "kinds of file systems",
    "relay/torch/fingerprint.py": "version of the driver",
}
"""Modules that ask Linux for more, and do without where there is none."""


def test_only_these_modules_ask_linux() -> None:
    root = Path(__file__).parents[3]
    sources = (path for folder in ("relay", "storage", "trm") for path in (root / folder).rglob("*.py"))
    found = {str(path.relative_to(root)) for path in sources if LINUX.search(path.read_text())}
    assert found <= KNOWN.keys(), f"{found - KNOWN.keys()}: say here what it does elsewhere"


@pytest.fixture
def no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Desk looks for /proc and /sys in its own folder, which has none."""
    for module, name in ((os, "pidfd_open"), (os, "sched_getaffinity"), (signal, "pidfd_send_signal")):
        monkeypatch.delattr(module, name, raising=False)
    monkeypatch.setattr("relay.core.lease.host.read_boot_id", lambda: "")
    monkeypatch.setattr("storage.mounts._read", lambda mounts: [])


@pytest.mark.usefixtures("no_linux")
def test_sessions_follow_each_other_and_every_look_works(desk: Desk) -> None:
    desk.train(3)
    desk.train(6, "--budget-minutes", "5", account="account_2")
    assert desk.status()["step"] == 6 and desk.status()["links"][-1]["certified"] == "exact"
    for words in (("report",), ("next",), ("verify",), ("doctor",), ("runs", "list"), ("invite",), ("gc", "--dry-run")):
        desk(*words, *(() if words[0] == "runs" else ("--run", "r")))
