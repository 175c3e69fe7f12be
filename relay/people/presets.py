"""Example plans without a run: the guide's own, and the same at a measured speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.core.errors import UsageError
from relay.core.names import nearest
from relay.people.periods import WEEK_S, Periods
from relay.people.team import Member, Scenario, Speeds

TARGET = 50_000
H100_S = 0.085
"""Seconds a step of the largest published task, batch 768, on one H100 (docs/records/2026-11-28_step_time)."""


@dataclass(frozen=True)
class Preset:
    """Ten people with one hour a week each, all awake, every seven days from now."""

    title: str
    steps_per_hour: tuple[float, ...]
    """Each simulated calendar uses one of them throughout."""
    overhead_s: float
    """Seconds of each hour without training steps."""
    gap_s: float = 600.0
    failure_rate: float | None = None
    notes: tuple[str, ...] = ()

    def course(
        self, now: float, steps_per_hour: float | None, startup_s: float | None, fails: float | None
    ) -> Scenario:
        """The scenario from step 0, at `now`. A given speed, overhead or failure rate replaces the preset's."""
        rates = (steps_per_hour,) if steps_per_hour else self.steps_per_hour
        speeds, resets = Speeds(tuple(rate / 3600 for rate in rates), 1), Periods(None, now + WEEK_S)
        members = tuple(
            Member(f"account_{n}", speeds, 3600.0, weekly_s=3600.0, resets=resets, kind="one hour a week")
            for n in range(1, 11)
        )
        return Scenario(
            now=now,
            step=0,
            target=TARGET,
            members=members,
            gaps=(self.gap_s,),
            startup_s=self.overhead_s if startup_s is None else startup_s,
            interval_s=500 / min(speeds.samples),
            failure_rate=self.failure_rate if fails is None else fails,
        )

    def told(self, rate: float | None, startup_s: float | None, fails: float | None) -> list[str]:
        """The preset's notes, and those on replaced numbers."""
        notes = [*self.notes]
        if rate is not None:
            notes.append(f"ASSUMED in place of its speed: {rate:,.0f} steps an hour.")
        if startup_s is not None:
            notes.append(f"Set in place of its overhead: {startup_s / 60:g} min of each hour train nothing.")
        if fails is not None:
            notes.append(f"Set in place of its failures: {fails:.0%} of sessions die.")
        return notes


PRESETS: Mapping[str, Preset] = {
    "guide": Preset(
        "ten accounts, one hour a week each, at the guide's 1,000 to 1,500 steps an hour",
        (1000.0, 1125.0, 1250.0, 1375.0, 1500.0),
        overhead_s=12.5 * 60,
        failure_rate=0.0,
        notes=(
            "The speed is the guide's claim, not a measurement; of each hour 47.5 minutes train, no session dies.",
            "10 min between two sessions are assumed.",
        ),
    ),
    "h100": Preset(
        "ten accounts, one hour a week each, at the measured speed of one H100",
        (3600 / H100_S,),
        overhead_s=120.0,
        notes=(
            "85 ms a step, as measured on one H100 at batch 768; an hour of an H100 is not what free accounts get.",
            "2 min of start-up and 10 min between two sessions are assumed; one session in twenty is assumed to die.",
        ),
    ),
}


def preset(name: str) -> Preset:
    """The preset of that name. Raises UsageError (2) with the nearest name."""
    if name in PRESETS:
        return PRESETS[name]
    near = nearest(name, PRESETS)
    hint = f"Did you mean {near}?" if near else f"There are {', '.join(PRESETS)}."
    raise UsageError(f"There is no preset {name!r}. {hint}")
