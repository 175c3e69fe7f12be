"""What each kind of damage means and what a person should do, in plain words; reads nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.log.state import RunState
from relay.text.advice import command

BACKUP = "a backup of the storage (its trash, versions or snapshots count)"


@dataclass(frozen=True)
class Verdict:
    """Two short texts about one thing that is wrong."""

    meaning: str = ""
    advice: str = ""


NOTHING = Verdict()


def known_damage() -> Verdict:
    """A checkpoint that an earlier session has found damaged and stepped over."""
    return Verdict(
        "An earlier session found this, went back and trained the steps again. It is not in use.", "Nothing."
    )


def damaged_checkpoint(state: RunState, step: int, intact: Sequence[int]) -> Verdict:
    """The damaged checkpoint of a step, where those at the steps `intact` can be loaded."""
    run, head = state.run, state.step
    if not intact:
        return Verdict(
            "No retained checkpoint can be loaded, so no session can go on; none will ever restart at step 0.",
            f"Restore the files named from {BACKUP}. A machine that has trained this run may still hold a copy in its "
            f"sync/ folder: `{command('run', run)}` there sends it again.",
        )
    if step < head:
        return Verdict("An older checkpoint that nobody needs while newer ones are intact.", "Nothing.")
    back, finished = max(intact), head >= state.target_steps
    again = command("run", run, *(["--target-steps", str(head + 1)] if finished else []))
    return Verdict(
        f"The next session goes back to step {back:,} by itself and trains {head - back:,} steps again, to the same "
        f"bits; one on the machine that made it sends its copy instead.",
        f"`{again}` does it{', for the run has reached its target' if finished else ''}.",
    )


def hole(run: str, intact: Sequence[int]) -> Verdict:
    """An entry of the ledger that has been lost; `intact` steps are those that another run can begin from."""
    meaning = "No session can take the lease, and nothing is written or deleted, until the file is back."
    restore = f"Restore it from {BACKUP}."
    if not intact:
        return Verdict(meaning, restore)
    fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(max(intact)))
    return Verdict(meaning, f"{restore} If there is none, begin another run from the newest intact step: `{fork}`")


def registry_hole() -> Verdict:
    """An entry that the registry of a store has lost."""
    return Verdict(
        "No session of any run in this store can begin, and nothing is written or deleted, until the file is back.",
        f"Restore it from {BACKUP}.",
    )


def oldest_lost() -> str:
    """What to add where the first slots are gone."""
    return (
        "The oldest entries are gone, which is what an automatic clean-up by age does (a bucket's lifecycle rule, a "
        "scratch disk). Exempt this folder from it: the relay deletes no entry, ever."
    )


def void_entry(recorded: bool) -> Verdict:
    """A slot whose entry fails its checks."""
    told = "A later entry has recorded it." if recorded else "The next session's first entry will record it."
    return Verdict(
        f"It keeps its slot and changes nothing: the entries after it build on the one before. {told}",
        "Nothing for the run. Find out who or what changes files in the store besides trm-relay.",
    )


def rotted_entry() -> Verdict:
    """A slot that was valid when the next one was written."""
    return Verdict(
        "It costs nothing: every later entry carries the run's whole state.",
        f"If you can, restore the file from {BACKUP}. Find out what changed it.",
    )


def history() -> Verdict:
    """A history object of the oldest sessions."""
    return Verdict("Who trained first cannot be listed; training is not affected.", f"Restore the file from {BACKUP}.")
