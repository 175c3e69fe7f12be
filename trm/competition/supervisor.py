"""Runs in a competition's notebook: writes a valid file first, solves in a child process, and ends in time and well.

Standard library only, with trm/data/arc/submission.py. Both are in a bundle's folder `starter`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage.wording import counted
from trm.data.arc import submission

RERUN = "KAGGLE_IS_COMPETITION_RERUN"
"""Set by Kaggle where the hidden tasks are; without it this is a save, which takes a short path."""
TASKS, OUT, LOG, SOLVED = "arc-agi_test_challenges.json", "submission.json", "arc.log", "arc-solve.log"
MANIFEST, WHEELS, OWN = "manifest.json", "wheels", "trm_relay-"
RESERVE_S, SAVE_S = 1200.0, 600.0
"""Kept at the end of a rerun, at most a quarter of the limit; limit of a save."""
SAVE = ("--variants", "1", "--steps", "1")
CHUNKS = (None, 32, 4)
"""Rows at once of the first start and of those after a crash, which may have been for lack of memory."""
ENDED = {0: "complete", 75: "ended by its budget"}


class Stopped(Exception):
    """Why the solver cannot be started: the fallback stays."""


@dataclass(frozen=True)
class Times:
    """Seconds from the start of the notebook."""

    limit: float

    @property
    def reserve(self) -> float:
        """For the end."""
        return min(RESERVE_S, self.limit / 4)

    @property
    def budget(self) -> float:
        """The child ends by itself."""
        return self.limit - self.reserve

    @property
    def kill(self) -> float:
        """The child is killed."""
        return self.limit - self.reserve / 2


@dataclass
class Log:
    """arc.log: its first line says what happened, or what is going on."""

    path: Path
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """A detail."""
        self.lines.append(line)

    def say(self, summary: str) -> None:
        """Replace the first line, and write the file."""
        self.path.write_text("\n".join([summary, *self.lines, ""]), encoding="utf-8")


def supervise(
    bundle: Path,
    inputs: Path,
    working: Path,
    slug: str,
    hours: float,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> int:
    """Leave a valid submission in the working folder; returns 0 in every case. options: of `arc solve`."""
    began, log = time.monotonic(), Log(working / LOG)
    given = dict(os.environ if environ is None else environ)
    rerun = bool(given.get(RERUN))
    times = Times(3600 * hours if rerun else min(3600 * hours, SAVE_S))
    scratch = working / ".arc"
    try:
        path = find(inputs, slug)
        tasks = submission.read_tasks(path)
        made: submission.Submission = {name: submission.fallback(task) for name, task in tasks.items()}
        if submission.check(working / OUT, tasks):  # otherwise it is of an earlier run of this cell
            submission.replace(working / OUT, submission.text_of(made, tasks))
        log.say("the solver has not started yet")
        try:
            happened = _solve(bundle, path, working, log, times, began, rerun, options, given)
        except (Stopped, OSError, ValueError, zipfile.BadZipFile) as error:
            happened = str(error)
        found = submission.check(working / OUT, tasks)
        if found:
            submission.replace(working / OUT, submission.text_of(made, tasks))
            happened = f"the solver left an invalid file: {found[0]}"
        holds = "fallbacks alone" if submission.read_json(working / OUT) == made else "with answers"
        summary = f"{holds}, valid for {counted(len(tasks), 'task')}: {happened}"
    except Exception as error:  # noqa: BLE001 - a notebook that fails loses its file
        summary = f"NO SUBMISSION OR AN OLD ONE: {type(error).__name__}: {error}"
    shutil.rmtree(scratch, ignore_errors=True)
    print(summary)
    try:
        log.say(summary)
    except OSError as error:
        print(f"{log.path} cannot be written: {error}")
    return 0


def find(inputs: Path, slug: str) -> Path:
    """The file of hidden tasks, in either style of Kaggle's paths, or anywhere. Raises Stopped."""
    likely = [inputs / "competitions" / slug / TASKS, inputs / slug / TASKS]
    found = next((path for path in (*likely, *sorted(inputs.rglob(TASKS))) if path.is_file()), None)
    if found is None:
        raise Stopped(f"{inputs} has no {TASKS}. Attach the competition {slug} to the notebook.")
    return found


def _solve(
    bundle: Path,
    tasks: Path,
    working: Path,
    log: Log,
    times: Times,
    began: float,
    rerun: bool,
    options: Sequence[str],
    environ: Mapping[str, str],
) -> str:
    """Start the solver until it ends by itself; says what happened. Raises Stopped if it cannot be started."""
    verify(bundle, log)
    site = working / ".arc" / "site"
    for wheel in sorted((bundle / WHEELS).glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
    kept = {key: value for key, value in environ.items() if not key.startswith(("RELAY_", "PYTHON"))}
    kept |= {"PYTHONPATH": str(site), "HOME": str(site.parent), "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "trm_relay", "arc", "solve", "--weights", str(bundle), "--tasks", str(tasks),
             "--out", str(working / OUT), "--json", *(options if rerun else SAVE)]  # fmt: skip
    said = ""
    for number, chunk in enumerate(CHUNKS, 1):
        left = times.budget - (time.monotonic() - began)
        if left <= 0:
            return said or "there was no time for the solver"
        more = ["--budget-minutes", f"{left / 60:.3f}", *(["--chunk", str(chunk)] if chunk else [])]
        log.say(f"solving, start {number}")
        with (working / SOLVED).open("ab") as out:
            child = subprocess.Popen([*words, *more], cwd=working, env=kept, stdout=out, stderr=out)
            try:
                code = child.wait(max(1.0, times.kill - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return f"the solver was killed before the limit of {times.limit / 60:g} minutes"
        if code in ENDED:
            return f"{ENDED[code]}, {_votes(working / SOLVED)}"
        said = f"the solver ended with {code}: {_last(working / SOLVED)}"
        log.add(f"start {number}: {said}")
    return said


def verify(bundle: Path, log: Log) -> None:
    """Compare every file with the manifest. A missing wheel of another project is noted: the machine may have it.

    Raises Stopped for a damaged file, or for missing weights or a missing wheel of ours.
    """
    try:
        files = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Stopped(f"{MANIFEST} cannot be read: {error}") from error
    for name, about in files.items():
        path = bundle / name
        if not path.is_file() and name.startswith(f"{WHEELS}/") and OWN not in name:
            log.add(f"{name} is missing; the machine may have this package itself")
        elif not path.is_file():
            raise Stopped(f"{name} is missing from the bundle")
        elif _sha256(path) != about["sha256"]:
            raise Stopped(f"{name} is not the file that was bundled (SHA-256 differs)")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _votes(path: Path) -> str:
    """What the solver's document says, which is its last line."""
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1])
        return f"{found['votes']:,} of {counted(found['planned'], 'vote')}, coverage {found['coverage']:.1%}"
    except (OSError, ValueError, LookupError, TypeError):
        return "which said nothing of its votes"


def _last(path: Path) -> str:
    """The last line that the solver printed."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return " ".join(lines[-1].split())[:300] if lines else "it printed nothing"
