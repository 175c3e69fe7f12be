"""Writes docs/reference/settings.md: what each setting may do to a run that has begun; python -m relay.settingsdoc."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from relay.config import Settings, leaves
from relay.kind import Kind
from relay.origins import variable

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
TITLE = """# What may change between sessions
*This page is written by `python -m relay.settingsdoc`; a test fails while it is out of date, and others try every row.*

Before it trains, a session compares its settings with those that the run pinned. If one differs it writes nothing, ends
with 78, and prints the difference and the `fork` command that begins another run from the newest checkpoint under the
new settings. Everything else may differ from session to session and from person to person. `config show --origin`
prints all values and where each came from."""


class Change(Enum):
    """What a changed setting means to a run that has begun."""

    FREE = "may change at any time"
    RUN = "names another run"
    STORE = "must lead to the same store (its identity is checked)"
    BEGIN = "only as the run began"
    CARRIED = "refused; `fork` goes on with everything"
    FRESH = "refused; `fork` goes on with weights and moments and a fresh carry"


CLASSES: dict[str, tuple[Change, str]] = {
    "project": (Change.RUN, "the group of runs"),
    "run": (Change.RUN, "a name one letter away from an existing one is refused unless `--new`"),
    "account": (Change.FREE, "who trains"),
    "storage.url": (Change.STORE, "the address of the folder may be written otherwise"),
    "storage.ledger_url": (Change.STORE, ""),
    "storage.checkpoint_url": (Change.STORE, ""),
    "target_steps": (Change.FREE, "the newest one counts for everybody; of a decaying rate see `total_steps`"),
    "budget_minutes": (Change.FREE, ""),
    "session_limit_minutes": (Change.FREE, ""),
    "checkpoint.every_steps": (Change.FREE, ""),
    "checkpoint.every_minutes": (Change.FREE, ""),
    "checkpoint.keep_last": (Change.FREE, "fewer: the next session retires the others"),
    "checkpoint.keep_every": (Change.FREE, "what was retired does not come back"),
    "evaluation.every_commits": (Change.FREE, ""),
    "evaluation.rows": (Change.FREE, "accuracies on other numbers of rows compare badly; the best is chosen by them"),
    "lease.ttl_s": (Change.FREE, "of the leases taken from then on"),
    "cache.allow": (Change.FREE, "this machine's alone"),
    "device": (Change.FREE, "another kind of device labels the link `not-exact` or `unknown`"),
    "ephemeral": (Change.FREE, ""),
    "spot": (Change.FREE, ""),
    "competition": (Change.FREE, "accounts outside its team are refused (77)"),
    "load_checkpoint": (Change.BEGIN, "the same file again is no change"),
    "trackers": (Change.FREE, "each session's own; a tracker never stops training"),
    "tensorboard_dir": (Change.FREE, ""),
    "data_dir": (Change.FREE, "the same data at another place"),
    "sync_dir": (Change.FREE, "what waits in the old one is not seen from the new one"),
}
"""Every setting of the relay. A workload's settings are pinned, all of them."""
NOTES = {
    "task": "another task is another data set and seldom fits",
    "data.train": "pinned by content: another path to the same rows is no change",
    "data.test": "pinned by content",
    "total_steps": "pinned only while `lr_min_ratio` is below 1; then also what a new `target_steps` implies",
    "threads": "CPU threads: another number adds in another order",
}
ARCH = "only where all shapes stay the same; another network is a new run"


def page(kind: Kind) -> str:
    """The whole page, Markdown."""
    head = ["| setting | environment | a run that has begun | |", "|---|---|---|---|"]
    ours = [_row(key, f"`{variable(key)}`", *CLASSES[key]) for key in leaves(Settings)]
    theirs = [_row(key, "", changed(kind, key), _note(key)) for key in leaves(kind.model)]
    sections = ["## Settings of the session", *head, *ours, "", "## Settings of the training, pinned by the run"]
    return "\n".join([TITLE, "", *sections, *head, *theirs]) + "\n"


def changed(kind: Kind, key: str) -> Change:
    """What a change of a workload's setting means."""
    return Change.FRESH if kind.refit({key: None}, {}) else Change.CARRIED


def _note(key: str) -> str:
    return ARCH if key.startswith("arch.") else NOTES.get(key, "")


def _row(key: str, environment: str, change: Change, note: str) -> str:
    return f"| `{key}` | {environment} | {change.value} | {note} |"


def main() -> None:
    """Write the page."""
    from relay.cli import Trm

    PAGE.write_text(page(Trm()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
