"""Tasks and tables as the commands of `cloud` take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.app.cloud import machines, prices, rates
from relay.app.cloud.estimates import Estimate, Tables, Work, estimates
from relay.app.cloud.machines import Machine, Machines
from relay.app.cloud.prices import Prices
from relay.app.cloud.rates import Rates
from relay.app.models.registry import MODELS
from relay.app.renting import Misfit

EVERY = tuple(MODELS.tasks())
ALL = [Machine(card, count) for card in machines.shipped().cards for count in card.gpus]


def work(task: str, name: str = "") -> Work:
    """A task as its preset has it; a commit every 500 steps or 10 minutes, or as the task says."""
    plugin = MODELS.of_task(task)
    config, due = plugin.preset(task), plugin.defaults(task)
    steps, minutes = due.get("checkpoint.every_steps", "500"), due.get("checkpoint.every_minutes", "10")
    length = plugin.target(config)
    return Work(name or task, plugin, plugin.with_target(config, length), length, int(steps), float(minutes))


def phases() -> list[Work]:
    """The guide's."""
    return [work(task, name) for name, task in MODELS.phases().items()]


def tables(
    of: Machines | None = None, priced: Prices | None = None, measured: Rates | None = None, **more: Any
) -> Tables:
    """The shipped ones, but for those given."""
    return Tables(of or machines.shipped(), priced or prices.shipped(), measured or rates.shipped(), **more)


def rows(works: Sequence[Work], hosts: Sequence[Machine], of: Tables) -> dict[tuple[str, str], Estimate | str]:
    """By machine and name; why it is left out."""
    found = estimates(works, hosts, of)
    return {(machine.name, one.name): each.why if isinstance(each, Misfit) else each for machine, one, each in found}
