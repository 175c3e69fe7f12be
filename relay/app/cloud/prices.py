"""Prices of machines by the hour, as dated data, and their reader from SkyPilot's catalog files."""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError

from relay.app.cloud.figures import Figure, Mark
from relay.app.cloud.machines import Card, Machine, Record, data
from relay.app.messages.wording import printable
from relay.app.renting import BadCatalog
from relay.core.errors import BadConfig
from relay.core.settings.origins import composed
from storage.regular import regular_or_piped

STALE_DAYS = 90
"""Prices older than this should be read again."""
COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
"""Of a catalog file, all that is read."""
OTHER_FORMS = re.compile("pcie|nvl", re.IGNORECASE)
"""In the name of an instance whose card has the name of ours and is slower."""
LARGEST = 64 << 20
"""Bytes of a catalog file."""
MOST = 1e6
"""No host costs so many dollars an hour, nor has so many GPUs."""
Dollars = Annotated[float, Field(gt=0, lt=MOST)]
Line = Annotated[str, AfterValidator(printable)]
"""One line: it becomes a comment of a recipe."""
HEAD = """# Dollars an hour, from SkyPilot's catalog files. Written by `cloud prices`; no price is typed.
# For each cloud and shape the region with the lowest price. date: of the file's content; null if it is unknown.
"""


class Catalog(Record):
    """One catalog file as it was read."""

    cloud: Line
    source: Line
    """File and commit, or an address."""
    date: datetime.date | None

    def stale(self, today: datetime.date) -> str:
        """A line if it should be read again, otherwise empty."""
        if self.date is None:
            return f"PRICES: the prices of {self.cloud} have no date ({self.source}). Look them up."
        age = (today - self.date).days
        if age <= STALE_DAYS:
            return ""
        return f"PRICES: the prices of {self.cloud} are of {self.date}, {age} days ago ({self.source}). Look them up."


class Price(Record):
    """A shape at one cloud; dollars an hour."""

    cloud: Line
    card: Line
    gpus: Annotated[int, Field(gt=0, lt=MOST)]
    instance: Line
    region: Line
    on_demand: Dollars | None = None
    spot: Dollars | None = None
    spot_region: Line | None = None


class Prices(Record):
    """data/prices.yaml, or a file that `cloud prices` wrote."""

    catalogs: tuple[Catalog, ...] = ()
    prices: tuple[Price, ...] = ()

    def of_cloud(self, cloud: str) -> Prices:
        """Those of one cloud. Raises BadConfig (78) if none are known."""
        kept = tuple(one for one in self.prices if one.cloud == cloud)
        if not kept:
            known = ", ".join(sorted({one.cloud for one in self.prices}))
            raise BadConfig(f"No price of {cloud} is known; there are prices of {known or 'no cloud'}.")
        return Prices(catalogs=tuple(one for one in self.catalogs if one.cloud == cloud), prices=kept)

    def of(self, machine: Machine, spot: bool) -> tuple[Figure, Price] | None:
        """Dollars an hour, and where: the lowest of this shape, otherwise the lowest of a GPU of another, scaled."""
        priced = [(value, one) for one in self.prices if one.card == machine.card.name and (value := _value(one, spot))]
        of_shape = [(value, one) for value, one in priced if one.gpus == machine.gpus]
        if of_shape:
            value, one = min(of_shape, key=lambda pair: pair[0])
            return Figure(value, value, Mark.MEASURED, f"{one.cloud} {_region(one, spot)}"), one
        if not priced:
            return None
        value, one = min(priced, key=lambda pair: pair[0] / pair[1].gpus)
        value *= machine.gpus / one.gpus
        basis = f"a GPU of {one.gpus}x{one.card} at {one.cloud} {_region(one, spot)}, times {machine.gpus}"
        return Figure(value, value, Mark.SCALED, basis), one

    def with_catalog(self, catalog: Catalog, found: Iterable[Price]) -> Prices:
        """A cloud's prices replaced."""
        others = [one for one in self.catalogs if one.cloud != catalog.cloud]
        kept = [one for one in self.prices if one.cloud != catalog.cloud]
        return Prices(
            catalogs=tuple(sorted([*others, catalog], key=lambda one: one.cloud)),
            prices=tuple(sorted([*kept, *found], key=lambda one: (one.cloud, one.card, one.gpus))),
        )

    def text(self) -> str:
        """The data file."""
        return HEAD + yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=120)


