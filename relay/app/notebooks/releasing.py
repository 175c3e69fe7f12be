"""Gives Colab's machine back once nothing on it is needed any more; what decides that is told to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.app.machine.env import Machine
from relay.core.clock import Runtime
from relay.core.errors import Exit

NOTICE_S = 5
"""From the announcement to the end: long enough to interrupt it, and for the page above to be seen and saved."""


def why_kept(ended: Mapping[str, Any] | None, machine: Machine, unsent: Sequence[str]) -> str:
    """Why the machine is still needed; empty if it is not. `ended` is relay.run/1 of the last session here."""
    if machine.provider != "colab":
        return f"only Colab's is given back from a cell (this is {machine.provider}). Stop it where you started it."
    if ended is None:
        return "no session of this notebook has ended as planned."
    if ended.get("exit_code") not in (Exit.OK, Exit.HANDOFF):
        return f"the session ended with {ended.get('exit_code')}."
    if ended.get("unsent"):
        return f"a checkpoint is here only ({ended['unsent']}); run the training cell again, which sends it."
    return unsent[0] if unsent else ""


def release(runtime: Runtime, tell: Callable[[str], None]) -> None:
    """Announce it, wait, and give the machine back; an interrupt meanwhile keeps it."""
    try:
        from google.colab import runtime as colab
    except ImportError:
        tell("The machine is kept: this Python has no google.colab.runtime.")
        return
    tell(f"Everything is in the store. The machine is given back in {NOTICE_S} s; interrupt this cell to keep it.")
    try:
        runtime.sleep(NOTICE_S)
    except KeyboardInterrupt:
        tell("The machine is kept.")
        return
    colab.unassign()
