"""Explains each kind of damage and its fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.app.messages.advice import command
from relay.app.messages.wording import counted
from relay.core.ledger.reader import Damage
from relay.core.ledger.state import RunState

BACKUP = "a backup of the storage (also its trash, versions or snapshots)"


@dataclass(frozen=True)
class Verdict:
    """The meaning of one fault, and its fix."""

    meaning: str = ""
    advice: str = ""


NOTHING = Verdict()
WHO = "Find out which other program changes files in the store."
LEAVE = "Leave the file as it is: an older file in its place would make later entries invalid."


def known_damage() -> Verdict:
    """A checkpoint that an earlier session found damaged and skipped."""
    return Verdict("An earlier session found this, rewound and trained the steps again. It is not in use.", "Nothing.")


def damaged_checkpoint(state: RunState, step: int, intact: Sequence[int]) -> Verdict:
    """A damaged checkpoint; those of the steps `intact` can be loaded."""
    run, head = state.run, state.step
    if not intact:
        fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(head))
        return Verdict(
            "No retained checkpoint can be loaded, so no session can continue. None restarts at step 0.",
            f"Restore these files from {BACKUP}. A machine that trained this run may still have a copy of the newest "
            f"one in its sync/ folder: `{fork}` there begins another run from it.",
        )
    if step < head:
        return Verdict("An older checkpoint, not needed while newer ones are intact.", "Nothing.")
    back, finished = max(intact), head >= state.target_steps
    again = command("run", run, *(["--target-steps", str(head + 1)] if finished else []))
    return Verdict(
        f"The next session rewinds to step {back:,} by itself and trains {counted(head - back, 'step')} again, with "
        f"the same result bit for bit. A session on the machine that made the checkpoint sends its copy instead.",
        f"Run `{again}`{' (the run has reached its target)' if finished else ''}.",
    )


def hole(run: str, intact: Sequence[int], was: str = "") -> Verdict:
    """A missing ledger entry. `intact`: steps that another run can begin from.

    was: the SHA-256 that the file had, "" if unknown.
    """
    meaning = "No session can take the lease, and nothing is written or deleted, until the file is back."
    restore = put_back("Restore it", was)
    if not intact:
        return Verdict(meaning, restore)
    fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(max(intact)))
    return Verdict(meaning, f"{restore} If there is none, begin another run from the newest intact step: `{fork}`")


def put_back(what: str, was: str) -> str:
    """Advice to restore exactly this file of a log; any other file in its place does harm."""
    if not was:
        return f"{what} from {BACKUP}. Put no other file in its place."
    return f"{what} from {BACKUP}: its SHA-256 begins with {was[:16]}. Put no other file in its place."


def beyond(run: str) -> Verdict:
    """The ledger was once longer than it is now."""
    return Verdict(
        "No session can take the lease until this is repaired. Either the newest entries are lost, or another program "
        "wrote that file.",
        _newer_from_backup(run),
    )


def rolled_back(run: str) -> Verdict:
    """This machine has read newer entries of the run than the store holds."""
    return Verdict(
        "No session on this machine continues until this is repaired; sessions on other machines continue from the "
        "store.",
        _newer_from_backup(run),
    )


def _newer_from_backup(run: str) -> str:
    return (
        f"If {BACKUP} holds newer entries, put them back: then nothing is lost. Otherwise `{command('repair', run)}` "
        f"shows both and continues from your choice. It deletes nothing."
    )


def stray(file: str, tail: int) -> Verdict:
    """A file that is not an entry, under the name of a slot far beyond the newest entry."""
    return Verdict(
        f"No session can take the lease while it is there. It is not an entry, and there is no other sign of a lost "
        f"entry after slot {tail}.",
        f"Move {file} out of the store and keep it elsewhere. Find out which program wrote it.",
    )


def registry_hole(was: str = "") -> Verdict:
    """A missing entry of a store's registry. was: the SHA-256 that the file had, "" if unknown."""
    return Verdict(
        "No session of any run in this store can begin, and nothing is written or deleted, until the file is back.",
        put_back("Restore it", was),
    )


def oldest_lost() -> str:
    """A sentence to add if the first slots are missing."""
    return (
        "The oldest entries are missing, as after an automatic clean-up by age (a bucket's lifecycle rule, a scratch "
        "disk). Exempt this folder from it: the relay never deletes an entry."
    )


def invalid_entry(unreadable: bool) -> Verdict:
    """A newest slot without a valid entry, which no later entry has passed over yet.

    unreadable: whether it fails its own check, so that its bytes may have changed.
    """
    if not unreadable:
        return Verdict("It changes nothing: the next session continues from the entry before it.", f"Nothing. {WHO}")
    return Verdict(
        "It changes nothing. The next session reads it again for a while, then continues from the entry before it.",
        f"If the file is still being copied, wait. If you have the original, put it back before the next session: then "
        f"nothing is lost. Otherwise nothing. {WHO}",
    )


def damaged_slot(one: Damage) -> Verdict:
    """The same after a quick reading, which does not show whether a later entry has passed over the slot."""
    if one.healed:
        return healed()
    if one.rotted:
        return rotted_entry()
    return Verdict("It changes nothing.", f"For the fix, read the whole ledger: `{command('verify')}`.")


def passed_over(recorded: bool) -> Verdict:
    """A slot that a later entry has passed over. `recorded`: that entry names the slot (format 5 and newer)."""
    meaning = "It keeps its slot and changes nothing: a later entry has passed over it and recorded that."
    if recorded:
        return Verdict(meaning, f"Nothing: another file in its place would change nothing. {WHO}")
    return Verdict(meaning, f"{LEAVE} {WHO}")


def healed() -> Verdict:
    """A slot that an entry passed over, and whose bytes have changed since."""
    return Verdict("It stays passed over: the run has continued from the entry before it.", "Nothing.")


def rotted_entry(was: str = "") -> Verdict:
    """A slot that was valid when the next one was written. was: the SHA-256 that it had, "" if unknown."""
    return Verdict(
        "Nothing is lost: every later entry contains the run's whole state.",
        f"Nothing for the run. So that `verify` can check the whole ledger again: {put_back('restore it', was)} {WHO}",
    )


def history() -> Verdict:
    """A history object of the oldest sessions."""
    return Verdict(
        "The oldest sessions cannot be listed. Training is not affected.", f"Restore the file from {BACKUP}."
    )
