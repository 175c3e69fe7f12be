"""What each kind of damage means and what a person should do, in plain words; reads nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.app.messages.advice import command
from relay.core.ledger.reader import Damage
from relay.core.ledger.state import RunState

BACKUP = "a backup of the storage (its trash, versions or snapshots count)"


@dataclass(frozen=True)
class Verdict:
    """Two short texts about one thing that is wrong."""

    meaning: str = ""
    advice: str = ""


NOTHING = Verdict()
WHO = "Find out what changes files in the store besides trm-relay."
LEAVE = "Leave the file as it is: putting an old one back would make later entries void."


def known_damage() -> Verdict:
    """A checkpoint that an earlier session has found damaged and stepped over."""
    return Verdict(
        "An earlier session found this, went back and trained the steps again. It is not in use.", "Nothing."
    )


def damaged_checkpoint(state: RunState, step: int, intact: Sequence[int]) -> Verdict:
    """The damaged checkpoint of a step, where those at the steps `intact` can be loaded."""
    run, head = state.run, state.step
    if not intact:
        fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(head))
        return Verdict(
            "No retained checkpoint can be loaded, so no session can go on; none will ever restart at step 0.",
            f"Restore the files named from {BACKUP}. A machine that has trained this run may still hold a copy of the "
            f"newest one in its sync/ folder: `{fork}` there begins another run from it.",
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


def hole(run: str, intact: Sequence[int], was: str = "") -> Verdict:
    """An entry of the ledger that is missing; `intact` steps are those that another run can begin from.

    was: the SHA-256 that the file had, where that is known.
    """
    meaning = "No session can take the lease, and nothing is written or deleted, until the file is back."
    restore = put_back("Restore it", was)
    if not intact:
        return Verdict(meaning, restore)
    fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(max(intact)))
    return Verdict(meaning, f"{restore} If there is none, begin another run from the newest intact step: `{fork}`")


def put_back(what: str, was: str) -> str:
    """The advice to restore one file of a log: exactly that file, for another one in its place does harm."""
    if not was:
        return f"{what} from {BACKUP}. Put no other file in its place."
    return f"{what} from {BACKUP}: the file whose SHA-256 begins with {was[:16]}. Put no other file in its place."


def beyond(run: str) -> Verdict:
    """Something shows that the ledger was longer than it is."""
    return Verdict(
        "No session can take the lease until this is settled. Either the newest entries are lost, or something that is "
        "not a session's left that file.",
        f"If {BACKUP} holds entries that the store lacks, put them back: then nothing is lost. If not, "
        f"`{command('repair', run)}` shows what is there and lets you go on from it. It deletes nothing.",
    )


def rolled_back(run: str) -> Verdict:
    """This machine has seen more of the run than the store holds."""
    return Verdict(
        "No session of this machine goes on until this is settled; sessions of others go on from what the store holds.",
        f"If somebody has the newer files, or {BACKUP} holds them, put them back: then nothing is lost. If not, "
        f"`{command('repair', run)}` shows what is there and lets you go on from it. It deletes nothing.",
    )


def stray(file: str, tail: int) -> Verdict:
    """A file in the ledger's folder under the name of a slot far beyond the newest entry, which is not an entry."""
    return Verdict(
        f"No session can take the lease while it is there. It is not an entry, and nothing else shows that one was "
        f"lost after slot {tail}.",
        f"Move {file} out of the store and keep it elsewhere. Find out what wrote it.",
    )


def registry_hole(was: str = "") -> Verdict:
    """An entry that the registry of a store has lost. was: the SHA-256 that the file had, where that is known."""
    return Verdict(
        "No session of any run in this store can begin, and nothing is written or deleted, until the file is back.",
        put_back("Restore it", was),
    )


def oldest_lost() -> str:
    """What to add where the first slots are gone."""
    return (
        "The oldest entries are gone, which is what an automatic clean-up by age does (a bucket's lifecycle rule, a "
        "scratch disk). Exempt this folder from it: the relay deletes no entry, ever."
    )


def void_entry(unreadable: bool) -> Verdict:
    """A newest slot that holds no valid entry, and that no later entry has passed over yet.

    unreadable: whether it fails its own check, so that other bytes may have stood there.
    """
    if not unreadable:
        return Verdict("It changes nothing: the next session goes on from the entry before it.", f"Nothing. {WHO}")
    return Verdict(
        "It changes nothing. The next session reads it again for a while, then goes on from the entry before it.",
        f"If the file is still being copied, wait. If you have it as it was written, put it back before the next "
        f"session: then nothing is lost. Otherwise nothing. {WHO}",
    )


def damaged_slot(one: Damage) -> Verdict:
    """The same by a quick reading, which does not know whether a later entry has passed over the slot."""
    if one.healed:
        return healed()
    if one.rotted:
        return rotted_entry()
    return Verdict("It changes nothing.", f"`{command('verify')}` reads the whole ledger and says what can be done.")


def passed_over(says: bool) -> Verdict:
    """A slot that a later entry has passed over. `says`: by an entry of a format that says so (5 and newer)."""
    meaning = "It keeps its slot and changes nothing: a later entry has passed over it and recorded that."
    if says:
        return Verdict(meaning, f"Nothing: another file in its place would change nothing. {WHO}")
    return Verdict(meaning, f"{LEAVE} {WHO}")


def healed() -> Verdict:
    """A slot that an entry passed over, and that holds other bytes now."""
    return Verdict("It stays passed over: the run has gone on from the entry before it.", "Nothing.")


def rotted_entry(was: str = "") -> Verdict:
    """A slot that was valid when the next one was written. was: the SHA-256 that it had, where that is known."""
    return Verdict(
        "It costs nothing: every later entry carries the run's whole state.",
        f"Nothing for the run. So that `verify` can check the whole ledger again: {put_back('restore it', was)} {WHO}",
    )


def history() -> Verdict:
    """A history object of the oldest sessions."""
    return Verdict("Who trained first cannot be listed; training is not affected.", f"Restore the file from {BACKUP}.")
