"""Which calls that make something durable, or give it a name, were made and in which order."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

import pytest


def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on each such call is noted here and made; the fsync of a file is told from that of a folder."""
    calls: list[str] = []
    for call in ("fsync", "link", "replace", "mkdir"):
        real = getattr(os, call)

        def note(*args: Any, call: str = call, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            of_file = call == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode)
            calls.append("fsync file" if of_file else call)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, call, note)
    return calls
