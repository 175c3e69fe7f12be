"""Words for a ledger that holds more than one history: what happened, what it means, what a person can do. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from relay.app.checks.verdict import Verdict
from relay.app.checks.verification import HISTORY, REGISTRY, Incidental
from relay.app.messages.advice import command
from relay.app.messages.histories import parting, slots_text
from relay.app.messages.wording import listing
from relay.core.ledger.histories import History
from relay.core.ledger.state import Checkpoint
from relay.core.runs.histories import Conflict, Part, conflict

NAMED = 3
"""Pairs of slots that are named; more are counted."""


def story(run: str, own: Part, other: Part, loading: Sequence[Checkpoint], decided: bool) -> Incidental:
    """A history beside the run's own. `loading`: those of its checkpoints that the run does not hold and that load."""
    clash = conflict(own, other)
    against = bool(clash) and not decided
    told = [parting(own, other, decided)]
    if not against and clash.gone:
        told += [*_clashes(clash), loads(loading)]
    return Incidental(
        HISTORY,
        " ".join(told),
        slot=other.slots[0].seq,
        by=listing(other.accounts),
        against=against,
        verdict=Verdict(" ".join([*_clashes(clash), loads(loading)]), _advice(run, own, loading, against)),
    )


def registry_story(other: History[Any]) -> Incidental:
    """A history of the log that lists a store's runs and accounts. No run is affected."""
    accounts = dict.fromkeys(str(e.change["id"]) for e in other.entries if e.kind in ("account", "status", "forget"))
    runs = dict.fromkeys(str(e.change["run"]) for e in other.entries if e.kind == "run")
    entered = [f"account {one}" for one in accounts] + [f"run {one}" for one in runs]
    advice = f"Compare `{command('accounts list')}` with what you expect, and `register` an account again."
    return Incidental(
        REGISTRY,
        f"{slots_text(other.seqs).capitalize()} of the registry, which a later entry passed over, can be read now. "
        f"They had entered: {listing(entered) or 'nothing'}. {advice}",
        slot=other.seqs[0],
        verdict=Verdict("An account that was entered or changed there may be missing, or as it was before.", advice),
    )


def loads(checkpoints: Sequence[Checkpoint]) -> str:
    """Which checkpoints that only another history names can still be loaded."""
    if not checkpoints:
        return "No checkpoint that only this history names can be loaded."
    steps = listing([f"{c.step:,} (epoch {c.epoch})" for c in checkpoints])
    return f"Its {_plural('checkpoint', checkpoints)} of {_plural('step', checkpoints)} {steps} can be loaded."


def _clashes(clash: Conflict) -> list[str]:
    told = []
    if clash.lost:
        steps = listing(dict.fromkeys(f"{step:,}" for step in clash.lost))
        were = "which was" if len(clash.lost) == 1 else "which were"
        told.append(f"The run no longer holds {_plural('step', clash.lost)} {steps}, {were} durable.")
    if again := [one for one in clash.gone if one.checkpoint.step not in clash.lost]:
        steps = listing(dict.fromkeys(f"{one.checkpoint.step:,}" for one in again))
        told.append(f"The run has trained {_plural('step', again)} {steps} again.")
    if clash.epochs:
        was = "was" if len(clash.epochs) == 1 else "were"
        told.append(f"{_plural('Epoch', clash.epochs)} {listing(map(str, clash.epochs))} {was} used twice.")
    for manifest, one, two in clash.keys[:NAMED]:
        told.append(f"Slots {min(one, two)} and {max(one, two)} both name {manifest.split('/', 3)[-1]}.")
    if len(clash.keys) > NAMED:
        told.append(f"{len(clash.keys) - NAMED} more manifests are named twice.")
    return told


def _advice(run: str, own: Part, loading: Sequence[Checkpoint], against: bool) -> str:
    if not against:
        return "Nothing."
    advice = (
        f"`{command('repair', run)}` shows both histories and lets you choose the one that the run goes on from. It "
        f"deletes nothing."
    )
    kept = {(k.key, k.sha256) for k in own.state.kept} & {(c.key, c.sha256) for c in loading}
    if kept:
        fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(max(key[0] for key, _ in kept)))
        advice += f" Or begin another run from the newest step that is kept: `{fork}`"
    return advice


def _plural(word: str, things: Sized) -> str:
    return word if len(things) == 1 else f"{word}s"
