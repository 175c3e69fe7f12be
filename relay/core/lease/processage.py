"""Reads from /proc when a process of this machine started. Imports only the standard library."""

from __future__ import annotations

import os
from pathlib import Path


def process_age(root: Path = Path("/"), pid: str = "self") -> float | None:
    """Seconds since a process started, including time suspended; None where /proc does not show it."""
    ticks = start_ticks(root, pid)
    try:
        uptime = float((root / "proc" / "uptime").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    if ticks is None:
        return None
    started = ticks / os.sysconf("SC_CLK_TCK")
    plausible = 0 < started <= uptime or (pid == "1" and started == 0)
    return uptime - started if plausible else None


def start_ticks(root: Path = Path("/"), pid: str = "self") -> int | None:
    """Start of a process in the kernel's ticks since boot; None where /proc does not show it. Together with the pid it
    is unique within a boot."""
    try:
        stat = (root / "proc" / pid / "stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