def _value(price: Price, spot: bool) -> float | None:
    return price.spot if spot else price.on_demand


def _region(price: Price, spot: bool) -> str:
    return price.spot_region or price.region if spot else price.region


def read_catalog(path: Path, cloud: str, cards: Sequence[Card]) -> list[Price]:
    """The prices of the known cards in a catalog file, one for each shape. Raises BadCatalog (65)."""
    names = {name: card.name for card in cards for name in card.catalog}
    found: dict[tuple[str, int], Price] = {}
    for line, row in _rows(path):
        card = names.get(row["AcceleratorName"])
        if card is None or OTHER_FORMS.search(row["InstanceType"]):
            continue
        gpus = _number(path, line, row, "AcceleratorCount")
        if gpus is None or gpus < 1 or gpus != int(gpus):
            raise BadCatalog(path, f"line {line} has {row['AcceleratorCount']!r} accelerators")
        on_demand, spot = (_number(path, line, row, name) or None for name in ("Price", "SpotPrice"))
        region = printable(row["Region"].strip(" ,"))
        new = Price(cloud=cloud, card=card, gpus=int(gpus), instance=row["InstanceType"], region=region)
        best = found.get((card, int(gpus)), new)
        changes: dict[str, Any] = {}
        if on_demand and (best.on_demand is None or on_demand < best.on_demand):
            changes |= {"on_demand": on_demand, "instance": new.instance, "region": region}
        if spot and (best.spot is None or spot < best.spot):
            changes |= {"spot": spot, "spot_region": region}
        found[card, int(gpus)] = best.model_copy(update=changes)
    priced = [one for one in found.values() if one.on_demand or one.spot]
    if not priced:
        raise BadCatalog(path, "it has no price of a known card")
    return priced


def _rows(path: Path) -> Iterable[tuple[int, dict[str, str]]]:
    try:
        with regular_or_piped(path).open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise BadCatalog(path, f"it is larger than {LARGEST >> 20} MiB")
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise BadCatalog(path, f"it has no column {', '.join(missing)}")
        rows = [(reader.line_num, row) for row in reader]
        for line, row in rows:
            if None in row or None in row.values():
                raise BadCatalog(path, f"line {line} has more or fewer cells than the first line")
        return [(line, {name: row[name] for name in COLUMNS}) for line, row in rows]
    except OSError as error:
        raise BadConfig(f"Cannot read the catalog {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadCatalog(path, "it is not a table of text") from error


def _number(path: Path, line: int, row: dict[str, str], name: str) -> float | None:
    """None if the cell is empty; the catalog also writes nan."""
    text = row[name].strip()
    if text.lower() in ("", "nan"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < MOST:
        raise BadCatalog(path, f"line {line} has {name} {text[:40]!r}")
    return value


def parse(text: str, name: str) -> Prices:
    """A file that `cloud prices` wrote. Raises BadConfig (78)."""
    try:
        composed(text)  # refuses a text that stands for too much
        return Prices.model_validate(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValueError) as error:
        first = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            fault = error.errors()[0]
            first = printable(f"{'.'.join(map(str, fault['loc'])) or 'its top'}: {fault['msg']}")
        raise BadConfig(f"{name} is not a file that `cloud prices` wrote ({first}).") from error


@cache
def shipped() -> Prices:
    """This version's table of prices."""
    return Prices.model_validate(data("prices.yaml"))
