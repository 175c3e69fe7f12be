"""Tab after KEY=VALUE words: names of settings, tasks, and the values that a setting takes. Opens no file or store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from relay.app.commands.common import App
from relay.app.models.plugin import TaskPlugin
from relay.core.settings.config import Settings, flat, leaves
from relay.core.settings.validating import submodel

WORDS: Mapping[str, Sequence[str]] = {"device": ("auto", "cpu", "cuda", "xla")}
"""The usual values of settings of the relay that are plain text."""


def settings(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """(completion, its default) for the word that is being typed."""
    app: App = ctx.obj
    typed = _whole(ctx.params.get("overrides") or ())
    tasks = app.models.tasks() if app.models else app.plugin.words["task"]
    task = next((name for name in reversed(_tasks(typed)) if name in tasks), None)
    plugin = app.models.of_task(task) if app.models and task else app.plugin
    keys, usual = [*leaves(Settings), *leaves(plugin.model)], _usual(plugin, task or plugin.default_task)
    key, sign, _ = incomplete.partition("=")
    if sign:
        return [(f"{key}={value}", "") for value in values(key, plugin, tasks)]
    if typed and (key := typed[-1].removesuffix("=")) in keys:
        return [(value, "") for value in values(key, plugin, tasks)]
    found = [key for key in keys if key.startswith(incomplete)]
    if len(found) == 1:  # with its values, because a shell adds a blank to a word that is complete
        return [(f"{found[0]}={value}", "") for value in values(found[0], plugin, tasks) or [usual[found[0]]]]
    return [(f"{key}=", usual[key]) for key in found]


def _tasks(typed: Sequence[str]) -> list[str]:
    return [word.partition("=")[2] for word in typed if word.startswith("task=")]


def _whole(words: Sequence[str]) -> list[str]:
    """The words before the one that is being typed; bash splits them at `=`, and the last one may end with it."""
    return " ".join(words).replace(" = ", "=").replace(" =", "=").split()


def values(key: str, plugin: TaskPlugin, tasks: Sequence[str]) -> list[str]:
    """The values of a setting that can be listed; none for a number, a path or any other text."""
    if key == "task":
        return [*tasks]
    if key in plugin.words:
        return [*plugin.words[key]]
    return [*WORDS.get(key, ())] or [*_choices(_annotation(key, (Settings, plugin.model)))]


def _usual(plugin: TaskPlugin, task: str) -> dict[str, str]:
    """The task's defaults by key, as people type them."""
    usual = plugin.defaults(task)
    ours, theirs = Settings(project=usual["project"], run=usual["run"]), plugin.preset(task)
    found = {**dict(flat(ours.model_dump(mode="json"))), **dict(flat(theirs.model_dump(mode="json"))), **usual}
    return {key: _word(value) for key, value in found.items()}


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or value == [] else str(value)


def _annotation(key: str, models: Sequence[type[BaseModel]]) -> Any:
    """The type of a dotted key; None if no model has it."""
    for model in models:
        head, _, rest = key.partition(".")
        field = model.model_fields.get(head)
        if field is not None:
            nested = submodel(field.annotation)
            return _annotation(rest, [nested]) if nested and rest else field.annotation
    return None


def _choices(annotation: Any) -> Iterator[str]:
    """The words of a type: of a switch, of alternatives, also within a list or an optional value."""
    if annotation is bool:
        yield from ("true", "false")
    elif get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for inner in get_args(annotation):
            yield from _choices(inner)
