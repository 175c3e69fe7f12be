"""Explains why a run was not found, and announces a new one."""

from __future__ import annotations

from collections.abc import Sequence

from relay.app.messages.advice import command
from relay.core.ledger.ledger import UnknownRun
from relay.core.names import nearest
from relay.core.runs.opening import RunHandle

SHOWN = 10
"""How many run names a message lists: the newest."""
NOWHERE = "the store does not exist yet; the first `run` or `register` creates it"


def missing(project: str, run: str, known: Sequence[tuple[str, str]], nowhere: bool = False) -> str:
    """Names the runs that the store holds instead. `known`: (project, run), oldest first; `nowhere`: no such store."""
    if nowhere:
        return NOWHERE
    if not known:
        return "this store holds no runs yet"
    others = [name if where == project else f"{where}/{name}" for where, name in known]
    listed = f"{'… ' if len(others) > SHOWN else ''}{', '.join(others[-SHOWN:])}"
    near = nearest(run, others)
    return f"this store holds no run {run}; it holds: {listed}{f'. Did you mean {near}?' if near else ''}"


def unknown_run(error: UnknownRun) -> str:
    """The runs that the store holds, the nearest name and the likely causes."""
    if error.known is None:
        return f"{error} Check the name and the store's address."
    there = ", ".join(f"{project}/{run}" for project, run in error.known[-SHOWN:]) or "no runs"
    alike = (run for project, run in reversed(error.known) if project == error.project and nearest(error.run, [run]))
    near = next((f" Did you mean {run}?" for run in alike), "")
    if error.absent:
        there = f"nothing: {NOWHERE}"
    begin = f" To begin it as a new run, one person runs `{command('init', error.run)}` once."
    return (
        f"{error.address} holds no run {error.run} in project {error.project}; it holds {there}.{near} Check the name "
        f"(--run or RUN_NAME) and RELAY_STORE. Likely causes: a mistyped name, another bucket or folder, or another "
        f"person's app folder.{begin if error.needs_init else ''}"
    )


def new_run(opened: RunHandle) -> list[str]:
    """Lines about a run that was just begun; none for an existing run."""
    if not opened.begun:
        return []
    project, run = opened.names.project, opened.names.run
    others = ", ".join(other if where == project else f"{where}/{other}" for where, other in opened.others)
    holds = f"this store also holds: {others}" if others else "this store holds no other runs"
    return [
        f"NEW run {run} at step 0; {holds}",
        *(
            f"{address} is on a disk that is deleted with this machine: the run will be lost"
            for address in opened.passing
        ),
    ]
