"""The beginning of a solve, before torch is imported: the tasks, the lock, and a file that is valid already."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relay.torch.faults import TaskError
from trm.competition.votestore import NoRoom, VoteStore
from trm.data.arc import submission
from trm.data.arc.submission import RawTask


@dataclass(frozen=True)
class Begun:
    """Tasks, and an output that the competition would take."""

    out: Path
    path: Path
    """Of the tasks."""
    tasks: Mapping[str, RawTask]
    store: VoteStore
    fresh: bool
    """Whether the output is the fallback, written now; otherwise an earlier one was valid and stays."""

    @property
    def hash(self) -> str:
        """Of the tasks' content without test outputs."""
        return content_hash(self.tasks)

    @property
    def inputs(self) -> int:
        """Test inputs."""
        return sum(len(task["test"]) for task in self.tasks.values())

    def write(self, made: submission.Submission) -> None:
        """Replace the output by a valid submission. Raises NoRoom, and leaves the old one."""
        write(self.out, made, self.tasks)


def begin(out: Path, path: Path) -> Begun:
    """Raises Unreadable for the tasks, AnotherSolves (73), TaskError, OtherVotes and NoRoom (78)."""
    out = Path(os.path.realpath(out)) if os.path.islink(out) else out  # noqa: PTH114 - the link stays
    if os.path.exists(out) and not os.path.isfile(out):  # noqa: PTH110, PTH113 - Path's raise for a name too long
        raise TaskError(f"{out} is not a file. Name a file with --out, for example submission.json.")
    tasks = submission.read_tasks(path)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoRoom(out, error) from error
    store = VoteStore(out.with_name(f"{out.name}.votes"))
    try:
        store.check(tasks=content_hash(tasks))
        fresh = not out.exists() or bool(submission.check(out, tasks))
        if fresh:
            write(out, {name: submission.fallback(task) for name, task in tasks.items()}, tasks)
    except BaseException:
        store.close()
        raise
    return Begun(out, path, tasks, store, fresh)


def write(out: Path, made: submission.Submission, tasks: Mapping[str, RawTask]) -> None:
    """Replace a file by a valid submission. Raises NoRoom, and leaves the old one."""
    try:
        submission.replace(out, submission.text_of(made, tasks))
    except OSError as error:
        raise NoRoom(out, error) from error


def content_hash(tasks: Mapping[str, RawTask]) -> str:
    """SHA-256 of what is solved: names in their order, demonstrations and test inputs."""
    plain = {
        name: [[[p["input"], p["output"]] for p in task["train"]], [p["input"] for p in task["test"]]]
        for name, task in tasks.items()
    }
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()
