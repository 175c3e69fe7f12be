"""Lists the stored checkpoint files that may be deleted and those that stay, each with its rule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relay.app.messages.wording import counted, duration
from relay.core.checkpoint.retention import FileVerdict
from relay.core.names import Names


@dataclass(frozen=True)
class Group:
    """Files of one folder with the same rule."""

    name: str
    goes: bool
    rule: str
    files: int
    bytes: int

    def document(self) -> dict[str, Any]:
        """Return one row of relay.gc/1."""
        return {"name": self.name, "files": self.files, "bytes": self.bytes, "why": self.rule}


def grouped(judged: Iterable[FileVerdict], names: Names) -> list[Group]:
    """Return one group for each folder and rule: deleted ones first, each part ordered by step and epoch."""
    found: dict[tuple[bool, tuple[int, int], str, str], list[FileVerdict]] = {}
    for file in judged:
        place = names.parse_checkpoint(file.stat.name)
        key = place[:2] if place else (-1, -1)
        folder = place.folder if place else file.stat.name.removeprefix(names.checkpoints)
        found.setdefault((not file.goes, key, folder, why(file)), []).append(file)
    return [
        Group(folder, not stays, rule, len(files), sum(file.stat.size for file in files))
        for (stays, _, folder, rule), files in sorted(found.items(), key=lambda item: item[0][:3])
    ]


def why(file: FileVerdict) -> str:
    """Return the rule that keeps or deletes the file."""
    match file.rule:
        case "foreign":
            return "not a file of a checkpoint: left alone"
        case "passed over":
            return "kept: an entry that was passed over may have committed it"
        case "newest":
            return "retained: the newest checkpoint"
        case "best":
            return "retained: the best on validation"
        case "evidence":
            return "retained: evidence of damage"
        case "lender":
            return f"retained: step {file.step:,} shares files with it"
        case "kept":
            return "retained: kept by the run's settings"
        case "named":
            return f"the retained checkpoint of step {file.step:,} names it"
        case "unverified":
            return f"nothing may go while the manifest of step {file.step:,} cannot be verified"
        case "deleted run":
            return "of a deleted run"
        case "newest epoch":
            return f"of the newest epoch {file.epoch}: its commit may still land"
        case "unread epoch":
            return f"of epoch {file.epoch}, whose newest entries were passed over: they may have committed it"
        case "over":
            return _aged(file, f"left by epoch {file.epoch}, which is over")
        case "retired":
            return _aged(file, "retired")
        case "stuck":
            return "could not be deleted: run gc again later"


def _aged(file: FileVerdict, what: str) -> str:
    if file.goes:
        return f"{what}, {duration(file.seconds)} ago"
    if math.isinf(file.seconds):
        return f"{what} by the newest entry; readers have an hour from the next one on"
    return f"{what}; readers have {duration(file.seconds)} more"


def text_of(groups: list[Group], *, done: bool, local_clock: bool) -> str:
    """Return one line for each group, and a sum."""
    wide = max((len(group.name) for group in groups), default=0)
    going = [group for group in groups if group.goes]
    lines = [f"{_verb(group, done)}  {group.name:{wide}}  {_amount([group])}  {group.rule}" for group in groups]
    total = f"{_amount(going)} {'deleted' if done else 'would be deleted'}" if going else "Nothing may be deleted now"
    clock = ", judged by this machine's clock" if local_clock else ""
    return "\n".join([*lines, f"{total}{clock}; {_amount([group for group in groups if not group.goes])} stay."])


def document_of(groups: list[Group], going: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    """Return relay.gc/1: every file that is deleted, and every group with its rule."""
    return {
        "schema": "relay.gc/1",
        "deleted": done,
        "files": going,
        "bytes": sum(row["bytes"] for row in going),
        "goes": [group.document() for group in groups if group.goes],
        "stays": [group.document() for group in groups if not group.goes],
    }


def _verb(group: Group, done: bool) -> str:
    return ("gone  " if done else "goes  ") if group.goes else "stays "


def _amount(groups: list[Group]) -> str:
    files, size = sum(group.files for group in groups), sum(group.bytes for group in groups)
    return f"{counted(files, 'file')}, {size / 1e6:.1f} MB"
