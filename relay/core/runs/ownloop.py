"""Runs whose steps a user's own script makes: recognized by their pinned configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from relay.core.errors import BadConfig
from relay.core.runs.opening import NewerSettings
from relay.core.workload import Headline, Measures, Splits

LONGEST_NAME = 40
"""Characters of the metric that chooses the best checkpoint."""
SPLITS = Splits(choosing="eval", reported="final")

OURS = ("random", "loader")
"""Parts of every loop: random streams, and the loader's position."""
RESERVED = re.compile(r"random|loader|state|manifest|rank[0-9]+")
"""Names of our own parts and files."""

MARK, FORM = "loop", 1
"""Key of a pinned configuration that only such runs have; its value is the version of the form."""


class OwnLoop(BadConfig):
    """Only the script that made a run can do this."""

    def __init__(self, doing: str) -> None:
        super().__init__(f"This run is trained by its own script, which alone can {doing}.")
        self.doing = doing


def measures_of(pinned: Mapping[str, Any]) -> Measures:
    """A loop's metrics have their own names; `monitor` is the one of its evaluation that chooses the best."""
    name = str(pinned.get("monitor") or "loss")[:LONGEST_NAME]
    better: Literal["higher", "lower"] = "higher" if pinned.get("mode") == "max" else "lower"
    return Measures(SPLITS, Headline(name, name, better=better), first=("loss", name), short={"loss": "loss"})


def is_own_loop(pinned: Mapping[str, Any]) -> bool:
    """Whether a run's own script makes its steps."""
    return MARK in pinned


def refuse_newer(run: str, pinned: Mapping[str, Any]) -> None:
    """Raises NewerSettings (78) if a newer version began the run."""
    if pinned.get(MARK, FORM) != FORM:
        raise NewerSettings(run, [f"{MARK}={pinned[MARK]}"])


def refuse_own_loop(pinned: Mapping[str, Any], doing: str) -> None:
    """Raises OwnLoop (78) if a run's own script makes its steps."""
    if is_own_loop(pinned):
        raise OwnLoop(doing)
