"""Formats a run's histories as a document and as text, before a person chooses one; reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from relay.app.messages.advice import command
from relay.app.messages.histories import parting, ranges, row
from relay.app.messages.wording import listing
from relay.app.terminal.cells import Column, table
from relay.core.ledger.state import Checkpoint
from relay.core.runs.repair import STORE, Beyond, CheckedHistory, Situation

COLUMNS = ("", "slots", "epochs", "accounts", "steps", "steps that load")
SHOWN = 3
"""Checkpoints listed in a history's row; the rest are counted."""


def document(run: str, situation: Situation, chosen: str | None) -> dict[str, Any]:
    """Return relay.repair/1."""
    beyond = situation.beyond
    return {
        "schema": "relay.repair/1",
        "run": run,
        "open": situation.open and chosen is None,
        "chosen": chosen,
        "choices": choices(situation),
        "histories": [_document(one) for one in situation.histories] if situation.others else [],
        "store": {"slot": situation.tail, "step": situation.own.part.state.step, "loads": _step(situation.own.head)},
        "machine": {"slot": beyond.mark.seq, "step": beyond.mark.step} if beyond.mark else None,
        "local": [{"step": one.step, "epoch": one.epoch} for one in beyond.local],
        "file": beyond.file or None,
        "hint": beyond.hint,
    }


def choices(situation: Situation) -> list[str]:
    """Return the names that can be chosen; empty if there is nothing to choose."""
    if situation.others:
        return [one.part.name for one in situation.histories if situation.can_be_chosen(one)]
    return [STORE] if situation.beyond else []


def text_of(run: str, situation: Situation, width: int | None, utf8: bool) -> str:
    """List the histories, the effect of each choice, and the command."""
    lines = [*_histories(run, situation, width, utf8), *_beyond(run, situation)]
    if not lines:
        return f"Run {run} has one history, and nothing shows a later one. There is nothing to repair."
    if not situation.open:
        return "\n".join([*lines, "There is nothing to decide."])
    lines.append("")
    for one in situation.histories:
        name = one.part.name if situation.others else STORE
        if situation.can_be_chosen(one):
            lines.append(command("repair", run, "--choose", name))
            lines.append(f"  {effect(one, situation)}")
        else:
            lines.append(f"{name} cannot be chosen: none of its checkpoints loads.")
    lines.append("Nothing is deleted. The choice is refused while a session trains.")
    return "\n".join(lines)


def effect(one: CheckedHistory, situation: Situation) -> str:
    """Describe the effect of a choice."""
    if one.head is None:
        told = ["None of its checkpoints loads." if one.broken else "The run goes on from step 0."]
    else:
        lost = one.part.state.step - one.head.step
        told = [f"The run goes on from step {one.head.step:,}."]
        if lost > 0:
            told.append(f"Its steps up to {one.part.state.step:,} do not load and are trained again.")
    held = {(c.key, c.sha256) for c in one.part.state.retained}
    kept = [c for other in situation.histories for c in other.loading if (c.key, c.sha256) not in held]
    if kept:
        told.append(f"{_steps(kept)} of the other history {_is(kept)} kept for `fork`.")
    for packed in situation.beyond.local:
        told.append(f"This machine's step {packed.step:,} is kept here for `fork`.")
    return " ".join(told)


def done(run: str, wanted: CheckedHistory, situation: Situation) -> str:
    """Return the confirmation of a choice."""
    return f"Recorded. {effect(wanted, situation)} Go on with `{command('run', run)}`."


def _histories(run: str, situation: Situation, width: int | None, utf8: bool) -> list[str]:
    if not situation.others:
        return []
    own = situation.own
    lines = [f"Run {run} has {len(situation.histories)} histories. A is the run's own today."]
    for other in situation.others:
        lines.append(f"{other.part.name}: {parting(own.part, other.part, other.decided)}")
    rows = [COLUMNS, *(_cells(one) for one in situation.histories)]
    columns = [Column(title, cells) for title, *cells in zip(*rows, strict=True)]
    return [*lines, table(columns, width, utf8)]


def _cells(one: CheckedHistory) -> tuple[str, ...]:
    part = one.part
    loads = _newest(one.loading) or "none"
    if one.broken:
        loads += f"; not {_newest(one.broken)}"
    steps = f"{part.from_step:,} to {part.state.step:,}"
    return part.name, ranges(part.seqs), ranges(part.epochs), ", ".join(part.accounts), steps, loads


def _newest(checkpoints: Sequence[Checkpoint]) -> str:
    """List the steps of checkpoints, newest first."""
    steps = [f"{c.step:,}" for c in reversed(checkpoints)]
    more = [f"{len(steps) - SHOWN} more"] if len(steps) > SHOWN else []
    return ", ".join([*steps[:SHOWN], *more])


def _beyond(run: str, situation: Situation) -> list[str]:
    """List the evidence that the store once held more, and the first action."""
    beyond, own = situation.beyond, situation.own
    if not beyond:
        return []
    lines = [f"The store holds less of run {run} than was seen of it."]
    lines += [f"  this machine  {line}" for line in _known(beyond)]
    if beyond.file:
        lines.append(f"  a stored file {beyond.file} is of epoch {beyond.epoch}")
    if beyond.hint is not None:
        lines.append(f"  the hint      names slot {beyond.hint}")
    lines.append(
        f"  the store     ends at slot {situation.tail}, step {own.part.state.step:,}, epoch {own.part.state.epoch}"
    )
    lines.append(
        "If a newer copy of the store exists (a backup, another person's synced folder), put its missing files back "
        "first: then nothing is lost. Otherwise choose."
    )
    return lines


def _known(beyond: Beyond) -> Iterable[str]:
    if beyond.mark:
        yield f"read slot {beyond.mark.seq}, step {beyond.mark.step:,}"
    for packed in beyond.local:
        yield f"holds a checkpoint of step {packed.step:,} (epoch {packed.epoch})"


def _document(one: CheckedHistory) -> dict[str, Any]:
    loads = [{"step": c.step, "epoch": c.epoch} for c in one.loading]
    broken = [{"step": c.step, "epoch": c.epoch} for c in one.broken]
    return {**row(one.part), "loads": loads, "broken": broken, "goes_on_from": _step(one.head), "decided": one.decided}


def _step(checkpoint: Checkpoint | None) -> int | None:
    return checkpoint.step if checkpoint else None


def _steps(checkpoints: Sequence[Checkpoint]) -> str:
    steps = sorted({c.step for c in checkpoints})
    return f"Step{'s' if len(steps) > 1 else ''} {listing(f'{step:,}' for step in steps)}"


def _is(checkpoints: Sequence[Checkpoint]) -> str:
    return "are" if len({c.step for c in checkpoints}) > 1 else "is"
