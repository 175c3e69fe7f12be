"""One step of the model in data and in words, and how far the search goes; knows no rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.model.product import OTHER, Change, File, Key, View
from tests.model.world import NO_FAULTS, Faults, World

HOLDING = ("restoring", "training", "sealing", "naming", "deleting")


@dataclass(frozen=True)
class Bounds:
    """How far the search goes."""

    sessions: int = 3
    epochs: int = 3
    step: int = 4
    faults: Faults = NO_FAULTS
    slots: int = 10
    """Where entries may be passed over: from this slot on, nobody takes a lease. Epochs are not counted there."""
    reborn: bool = True
    """Whether a session that dies makes room for another. If not, to die is never to be chosen again."""


class Landed(NamedTuple):
    """An entry that has just taken a slot."""

    base: View
    """What its sender took for the tail."""
    sender: int
    change: Change
    passing: bool = False
    """Whether it passes over the entry that was the newest."""


class Step(NamedTuple):
    """One step of the model and the world after it."""

    text: str
    who: int
    """A session; OTHER for the network, an outsider, or the entry of a process that is gone."""
    world: World
    landed: Landed | None = None
    claims: Key | None = None
    """A checkpoint that the session from now on reports as committed."""
    fault: bool = False
    """Not needed for anybody to finish."""
    refused: bool = False
    """The rules refused what the holder, knowing the newest view, wanted to write."""


def shown(what: Key | File) -> str:
    step, epoch, *name = what
    return "/".join([f"step_{step}.e{epoch}", *name])


def said(change: Change) -> str:
    """An entry in a few words."""
    return " ".join([f"{change.kind}(epoch {change.epoch})", *map(shown, change.keys)])


def line(step: Step) -> str:
    """One step in words: sessions are A, B, C."""
    name = "network" if step.who == OTHER else "ABCDEFGH"[step.who]
    return f"{name}: {step.text}"
