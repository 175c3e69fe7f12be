"""How long a step takes on a card: as a run or a record measured it, scaled from one, or a range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from relay.app.cloud.figures import Figure, Mark, rounded
from relay.app.cloud.machines import Card, Machine, Machines, Positive, Record, data

SAME = 1e-3
"""Relative difference of arithmetic up to which two steps are of one shape."""
SMALLER = 3.0
"""A step with less than this part of a measured one's arithmetic is not scaled from it: it may wait for launches."""
LARGER = 5.0
"""A step with more than so many times the arithmetic is not scaled either: a large one keeps more of the card busy,
up to four times as much (docs/records/2026-11-30_cloud_gpu)."""
LEAST_SHARE = 0.8
"""Of the rate of one GPU that each of several is assumed to reach at least."""
PLAIN = "plain"
"""The kind of step that every card can take."""


class Rate(Record):
    """One measured step."""

    task: str
    card: str
    method: str
    """Kind of step, as the model's plug-in names it."""
    gpus: int = 1
    ms: Positive
    step_tflop: Positive
    """Arithmetic of the step, 10^12 operations."""
    n: int
    """Steps that were timed."""
    torch: str
    triton: str
    record: str
    """Folder in docs/records, or the run."""

    @property
    def tflops(self) -> float:
        """10^12 operations a second, of all GPUs."""
        return self.step_tflop / self.ms * 1000

    @property
    def cited(self) -> str:
        """Task and card."""
        gpus = f"{self.gpus} x " if self.gpus > 1 else ""
        return f"{rounded(self.ms, 4)} ms of {self.task} on {gpus}{self.card} ({self.record}, n = {self.n:,})"


class Efficiency(Record):
    """The part of one GPU's rate that each of several reached together."""

    task: str
    card: str
    gpus: int
    share: Positive
    n: int
    record: str


class Rates(Record):
    """data/rates.yaml."""

    rates: tuple[Rate, ...] = ()
    together: tuple[Efficiency, ...] = ()

    def with_own(self, own: Sequence[Rate]) -> Rates:
        """A run's own steps count more than records."""
        return Rates(rates=(*own, *self.rates), together=self.together)


@dataclass(frozen=True)
class Step:
    """All that decides the time of a step."""

    task: str
    method: str
    flops: float
    of_model: frozenset[str] = field(repr=False)
    """All tasks of its model."""


def seconds(rates: Rates, machines: Machines, step: Step, machine: Machine) -> Figure:
    """Of one step on all GPUs of a machine."""
    card = machine.card
    mine = [one for one in rates.rates if one.task in step.of_model and one.method == step.method]
    for one in mine:
        if (one.card, one.gpus) == (card.name, machine.gpus) and _same_shape(one, step):
            return Figure(one.ms / 1000, one.ms / 1000, Mark.MEASURED, one.cited)
    alone = _alone(rates, machines, [one for one in mine if one.gpus == 1], step, card)
    waits_for_launches = alone.low == 0
    return alone if machine.gpus == 1 or waits_for_launches else _shared(alone, rates, step, machine)


def _same_shape(rate: Rate, step: Step) -> bool:
    return rate.task == step.task and abs(rate.step_tflop * 1e12 / step.flops - 1) < SAME


def _alone(rates: Rates, machines: Machines, mine: Sequence[Rate], step: Step, card: Card) -> Figure:
    """On one GPU."""
    for one in mine:
        if one.card == card.name and _same_shape(one, step):
            return Figure(one.ms / 1000, one.ms / 1000, Mark.MEASURED, one.cited)
    alike = [one for one in mine if _peak(machines, one) and _bfloat16(machines, one) == card.bfloat16]
    usable = [one for one in alike if 1 / SMALLER <= step.flops / (one.step_tflop * 1e12) <= LARGER]
    if usable:
        best = min(usable, key=lambda one: _distance(machines, one, step, card))
        share = best.tflops / _peak(machines, best)
        took = step.flops / (share * card.tflops * 1e12)
        basis = f"{share:.0%} of the peak, as {best.cited}"
        return Figure(took, took, Mark.SCALED, basis)
    return _guessed(rates, machines, step, card)


def _distance(machines: Machines, rate: Rate, step: Step, card: Card) -> tuple[bool, bool, float, float]:
    """The nearest measurement: the same task, the same card, then the nearest amount of work, the nearest card."""
    work = abs(math.log(rate.step_tflop * 1e12 / step.flops))
    return rate.task != step.task, rate.card != card.name, work, abs(math.log(_peak(machines, rate) / card.tflops))


def _guessed(rates: Rates, machines: Machines, step: Step, card: Card) -> Figure:
    """Between the worst and the best share of the peak of any measured step."""
    of_kind = [one for one in rates.rates if one.gpus == 1 and _peak(machines, one)]
    of_kind = [one for one in of_kind if one.method != PLAIN or step.method == PLAIN]
    if not of_kind:
        return Figure(0.0, math.inf, Mark.GUESSED, "no step was measured on any card")
    smallest = min(of_kind, key=lambda one: (one.step_tflop, one.card != card.name, -one.ms))
    if step.flops * SMALLER < smallest.step_tflop * 1e12:
        most = smallest.ms / 1000 * max(1.0, _peak(machines, smallest) / card.tflops)
        basis = f"so small a step waits for launches; at most as long as {smallest.cited}"
        return Figure(0.0, most, Mark.GUESSED, basis)
    shares = sorted(one.tflops / _peak(machines, one) for one in of_kind)
    fast, slow = (step.flops / (share * card.tflops * 1e12) for share in (shares[-1], shares[0]))
    basis = f"between {shares[0]:.0%} and {shares[-1]:.0%} of the peak, as all measured steps"
    return Figure(fast, slow, Mark.GUESSED, basis)


def _shared(alone: Figure, rates: Rates, step: Step, machine: Machine) -> Figure:
    """The same work on several GPUs."""
    known = [one for one in rates.together if one.task in step.of_model]
    measured = next((one for one in known if (one.card, one.gpus) == (machine.card.name, machine.gpus)), None)
    if measured:
        basis = f"{measured.share:.1%} of each of {measured.gpus} GPUs ({measured.record}, n = {measured.n})"
        part = Figure(1 / measured.share, 1 / measured.share, Mark.SCALED, basis)
    else:
        most = max((one.share for one in rates.together), default=1.0)
        basis = f"{LEAST_SHARE:.0%} to {most:.1%} of each of {machine.gpus} GPUs"
        part = Figure(1 / most, 1 / LEAST_SHARE, Mark.GUESSED, basis)
    return alone.times(1 / machine.gpus).by(part)


def _peak(machines: Machines, rate: Rate) -> float:
    card = machines.card(rate.card)
    return card.tflops if card else 0.0


def _bfloat16(machines: Machines, rate: Rate) -> bool:
    card = machines.card(rate.card)
    return bool(card and card.bfloat16)


@cache
def shipped() -> Rates:
    """This version's table of rates."""
    return Rates.model_validate(data("rates.yaml"))
