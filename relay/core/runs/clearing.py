"""Which stored files of a run nobody needs, and deleting them: anybody may, for no lease is needed (P8)."""

from __future__ import annotations

from dataclasses import replace

from relay.core.checkpoint.collect import Surveyor, delete, sweep_parts
from relay.core.checkpoint.retention import FileVerdict, going
from relay.core.errors import store_errors
from relay.core.ledger.state import RunState
from relay.core.names import Names
from relay.core.runs.archiving import refuse_unseen
from relay.core.runs.identity import Opened, Pair
from storage.base import QuotaExceeded, Stat


class StoreFull(QuotaExceeded):
    """The store's clock cannot be asked: a store without one of its own has to take a small file for that."""

    def __init__(self, run: str, said: str) -> None:
        super().__init__(said)
        self.run = run


def judge(opened: Opened, stores: Pair, full: bool) -> tuple[RunState, list[FileVerdict]]:
    """Every listed checkpoint file, and the state it was judged by.

    That state's slots were judged, as those of `opened.view` were not: a forged entry must not free a file.

    What such a view lets go, it lets go for ever, so no lease is needed (P8). Raises BadData (65) for a lost entry,
    PolicyRefused (77) for a run that is called deleted though it was not archived for a day.
    """
    opened.ledger.judge()
    view = opened.ledger.check_epochs(stores.checkpoints)
    state = view.state
    if state.deleted is not None:
        refuse_unseen(opened.ledger, view)
    with store_errors(stores.checkpoints, "Nobody can tell which files are needed"):
        try:
            found = Surveyor(stores.checkpoints, stores.ledger, opened.names)(state, short_of_space=full)
        except QuotaExceeded as error:  # of the probe that tells the store's clock
            raise StoreFull(opened.names.run, str(error)) from error
    return state, found.judged


def clear(judged: list[FileVerdict], names: Names, stores: Pair, epoch: int) -> list[FileVerdict]:
    """Delete what may go, manifests last, and parts of killed uploads of epochs below `epoch`; raises nothing.

    What could not go is said to stay.
    """
    gone: set[Stat] = set()
    delete(going(judged), stores.checkpoints, names, lambda: True, gone.add)
    sweep_parts(stores.checkpoints, names, epoch)

    def after(file: FileVerdict) -> FileVerdict:
        stuck = file.goes and file.stat not in gone
        return replace(file, goes=False, rule="stuck") if stuck else file

    return [after(file) for file in judged]
