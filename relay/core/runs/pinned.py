"""Compares a configuration with the one a run pinned when it began (P3); knows nothing of what the settings mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.ledger import RunLedger, View

ABSENT = "(absent)"
CONTENT = "sha256:"
"""How a pinned value begins that names data by its content; nobody can ask for it."""


@dataclass(frozen=True)
class Changed:
    """One setting that differs, as texts."""

    key: str
    pinned: str
    mine: str


class ConfigDiffers(BadConfig):
    """The run pinned other settings when it began."""

    def __init__(self, run: str, changed: Sequence[Changed], overrides: Sequence[str]) -> None:
        """`overrides`: `key=value` for each setting that was asked for, as a new run would be given them."""
        listed = "; ".join(f"{c.key}: the run has {c.pinned}, you asked for {c.mine}" for c in changed)
        super().__init__(f"Run {run} pinned another configuration when it began: {listed}.")
        self.run, self.changed, self.overrides = run, tuple(changed), tuple(overrides)


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a pinned configuration."""
    return digest(dumps(dict(config)))


def check_config(ledger: RunLedger, view: View, config: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises ConfigDiffers (78) if `config` is not what the run pinned (P3).

    `asked` are the settings that `config` was made from: where a run pins data by its content, they name its source.
    """
    if view.state.config_hash == config_hash(config):
        return
    changed = difference(ledger.genesis().config, config)
    wishes = dict(_flat(asked))
    mine = {c.key: wishes[c.key] if c.mine.startswith(CONTENT) else c.mine for c in changed if c.mine != ABSENT}
    raise ConfigDiffers(ledger.names.run, changed, [f"{key}={value}" for key, value in mine.items()])


def difference(pinned: Mapping[str, Any], mine: Mapping[str, Any]) -> tuple[Changed, ...]:
    """The settings that differ, by dotted key in alphabetical order."""
    ours, theirs = dict(_flat(mine)), dict(_flat(pinned))
    return tuple(
        Changed(key, theirs.get(key, ABSENT), ours.get(key, ABSENT))
        for key in sorted({*ours, *theirs})
        if theirs.get(key, ABSENT) != ours.get(key, ABSENT)
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else dumps(value).decode()
