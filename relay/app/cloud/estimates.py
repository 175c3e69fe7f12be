"""Time and cost of a task on a machine: the split of its batch, hours, dollars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from relay.app.cloud import rates as measured
from relay.app.cloud.figures import Figure, Mark
from relay.app.cloud.machines import Machine, Machines
from relay.app.cloud.prices import Price, Prices
from relay.app.cloud.rates import Rates, Step
from relay.app.models.plugin import TaskPlugin
from relay.app.renting import Misfit, NeverEnds
from relay.core.runs.opening import config_hash


@dataclass(frozen=True)
class Work:
    """A task with its settings and its length."""

    name: str
    """A phase of the guide, a task, or an experiment of a study."""
    plugin: TaskPlugin
    config: BaseModel
    steps: int
    every_steps: int
    every_minutes: float
    """A commit is due after so many steps or minutes, whichever comes first."""
    words: tuple[str, ...] = ()
    """The settings as people type them."""

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config.model_dump()["task"])

    @cached_property
    def flops(self) -> float:
        """Of a step."""
        return self.plugin.cost(self.config).flops

    @cached_property
    def batch(self) -> int:
        """Rows of a step."""
        return self.plugin.about(self.config).batch

    @cached_property
    def hash(self) -> str:
        """Of its settings: equal on every machine."""
        return config_hash(self.config.model_dump(mode="json"))


@dataclass(frozen=True)
class Split:
    """How GPUs compute a batch: rows x accumulation x GPUs = batch."""

    rows: int
    """At once, on each GPU."""
    accumulation: int
    """Parts, one after another."""
    memory: int
    """Predicted bytes of a session on each GPU."""
    cap: int | None
    """Bytes to which a session must limit itself, or it would take more rows at once; None for a batch in one part."""


def split(work: Work, machine: Machine) -> Split:
    """The fewest equal parts that fit. Raises Misfit (78) if the GPUs do not divide the batch, or no row fits."""
    from relay.torch.memory import SLACK

    batch, gpus, free = work.batch, machine.gpus, int(machine.card.memory_gb * 1e9)
    if batch % gpus:
        fits = max(count for count in machine.card.gpus if batch % count == 0)
        why = f"{gpus} GPUs cannot share a batch of {batch:,} evenly"
        raise Misfit(machine.name, why, f"Take {fits}x{machine.card.name}, or another batch_size.")
    each, session = batch // gpus, work.plugin.on_card(work.config, machine.card.capability).session

    def needed(parts: int) -> int:
        return math.ceil(session(math.ceil(each / parts)) * SLACK)

    for parts in (count for count in range(1, each + 1) if each % count == 0):
        if needed(parts) <= free:
            cap = None if parts == 1 else min(free, needed(parts - 1) - 1)
            return Split(each // parts, parts, session(each // parts), cap)
    why = f"a single row of {work.task} needs {session(1) * SLACK / 1e9:.0f} GB, and a GPU has {free / 1e9:.0f} GB"
    raise Misfit(machine.name, why, "Take a card with more memory, or another task.")


@dataclass(frozen=True)
class Tables:
    """The data that all estimates stand on."""

    machines: Machines
    prices: Prices
    rates: Rates
    price: float | None = None
    """Dollars an hour that somebody pays, instead of the table's; there is no spot price then."""
    warm: bool = False
    """Whether a restarted machine has the packages and the data."""
    between: Figure | None = None
    """Hours between two ends of a spot machine; None for the table's range."""

    def price_of(self, machine: Machine, spot: bool) -> tuple[Figure | None, Price | None]:
        """Dollars an hour, and the offer if it is a listed one."""
        if self.price is not None:
            given = Figure(self.price, self.price, Mark.MEASURED, "given by --price")
            return None if spot else given, None
        return self.prices.of(machine, spot) or (None, None)


