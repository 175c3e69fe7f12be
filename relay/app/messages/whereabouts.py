"""What people read where a run is new, or not there: what the store holds instead; reads no store."""

from __future__ import annotations

from collections.abc import Sequence

from relay.app.messages.advice import command
from relay.core.ledger.ledger import UnknownRun
from relay.core.names import nearest
from relay.core.runs.opening import RunHandle

SHOWN = 10
"""Names of runs that are listed, the newest ones."""
NOWHERE = "the store does not exist yet; the first run or register makes it"


def missing(project: str, run: str, known: Sequence[tuple[str, str]], nowhere: bool = False) -> str:
    """What the store holds instead of this run; `known` are the runs in it, oldest first, `nowhere`: it is absent."""
    if nowhere:
        return NOWHERE
    if not known:
        return "this store holds no run yet"
    others = [name if where == project else f"{where}/{name}" for where, name in known]
    listed = f"{'… ' if len(others) > SHOWN else ''}{', '.join(others[-SHOWN:])}"
    near = nearest(run, others)
    return f"this store holds no run {run}; it holds: {listed}{f'. Did you mean {near}?' if near else ''}"


def unknown_run(error: UnknownRun) -> str:
    """That the run is not there, what is, and the likely causes."""
    if error.known is None:
        return f"{error} Check the name and the store's address."
    there = ", ".join(f"{project}/{run}" for project, run in error.known[-SHOWN:]) or "no run at all"
    alike = (run for project, run in reversed(error.known) if project == error.project and nearest(error.run, [run]))
    near = next((f" Did you mean {run}?" for run in alike), "")
    if error.absent:
        there = f"nothing, for {NOWHERE}"
    begin = f" If it is meant to be new, one person runs `{command('init', error.run)}` once."
    return (
        f"{error.address} holds no run {error.run} in project {error.project}; it holds {there}.{near} Likely causes: "
        f"a mistyped name, another bucket or folder than the others use, or another person's app folder."
        f"{begin if error.needs_init else ''}"
    )


def new_run(opened: RunHandle) -> list[str]:
    """Lines about a run that was begun just now; none about any other."""
    if not opened.begun:
        return []
    project, run = opened.names.project, opened.names.run
    others = ", ".join(other if where == project else f"{where}/{other}" for where, other in opened.others)
    holds = f"this store also holds: {others}" if others else "this store holds no other run"
    return [
        f"NEW run {run} at step 0; {holds}",
        *(
            f"{address} is on a disk that is gone when this machine ends: nothing outlives this machine"
            for address in opened.passing
        ),
    ]
