"""Describes a further history of a ledger: its origin, meaning and fix."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from relay.app.checks.verdict import Verdict
from relay.app.checks.verification import HISTORY, REGISTRY, Incidental
from relay.app.messages.advice import command
from relay.app.messages.histories import parting, slots_text
from relay.app.messages.wording import counted, listing
from relay.core.ledger.histories import OtherHistory
from relay.core.ledger.state import Checkpoint
from relay.core.runs.histories import Conflict, Part, conflict

NAMED = 3
"""How many pairs of slots the text names; the rest are counted."""


def story(run: str, own: Part, other: Part, loading: Sequence[Checkpoint], decided: bool) -> Incidental:
    """A history other than the run's own. `loading`: its intact checkpoints that the run does not hold."""
    clash = conflict(own, other)
    against = bool(clash) and not decided
    text = [parting(own, other, decided)]
    if not against and clash.gone:
        text += [*_clashes(clash), loads(loading)]
    return Incidental(
        HISTORY,
        " ".join(text),
        slot=other.slots[0].seq,
        by=listing(other.accounts),
        against=against,
        verdict=Verdict(" ".join([*_clashes(clash), loads(loading)]), _advice(run, own, loading, against)),
    )


def registry_story(other: OtherHistory[Any]) -> Incidental:
    """A further history of a store's registry of runs and accounts. No run is affected."""
    accounts = dict.fromkeys(str(e.change["id"]) for e in other.entries if e.kind in ("account", "status", "forget"))
    runs = dict.fromkeys(str(e.change["run"]) for e in other.entries if e.kind == "run")
    registered = [f"account {one}" for one in accounts] + [f"run {one}" for one in runs]
    advice = f"Check `{command('accounts list')}`, and `register` missing accounts again."
    return Incidental(
        REGISTRY,
        f"{slots_text(other.seqs).capitalize()} of the registry, which a later entry passed over, can be read now. "
        f"They registered: {listing(registered) or 'nothing'}. {advice}",
        slot=other.seqs[0],
        verdict=Verdict("An account that they registered or changed may be missing or outdated.", advice),
    )


def loads(checkpoints: Sequence[Checkpoint]) -> str:
    """The checkpoints in only this history that can still be loaded."""
    if not checkpoints:
        return "No checkpoint of only this history can be loaded."
    steps = listing([f"{c.step:,} (epoch {c.epoch})" for c in checkpoints])
    return f"Its {_plural('checkpoint', checkpoints)} of {_plural('step', checkpoints)} {steps} can be loaded."


def _clashes(clash: Conflict) -> list[str]:
    sentences = []
    if clash.lost:
        steps = listing(dict.fromkeys(f"{step:,}" for step in clash.lost))
        were = "which was" if len(clash.lost) == 1 else "which were"
        sentences.append(f"The run no longer holds {_plural('step', clash.lost)} {steps}, {were} durable.")
    if again := [one for one in clash.gone if one.checkpoint.step not in clash.lost]:
        steps = listing(dict.fromkeys(f"{one.checkpoint.step:,}" for one in again))
        sentences.append(f"The run has trained {_plural('step', again)} {steps} again.")
    if clash.epochs:
        was = "was" if len(clash.epochs) == 1 else "were"
        sentences.append(f"{_plural('Epoch', clash.epochs)} {listing(map(str, clash.epochs))} {was} used twice.")
    for manifest, one, two in clash.keys[:NAMED]:
        sentences.append(f"Slots {min(one, two)} and {max(one, two)} both name {manifest.split('/', 3)[-1]}.")
    if len(clash.keys) > NAMED:
        sentences.append(f"Also named twice: {counted(len(clash.keys) - NAMED, 'manifest')}.")
    return sentences


def _advice(run: str, own: Part, loading: Sequence[Checkpoint], against: bool) -> str:
    if not against:
        return "Nothing."
    advice = (
        f"Choose the history that the run continues from: `{command('repair', run)}` shows both. It deletes nothing."
    )
    kept = {(k.key, k.sha256) for k in own.state.kept} & {(c.key, c.sha256) for c in loading}
    if kept:
        fork = command("fork", run, "--to", f"{run[:60]}_2", "--from-step", str(max(key[0] for key, _ in kept)))
        advice += f" Or begin another run from the newest kept step: `{fork}`"
    return advice


def _plural(word: str, things: Sized) -> str:
    return word if len(things) == 1 else f"{word}s"
