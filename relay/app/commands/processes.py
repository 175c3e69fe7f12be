"""Chooses how many processes of this host share a session's steps, one a GPU (`processes`, RELAY_PROCESSES)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import relay
from relay.app.commands.common import App
from relay.app.machine.cards import Card
from relay.app.messages.wording import counted
from relay.app.redact import secrets_of
from relay.core.errors import BadConfig
from relay.core.settings.config import AUTO, Resolved
from relay.torch import launch

IDLE = 0.1
"""A GPU of which programs use a larger share of the memory is left to them."""
PROGRAM = "import sys; sys.path[:1] = sys.argv[1:]; from relay.app.begin import main; main()"
"""This program, from the folder in its argument, and nothing from the current one."""


class CannotShare(BadConfig):
    """The number of processes that somebody asked for is not possible. `fits`: a number that is."""

    def __init__(self, count: int, why: str, fits: int) -> None:
        super().__init__(f"RELAY_PROCESSES={count} is not possible: {why}. Set {fits} or auto.")
        self.count, self.fits = count, fits


@dataclass(frozen=True)
class Sharing:
    """The processes of a session."""

    gpus: tuple[int, ...] = (0,)
    """The GPU of each, by CUDA's number; of no meaning on a CPU."""
    card: Card | None = None
    """The model of these GPUs; None on a CPU or if nobody asked."""
    note: str = ""
    """Why there are fewer than this machine's GPUs, as a line to print."""
    chosen: bool = False
    """Whether nobody asked for the number."""

    @property
    def size(self) -> int:
        return len(self.gpus)

    def text(self) -> str:
        """For `doctor`."""
        where = f", one on each of {self.size} × {self.card.name}" if self.card and self.size > 1 else ""
        why = self.note.partition(": ")[2]
        return f"{counted(self.size, 'process', 'processes')}{where}{f' ({why})' if why else ''}"


def sharing(app: App, resolved: Resolved[Any]) -> Sharing:
    """The processes that a session of these settings would have. Raises CannotShare (78), BadSetting (78).

    Under torchrun, or as one of several tasks of srun or MPI, this process starts no others.
    """
    settings = resolved.settings
    if launch.is_ranked(app.environ):
        return Sharing(tuple(range(launch.launched())))
    if settings.processes == AUTO:
        return _all_equal(app, resolved)
    return _just(int(settings.processes), app, resolved)


def _all_equal(app: App, resolved: Resolved[Any]) -> Sharing:
    device = resolved.settings.device
    if device not in (AUTO, "cuda"):
        return Sharing()
    cards = app.cards()
    if len(cards) < 2:
        return Sharing()
    if not all(card.equals(cards[0]) for card in cards):
        names = ", ".join(card.name for card in cards)
        return Sharing(note=_note(1, cards, f"they differ: {names}. CUDA_VISIBLE_DEVICES chooses among them"))
    idle = (0, *(index for index, card in enumerate(cards) if index and card.used <= IDLE * card.memory))
    size = app.plugin.processes(resolved.workload, device, len(idle))
    note = ""
    if size < len(idle):
        note = _note(size, cards, f"{len(idle)} processes cannot share {_batch(app, resolved.workload)}")
    elif size < len(cards):
        busy = ", ".join(str(index) for index in range(len(cards)) if index not in idle)
        note = _note(size, cards, f"other programs use the memory of GPU {busy}")
    return Sharing(idle[:size], cards[0], note, chosen=size > 1)


def _just(count: int, app: App, resolved: Resolved[Any]) -> Sharing:
    device = resolved.settings.device
    if count == 1:
        return Sharing()
    if ":" in device:
        raise CannotShare(count, f"device={device} is one GPU", 1)
    cards = app.cards() if device in (AUTO, "cuda") else ()
    if cards and count > len(cards):
        raise CannotShare(count, f"this machine shows {counted(len(cards), 'GPU')}", len(cards))
    if not all(card.equals(cards[0]) for card in cards[:count]):
        raise CannotShare(count, f"the GPUs differ ({', '.join(card.name for card in cards[:count])})", 1)
    fits = app.plugin.processes(resolved.workload, device, count)
    if fits != count:
        raise CannotShare(count, f"so many cannot share {_batch(app, resolved.workload)}", fits)
    return Sharing(tuple(range(count)), cards[0] if cards else None)


def _batch(app: App, config: BaseModel) -> str:
    return f"a batch of {app.plugin.about(config).batch:,} evenly"


def _note(size: int, cards: Sequence[Card], why: str) -> str:
    return f"PROCESSES: {size} of {len(cards)} GPUs {'is' if size == 1 else 'are'} used, because {why}."


def gather(app: App, found: Sharing, log: Path | None, deadline: float) -> None:
    """Start the processes that follow this one, if there are several. They need no store, so they get no secret.

    deadline: the session's end; they have to be ready before.
    """
    if found.size > 1 and launch.launched() == 1:
        words = [sys.executable, "-c", PROGRAM, str(Path(relay.__file__).parents[1])]
        environ = {name: value for name, value in os.environ.items() if not secrets_of({name: value})}
        launch.gather(words, environ, found.gpus, app.cwd, log, deadline)
