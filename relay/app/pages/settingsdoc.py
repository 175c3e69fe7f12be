"""Writes docs/reference/settings.md: each setting, and whether it may change after a run has begun."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from relay.app.models.plugin import TaskPlugin
from relay.app.models.registry import plugins
from relay.core.settings.config import Resolved, flat, leaves, resolve
from relay.core.settings.origins import variable
from relay.core.settings.validating import submodel

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
TITLE = """# Every setting: what it is, and whether it may change
*This page is written by `python -m relay.app.pages.settingsdoc`; a test fails while it is out of date, and others try
every row.*

A run brings its own settings: every command takes those that the run pinned as it began. Only settings that somebody
gives (on the command line, in a variable, or in a line of the file that is not the default) are compared with them. If
one differs, the session writes nothing, ends with 78, and prints the difference and the `fork` command that begins
another run from the newest checkpoint under the new settings. `config show --origin` prints all values and where each
came from. [What one participant can change for everybody](shared.md) lists the exceptions.

A setting is written `key: value` in the file (groups as nested lines), `key=value` on the command line, and in the
environment as the variable below its name."""


class Change(Enum):
    """The effect of a changed setting on a run that has begun."""

    FREE = "may change at any time"
    RECORDED = "may change for everybody; recorded and shown"
    RUN = "names another run"
    STORE = "must lead to the same store (its identity is checked)"
    BEGIN = "only as the run began"
    CARRIED = "refused; `fork` keeps all"
    FRESH = "refused; `fork` keeps all but the carry"


CLASSES: dict[str, tuple[Change, str]] = {
    "project": (Change.RUN, ""),
    "run": (Change.RUN, "a name one letter away from an existing one is refused unless `--new`"),
    "account": (Change.FREE, ""),
    "storage.url": (Change.STORE, "the address of the folder may be written otherwise"),
    "storage.ledger_url": (Change.STORE, ""),
    "storage.checkpoint_url": (Change.STORE, ""),
    "target_steps": (Change.RECORDED, "it may only rise; [who may change it](shared.md)"),
    "until_step": (Change.FREE, "of this session alone"),
    "budget_minutes": (Change.FREE, ""),
    "session_limit_minutes": (Change.FREE, ""),
    "checkpoint.every_steps": (Change.FREE, ""),
    "checkpoint.every_minutes": (Change.FREE, ""),
    "checkpoint.keep_last": (Change.RECORDED, "fewer than usual: recorded as the session retires the others"),
    "checkpoint.keep_every": (Change.RECORDED, "what was retired does not come back"),
    "evaluation.every_commits": (Change.FREE, ""),
    "evaluation.rows": (Change.RECORDED, "each evaluation is shown with its number of rows"),
    "evaluation.test_rows": (Change.FREE, "of the session at the target"),
    "evaluation.test_also": (Change.FREE, "the same"),
    "lease.ttl_s": (Change.FREE, "of the leases taken from then on"),
    "cache.allow": (Change.FREE, "this machine's alone"),
    "device": (Change.FREE, "another kind of device labels the link `not-exact` or `unknown`"),
    "processes": (Change.FREE, "another number labels the link `unknown`: another path"),
    "ephemeral": (Change.FREE, ""),
    "spot": (Change.FREE, ""),
    "competition": (Change.FREE, "accounts outside its team are refused (77)"),
    "load_checkpoint": (Change.BEGIN, "the same file again is no change"),
    "checkpoint_path": (Change.FREE, "of this machine alone; the store keeps its own"),
    "trackers": (Change.FREE, "each session's own; a tracker never stops training"),
    "tracker_details": (Change.FREE, ""),
    "tensorboard_dir": (Change.FREE, ""),
    "data_dir": (Change.FREE, "the same data at another place"),
    "sync_dir": (Change.FREE, "what waits in the old one is not seen from the new one"),
}
"""Every setting of the relay. All settings of a workload are pinned, except those of `TaskPlugin.local`."""
HEAD = ("| setting | what it is | default | a run that has begun |", "|---|---|---|---|")
TRAINING = """## Settings of the training, pinned by the run
`config show task=NAME` prints a task's settings. In the environment only the task can be set (`RELAY_TASK`). *Keeps
all*: weights, averages, moments, carry and step; *all but the carry*: the sequences at hand begin afresh."""
PRESET = "Defaults are those of `task={task}`."
LOCAL = "leads to data on this machine, whose content is compared"
ARCH = "only where all shapes stay the same; another network is a new run"


def page(plugins: Sequence[TaskPlugin]) -> str:
    """Return the whole page, Markdown: settings of the session, then those of each model."""
    session = _resolved(plugins[0]).settings
    ours = [_row(f"`{key}`<br>`{variable(key)}`", is_, value, *CLASSES[key]) for key, is_, value in _told(session)]
    lines = [TITLE, "", "## Settings of the session", *HEAD, *ours, "", TRAINING]
    for plugin in plugins:
        task = plugin.default_task
        lines += ["", f"### {plugin.published.title[0].upper()}{plugin.published.title[1:]}", PRESET.format(task=task)]
        lines += ["", *HEAD, *_rows(plugin)]
    return "\n".join(lines) + "\n"


def _resolved(plugin: TaskPlugin) -> Resolved[BaseModel]:
    """The defaults, without a file and an environment."""
    task = plugin.default_task
    return resolve(plugin.preset, plugin.model, {}, PAGE.parent, default_task=task, defaults=plugin.defaults)


def _rows(plugin: TaskPlugin) -> Iterator[str]:
    for key, is_, value in _told(_resolved(plugin).workload):
        yield _row(f"`{key}`", is_, value, changed(plugin, key), _note(plugin, key))
    for key, values in plugin.shorthands.items():
        stands = f"Stands for {', '.join(f'`{other}`' for other in list(values.values())[-1])}"
        yield f"| `{key}` | {stands}: {', '.join(values)}. | | not pinned: the settings for which it stands are |"


def _told(values: BaseModel) -> list[tuple[str, str, object]]:
    """Return (dotted key, description, value) of each setting."""
    meaning, value = meanings(type(values)), dict(flat(values.model_dump(mode="json")))
    return [(key, meaning[key], value[key]) for key in leaves(type(values))]


def meanings(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Return {dotted key: docstring} of each plain field of a model; fields without a docstring are absent."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, after in pairwise(definition.body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[prefix + name] = " ".join(text.split())
    for name, info in model.model_fields.items():
        nested = submodel(info.annotation)
        found |= meanings(nested, f"{prefix}{name}.") if nested else {}
    return found


def changed(plugin: TaskPlugin, key: str) -> Change:
    """Return the effect of a changed setting of a workload."""
    if key in plugin.local:
        return Change.FREE
    return Change.FRESH if plugin.refit({key: None}, {}) else Change.CARRIED


def _note(plugin: TaskPlugin, key: str) -> str:
    if key in plugin.local:
        return LOCAL
    return ARCH if key.startswith("arch.") else plugin.notes.get(key, "")


def _row(names: str, meaning: str, default: object, change: Change, note: str) -> str:
    usual = "" if default is None or default in ("", [], ()) else f"`{str(default).lower()}`"
    return f"| {names} | {meaning} | {usual} | {change.value}{note and f'. {note[0].upper()}{note[1:]}'} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(plugins()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
