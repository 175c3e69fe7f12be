"""Which colour and number an account has in a picture; knows relay.dashboard/1 and no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.plots.paper import Palette, shown

LABEL = 2.3
"""Inches of a label: two fit beside each other."""


@dataclass(frozen=True)
class Person:
    """An account as it is drawn."""

    number: str
    """Empty where there are more accounts than colours, and for an account that is not listed."""
    label: str
    colour: str


def people(document: Mapping[str, Any], colours: Palette) -> dict[str, Person]:
    """By account, in the order they came; where there are more than colours, who trained longest has one."""
    called, everybody = labels(document), dict.fromkeys(row["account"] for row in document["sessions"])
    numbers = {account: place for place, account in enumerate(longest(document["sessions"], len(colours.people)))}
    return {one: _person(one, called.get(one, one), numbers.get(one), colours) for one in everybody}


def longest(sessions: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Accounts in the order they came; of more than that many, those that trained longest."""
    given: dict[str, float] = {}
    for row in sessions:
        given[row["account"]] = given.get(row["account"], 0.0) + row["seconds"]
    kept = set(sorted(given, key=lambda account: -given[account])[:most])
    return [account for account in given if account in kept]


def labels(document: Mapping[str, Any]) -> dict[str, str]:
    """What the listed accounts are called."""
    return {row["id"]: row["label"] for row in document["accounts"]}


def _person(account: str, label: str, number: int | None, colours: Palette) -> Person:
    if number is None:
        return Person("", account, colours.others)
    return Person(str(number + 1), shown(label, account, LABEL), colours.people[number])


def by_epoch(document: Mapping[str, Any], known: Mapping[str, Person], colours: Palette) -> dict[int, Person]:
    """Whose each session was; those that are no longer listed are nobody's in particular."""
    found = {row["epoch"]: known[row["account"]] for row in document["sessions"]}
    lost = Person("", "earlier sessions", colours.others)
    told = [*document["curves"]["line"]["epoch"], *document["curves"]["redone"]["epoch"]]
    return dict.fromkeys(told, lost) | found
