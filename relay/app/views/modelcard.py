"""Writes the model card of exported weights for a hub; every number in it comes from the run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from relay.app.messages.links import counts
from relay.app.messages.wording import counted, duration, metric, printable
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.workload import Measures

CARD = "README.md"
LICENSES = "https://huggingface.co/docs/hub/repositories-licenses"


@dataclass(frozen=True)
class Published:
    """The wording of a model card for one kind of model."""

    title: str
    """The kind of model, for example: a tiny recursive model."""
    tags: tuple[str, ...]
    """Tags of the hub."""
    names: str
    """Source of the exported tensor names; completes `the names of …`."""
    averaged: str = ""
    """Further facts about averaged weights, at the end of their description."""
    network: tuple[str, ...] = ("arch.",)
    """Beginnings of the settings that another program needs to build the same network."""
    averages: bool = True
    """Whether runs average their weights, unless their setting `ema` is off."""


@dataclass(frozen=True)
class Told:
    """The data of a checkpoint."""

    state: RunState
    checkpoint: Checkpoint
    role: str
    """Role of the checkpoint in the run."""
    pinned: Mapping[str, Any]
    averaged: bool
    """Whether the weights are the averaged ones. The run evaluates those."""
    metrics: Mapping[str, float]
    """Metrics in the checkpoint's manifest."""
    overrides: Sequence[str]
    """Settings that build the same network."""
    measures: Measures
    published: Published

    @property
    def task(self) -> str:
        return str(self.pinned.get("task", "unknown"))

    @property
    def measured(self) -> dict[str, float]:
        """Metrics by name, on validation rows; {} if these weights were not measured."""
        prefix = self.measures.on_split("")
        found = {key.removeprefix(prefix): value for key, value in self.metrics.items() if key.startswith(prefix)}
        return found if self.averaged or not self.published.averages else {}


def card(told: Told) -> str:
    """Return the whole file: YAML between two lines of dashes, then Markdown.

    The card contains no account, address or path. The person who publishes it can add names.
    """
    head = yaml.safe_dump(_metadata(told), sort_keys=False, allow_unicode=False, width=1000)
    note = f"# license: choose one of {LICENSES} and write it here\n"
    return f"---\n{note}{head}---\n\n{_body(told)}\n"


def _metadata(told: Told) -> dict[str, Any]:
    """Return the metadata, with the field names of the hub's documentation of model cards."""
    weights = "ema" if told.averaged else "raw-weights"
    found: dict[str, Any] = {
        "library_name": "trm-relay",
        "pipeline_tag": "other",
        "tags": [*told.published.tags, told.task, "safetensors", weights],
    }
    measured = dict(told.measured)
    rows = measured.pop("n", None)
    if not measured or rows is None:
        return found
    result = {
        "task": {"type": "other", "name": told.task},
        "dataset": {"type": told.task, "name": f"{told.task}, {rows:,.0f} validation rows", "split": "validation"},
        "metrics": [{"type": name, "name": name, "value": round(value, 6)} for name, value in measured.items()],
    }
    return found | {"model-index": [{"name": told.state.run, "results": [result]}]}


def _body(told: Told) -> str:
    state, step = told.state, told.checkpoint.step
    settings = " ".join(shlex.quote(printable(text)) for text in told.overrides)
    return f"""# {state.run}

Weights of {told.published.title} for {_code(told.task)}, trained to step {step:,} in turns over one shared folder with
trm-relay. They are the {_kind(told)}.

| | |
|---|---|
{_table(_facts(told))}

## What was measured
{_measured(told)}

## Use
`model.safetensors` holds the tensors under {told.published.names}, `config.json` the settings.
```text
python rotate_accounts.py evaluate --weights model.safetensors {settings}
```

## Limits
Weights only: optimizer, carry and position in the data are left out, so training cannot go on exactly from these files.
Nobody but the run's own machines has checked these numbers.

## Settings
```json
{json.dumps(told.pinned, indent=1, sort_keys=True)}
```"""


def _kind(told: Told) -> str:
    if told.averaged:
        return f"exponential moving average (EMA) of the trained weights{told.published.averaged}"
    return "raw trained weights, not their moving average" if told.published.averages else "trained weights"


def _facts(told: Told) -> list[tuple[str, str]]:
    state, batch = told.state, told.pinned.get("batch_size")
    used = state.usage.values()
    seconds = sum(one.seconds for one in used)
    data = told.pinned.get("data")
    rows = [
        ("step", f"{told.checkpoint.step:,}, the run's {told.role}"),
        ("batch", f"{counted(batch, 'sequence')} a step" if isinstance(batch, int) else ""),
        ("data", ", ".join(f"{_code(k)}: {_code(v)}" for k, v in data.items()) if isinstance(data, Mapping) else ""),
        ("weights", "EMA" if told.averaged else "raw"),
        ("trained by", f"{counted(len(state.usage), 'account')} in {counted(state.links_total, 'session')}"),
        ("time under a lease", duration(seconds) if seconds else ""),
        ("on", ", ".join(state.gpus)),
        ("bit-exact hand-offs", counts(state.links, state.links_total)),
        ("begun from", _origin(state)),
        ("state hash", f"`{told.checkpoint.state_hash}`"),
        ("settings hash", f"`{state.config_hash}`"),
    ]
    return [(name, text) for name, text in rows if text]


def _origin(state: RunState) -> str:
    origin = state.origin
    return f"step {origin.step:,} of run {origin.run}" if origin else ""


def _code(text: object) -> str:
    """Put foreign text between backticks, also in a table. It is shown as text, never as a link or markup."""
    return "`" + printable(str(text)).replace("`", "'").replace("|", r"\|") + "`"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"| {name} | {text} |" for name, text in rows)


def _measured(told: Told) -> str:
    measured = dict(told.measured)
    rows = measured.pop("n", None)
    if not measured or rows is None:
        why = "The run measures its averaged weights, not these." if not told.averaged else ""
        return f"Nothing was measured of these weights. {why}".strip()
    table = _table([(_code(name), metric(name, value)) for name, value in measured.items()])
    return (
        f"On the first {rows:,.0f} validation rows, which also choose the run's best checkpoint; no test row was "
        f"looked at.\n\n| metric | value |\n|---|---|\n{table}"
    )
