"""Releases Colab's machine after everything on it is in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.app.machine.env import Machine
from relay.core.clock import Runtime
from relay.core.errors import Exit

NOTICE_S = 5
"""Seconds between the announcement and the release: time to interrupt it, and to save the page above."""


def why_kept(ended: Mapping[str, Any] | None, machine: Machine, unsent: Sequence[str]) -> str:
    """Why the machine is still needed; empty if it is not. `ended`: relay.run/1 of the last session here."""
    if machine.provider != "colab":
        return f"a cell can release Colab machines only (this is {machine.provider}). Stop it where you started it."
    if ended is None:
        return "no session of this notebook ended as planned."
    if ended.get("exit_code") not in (Exit.OK, Exit.HANDOFF):
        return f"the session ended with exit code {ended.get('exit_code')}."
    if ended.get("unsent"):
        return f"a checkpoint is only on this machine ({ended['unsent']}); run the training cell again to send it."
    return unsent[0] if unsent else ""


def release(runtime: Runtime, report: Callable[[str], None]) -> None:
    """Announce it, wait, and release the machine; an interrupt during the wait keeps it."""
    try:
        from google.colab import runtime as colab
    except ImportError:
        report("Machine kept: this Python has no google.colab.runtime.")
        return
    report(f"Everything is in the store. Releasing the machine in {NOTICE_S} s; interrupt this cell to keep it.")
    try:
        runtime.sleep(NOTICE_S)
    except KeyboardInterrupt:
        report("Machine kept.")
        return
    colab.unassign()
