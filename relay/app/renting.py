"""Errors of `cloud`: machines, tasks, prices and recipes that are not possible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relay.core.errors import BadConfig, BadData, PolicyRefused
from relay.core.names import nearest
from relay.people.policy import Provider


class UnknownMachine(BadConfig):
    """No such card, or no host with so many of it."""

    def __init__(self, text: str, known: list[str]) -> None:
        self.text, self.near = text, nearest(text.lower(), [name.lower() for name in known])
        self.near = next((name for name in known if name.lower() == self.near), None)
        hint = f" Did you mean {self.near}?" if self.near else ""
        super().__init__(f"No machine {text} is known.{hint}")


class Misfit(BadConfig):
    """A task that cannot be trained on a machine."""

    def __init__(self, machine: str, why: str, instead: str) -> None:
        super().__init__(f"{machine} cannot train it: {why}.")
        self.machine, self.why, self.instead = machine, why, instead


class NeverEnds(BadConfig):
    """A spot machine that is taken away before it gets anywhere."""

    def __init__(self, between: float, lost: float) -> None:
        super().__init__(f"A machine that ends every {between:.2g} h gets nowhere: each end costs {lost:.2g} h.")
        self.between, self.lost = between, lost


class BadCatalog(BadData):
    """A file that is not one of the catalog, or holds an impossible price."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path.name} is not a catalog file: {fault}.")
        self.path, self.fault = path, fault


class NoPrice(BadConfig):
    """No price of a machine is known."""

    def __init__(self, machine: str, spot: bool) -> None:
        super().__init__(f"No {'spot ' if spot else ''}price of {machine} is known.")
        self.machine, self.spot = machine, spot


class NoLastingStore(BadConfig):
    """A recipe without a store that outlives the machine."""

    def __init__(self, address: str | None) -> None:
        what = f"{address} is a store of one machine" if address else "No store is set"
        super().__init__(f"{what}, and a rented machine keeps nothing.")
        self.address = address


class NotOneLine(BadConfig):
    """A setting or an address with line breaks or characters that control a terminal. `value`: it."""

    def __init__(self, value: str) -> None:
        super().__init__(f"A recipe cannot hold {value!a}: it is not one line of printable characters.")
        self.value = value


class SecretInAddress(BadConfig):
    """An address that would put a secret into a recipe."""

    def __init__(self) -> None:
        super().__init__("The store's address holds a secret, which a recipe would show.")


class AnAccountElsewhere(PolicyRefused):
    """The account is one of a provider of notebooks, whose machines are there."""

    def __init__(self, account: str, provider: Provider) -> None:
        super().__init__(f"{account} is an account at {provider.title}, which rents no such machine out.")
        self.account, self.provider = account, provider


class ShortBudget(BadConfig):
    """A budget in which a session would not get to its first commit."""

    def __init__(self, minutes: float, least: float) -> None:
        super().__init__(f"A budget of {minutes:g} min is shorter than a start, which takes up to {least:g} min.")
        self.minutes, self.least = minutes, least


class UnknownPhase(BadConfig):
    """Neither a phase of the guide, nor a task, nor a study."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.near = name, nearest(name, known)
        hint = f" Did you mean {self.near}?" if self.near else ""
        super().__init__(f"There is no phase, task or study {name}.{hint}")
