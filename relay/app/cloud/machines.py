"""The cards and hosts that can be rented (data/machines.yaml)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from relay.app.cloud.figures import Figure, Mark
from relay.app.renting import UnknownMachine
from relay.core.gpus import models

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MACHINE = re.compile(r"([1-9]\d?)\s*[x×]\s*(\S+)", re.IGNORECASE)


class Record(BaseModel):
    """A part of a data file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def data(name: str) -> Any:
    """A data file of this version."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader((files("relay.app") / "data" / name).read_text(encoding="utf-8")).get_single_data()


class Card(Record):
    """One kind of GPU."""

    name: str
    capability: tuple[int, int]
    memory_gb: Positive
    """10^9 bytes, as the maker names them."""
    tflops: Positive
    """Dense products, 10^12 operations a second."""
    tbs: Positive
    """Memory, 10^12 bytes a second."""
    gpus: tuple[int, ...]
    """GPUs of the hosts that have it."""
    catalog: tuple[str, ...]
    """Its names in SkyPilot's catalog."""
    source: str

    @property
    def bfloat16(self) -> bool:
        """Whether it multiplies bfloat16; otherwise float32 is its arithmetic."""
        return self.capability >= (8, 0)

    def is_card(self, name: str) -> bool:
        """Whether a driver's name (`H100 80GB HBM3`) names it."""
        return bool(models(self.name) & models(name))


class Span(Record):
    """A guessed range of minutes or hours."""

    minutes: tuple[Positive, Positive] | None = None
    hours: tuple[Positive, Positive] | None = None
    source: str

    @property
    def figure(self) -> Figure:
        """In hours."""
        if self.hours:
            return Figure(self.hours[0], self.hours[1], Mark.GUESSED, self.source)
        assert self.minutes is not None, "a span has minutes or hours"
        return Figure(self.minutes[0] / 60, self.minutes[1] / 60, Mark.GUESSED, self.source)


class Guide(Record):
    """The rows of the guide to cloud GPUs."""

    machines: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """A host with equal GPUs."""

    card: Card
    gpus: int

    @property
    def name(self) -> str:
        """As people type it: 8xH100."""
        return f"{self.gpus}x{self.card.name}"


class Machines(Record):
    """data/machines.yaml."""

    guide: Guide
    starts: Mapping[str, Span]
    """`cold` and `warm`."""
    spot: Span
    """Hours between two ends of one spot machine."""
    cards: tuple[Card, ...]

    def card(self, name: str) -> Card | None:
        """The card that a driver's or a maker's name names."""
        return next((card for card in self.cards if card.is_card(name)), None)

    def machine(self, text: str) -> Machine:
        """By a name such as 8xH100. Raises UnknownMachine (78) with the nearest one."""
        found = _MACHINE.fullmatch(text.strip())
        card = next((one for one in self.cards if found and one.name.lower() == found[2].lower()), None)
        if found is None or card is None or int(found[1]) not in card.gpus:
            raise UnknownMachine(text, [f"{count}x{one.name}" for one in self.cards for count in one.gpus])
        return Machine(card, int(found[1]))

    @property
    def of_guide(self) -> list[Machine]:
        """The guide's."""
        return [self.machine(name) for name in self.guide.machines]


@cache
def shipped() -> Machines:
    """This version's table of machines."""
    return Machines.model_validate(data("machines.yaml"))
