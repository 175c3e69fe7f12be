"""A calendar simulated minute by minute off wall clocks: slow, plain, sharing no code with people/simulate.py."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
USEFUL = 10


@dataclass(frozen=True)
class Person:
    """Minutes everywhere; `windows` are (first day, last day, first hour, last hour), None for always."""

    id: str
    zone: str
    windows: tuple[tuple[int, int, int, int], ...] | None
    session: int
    weekly: int
    reset_day: int
    reset_hour: int
    reset_zone: str
    rates: tuple[float, ...]
    """Steps a minute."""

    @property
    def text(self) -> str | None:
        if self.windows is None:
            return None
        return "; ".join(f"{DAYS[a]}-{DAYS[b]} {begin:02}:00-{end:02}:00" for a, b, begin, end in self.windows)


@dataclass(frozen=True)
class World:
    """Everything that one calendar depends on."""

    start: datetime
    people: tuple[Person, ...]
    steps: int
    startup: int
    gaps: tuple[int, ...]
    fails: float
    interval: int
    ttl: int = 3


def any_world(seed: int, start: datetime, fails: float) -> World:
    """Some people of different zones, whose hours end at different moments, and about a month of work."""
    chance = random.Random(seed)
    people = tuple(_person(chance, f"a{number}") for number in range(chance.randint(2, 6)))
    startup = chance.choice((0, 2, 5))
    per_week = sum(sum(p.rates) / len(p.rates) * min(p.weekly, 7 * 60) * 0.8 for p in people)
    gaps = tuple(chance.choice((1, 5, 20, 45)) for _ in range(3))
    steps = int(per_week * chance.uniform(2.2, 3.8))
    return World(start, people, steps, startup, gaps, fails, chance.choice((4, 10, 25)))


def _person(chance: random.Random, name: str) -> Person:
    begin = chance.randint(0, 20)
    evenings = (chance.randint(0, 2), chance.randint(3, 6), begin, begin + chance.randint(2, 4))
    mornings = (5, 6, 7, chance.randint(9, 12))
    windows = chance.choice((None, (evenings,), (evenings, mornings)))
    return Person(
        id=name,
        zone=chance.choice(ZONES),
        windows=windows,
        session=chance.choice((45, 60, 120)),
        weekly=chance.choice((60, 150, 400)),
        reset_day=chance.randint(0, 6),
        reset_hour=chance.randint(4, 23),
        reset_zone=chance.choice(ZONES),
        rates=tuple(round(chance.uniform(10, 30), 2) for _ in range(3)),
    )


class Minutes:
    """The years' minutes of one world, looked up once and simulated often."""

    def __init__(self, world: World, days: int = 45) -> None:
        self.world = world
        self.start = int(world.start.timestamp())
        self.count = days * 1440
        self.walls: dict[str, list[datetime]] = {}
        self.awake = [self._awake(person) for person in world.people]
        self.resets = [self._resets(person) for person in world.people]

    def _wall(self, zone: str) -> list[datetime]:
        if zone not in self.walls:
            tz = ZoneInfo(zone)
            self.walls[zone] = [datetime.fromtimestamp(self.start + 60 * minute, tz) for minute in range(self.count)]
        return self.walls[zone]

    def _awake(self, person: Person) -> bytearray:
        if person.windows is None:
            return bytearray(b"\1") * self.count
        asked = {
            (day, hour) for a, b, begin, end in person.windows for day in range(a, b + 1) for hour in range(begin, end)
        }
        return bytearray((now.weekday(), now.hour) in asked for now in self._wall(person.zone))

    def _resets(self, person: Person) -> set[int]:
        walls = self._wall(person.reset_zone)
        asked = (person.reset_day, person.reset_hour, 0)
        return {minute for minute, now in enumerate(walls) if (now.weekday(), now.hour, now.minute) == asked}

    def run(self, seed: int) -> float:
        """Minutes from the start to the target."""
        world, chance = self.world, random.Random(seed)
        people = range(len(world.people))
        rates = [[chance.choice(p.rates) for _ in p.rates] for p in world.people]
        usual = [sorted(p.rates)[1] for p in world.people]
        left = [p.weekly for p in world.people]
        given = [0] * len(left)
        done, free, minute = 0.0, 0, 0
        while minute < self.count - USEFUL:
            for who in people:
                if minute in self.resets[who]:
                    left[who] = world.people[who].weekly
            able = [who for who in people if left[who] >= USEFUL and self._stays(who, minute)] if minute >= free else []
            if not able:
                minute += 1
                continue
            who = min(able, key=lambda one: (given[one] // 60, -usual[one], given[one], one))
            person, rate = world.people[who], chance.choice(rates[who])
            most = min(person.session, left[who])
            dies = chance.uniform(0, most) if chance.random() < world.fails else None
            used, kept, fresh = 0, done, 0
            while used < most and self.awake[who][minute] and (dies is None or used < dies):
                if used and minute in self.resets[who]:
                    left[who] = person.weekly
                for other in people:
                    if other != who and minute in self.resets[other]:
                        left[other] = world.people[other].weekly
                used, minute, left[who], given[who] = used + 1, minute + 1, left[who] - 1, given[who] + 1
                if used > world.startup:
                    done, fresh = done + rate, fresh + 1
                    if fresh == world.interval:
                        kept, fresh = done, 0
                    if done >= world.steps:
                        return minute
            if dies is not None:
                done = kept
            free = minute + chance.choice(world.gaps) + (world.ttl if dies is not None else 0)
        raise AssertionError("the world is too slow for its days")

    def _stays(self, who: int, minute: int) -> bool:
        return all(self.awake[who][minute : minute + USEFUL])