@dataclass(frozen=True)
class Estimate:
    """One machine and one task."""

    machine: Machine
    work: Work
    split: Split
    step: Figure
    """Seconds."""
    hours: Figure
    """Of training, without set-up."""
    setup: Figure
    """Hours from the machine's start to the first step."""
    spot_hours: Figure
    """Of training with the restarts of a spot machine."""
    price: Figure | None
    """Dollars an hour; None if unknown."""
    spot_price: Figure | None

    @property
    def on_demand(self) -> Figure | None:
        """Dollars for the training."""
        return self.price and self.hours.by(self.price)

    @property
    def spot(self) -> Figure | None:
        """Dollars for the training and the restarts."""
        return self.spot_price and self.spot_hours.by(self.spot_price)

    @property
    def per_exaflop(self) -> Figure | None:
        """Dollars for 10^18 operations."""
        return self.on_demand and self.on_demand.times(1e18 / (self.work.flops * self.work.steps))

    @property
    def figures(self) -> dict[str, Figure | None]:
        """All that are not exact, by name; None if unknown."""
        return {
            "step_s": self.step,
            "hours": self.hours,
            "setup_minutes": self.setup.times(60),
            "usd_per_hour": self.price,
            "usd": self.on_demand,
            "spot_hours": self.spot_hours,
            "spot_usd_per_hour": self.spot_price,
            "spot_usd": self.spot,
            "usd_per_1e18_flop": self.per_exaflop,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """All that is exact, and the predicted memory."""
        return {
            "machine": self.machine.name,
            "phase": self.work.name,
            "task": self.work.task,
            "config_hash": self.work.hash,
            "steps": self.work.steps,
            "step_flops": self.work.flops,
            "gpus": self.machine.gpus,
            "batch": self.work.batch,
            "rows": self.split.rows,
            "accumulation": self.split.accumulation,
            "memory_gb": self.split.memory / 1e9,
        }

    def document(self) -> dict[str, Any]:
        """One row of relay.cloud-list/1."""
        return {**self.facts, **{name: figure and figure.document() for name, figure in self.figures.items()}}


def estimate(work: Work, machine: Machine, tables: Tables) -> Estimate:
    """Raises Misfit and NeverEnds (78)."""
    parts, plugin = split(work, machine), work.plugin
    kind = plugin.on_card(work.config, machine.card.capability).step
    of = Step(work.task, kind, work.flops, frozenset(plugin.words["task"]))
    step = measured.seconds(tables.rates, tables.machines, of, machine)
    hours, cold = step.times(work.steps / 3600), tables.machines.starts["cold"].figure
    restart = tables.machines.starts["warm"].figure if tables.warm else cold
    return Estimate(
        machine,
        work,
        parts,
        step,
        hours,
        cold,
        with_restarts(hours, restart, _interval(work, step, hours), tables.between or tables.machines.spot.figure),
        tables.price_of(machine, spot=False)[0],
        tables.price_of(machine, spot=True)[0],
    )


def _interval(work: Work, step: Figure, hours: Figure) -> Figure:
    """Hours between two commits; all of the training if it is shorter."""
    low, high = (
        min(work.every_minutes / 60, work.every_steps * seconds / 3600, whole)
        for seconds, whole in ((step.low, hours.low), (step.high, hours.high))
    )
    return Figure(low, high, step.mark, "commits by steps or minutes")


def with_restarts(hours: Figure, restart: Figure, interval: Figure, between: Figure) -> Figure:
    """Hours on machines that end by themselves. Each end costs a start and half an interval between commits.

    W hours have W / between ends, so W = hours + W (restart + interval / 2) / between. Raises NeverEnds (78).
    """

    def whole(work: float, start: float, commits: float, gap: float) -> float:
        lost = start + commits / 2
        if lost >= gap:
            raise NeverEnds(gap, lost)
        return work / (1 - lost / gap)

    low = whole(hours.low, restart.low, interval.low, between.high)
    high = whole(hours.high, restart.high, interval.high, between.low)
    basis = f"{hours.basis}; an end every {between.text()} h costs {restart.times(60).text()} min and half an interval"
    return Figure(low, high, max(hours.mark, restart.mark, between.mark), basis)


def estimates(
    works: Sequence[Work], machines: Sequence[Machine], tables: Tables
) -> Iterator[tuple[Machine, Work, Estimate | Misfit]]:
    """Each machine with each task, in the order of the machines."""
    for machine in machines:
        for work in works:
            try:
                yield machine, work, estimate(work, machine, tables)
            except Misfit as misfit:
                yield machine, work, misfit
