"""The supervisor with solvers that do everything wrong: the file is valid, the exit is 0, the first line says why."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from relay.torch.faults import TaskError
from tests.facts import raising
from tests.trm.data.arc import files
from trm.competition import supervisor
from trm.competition.bundle import YOUR_NAME, Target
from trm.competition.supervisor import RERUN, Times, supervise
from trm.data.arc import generate
from trm.data.arc.submission import check, fallback, read_json, read_tasks

pytestmark = pytest.mark.slow

SLUG = "arc-prize-2026-arc-agi-2"
ANSWER = """
import json, os, signal, sys, time
words = sys.argv
out, tasks = words[words.index("--out") + 1], json.load(open(words[words.index("--tasks") + 1]))
def answer(cell=7):
    made = {n: [{"attempt_1": [[cell]], "attempt_2": [[8]]} for _ in t["test"]] for n, t in tasks.items()}
    open(out, "w").write(json.dumps(made))
done = json.dumps({"votes": 12, "planned": 24, "coverage": 0.5})
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Inputs with the hidden tasks, a working folder, and a bundle whose solver is still to be written."""
    path = files.kaggle(tmp_path / "t", generate.TEST, files.tasks((1, 2))[generate.TEST], solutions=False)
    folder = tmp_path / "input" / "competitions" / SLUG
    folder.mkdir(parents=True)
    shutil.copy(path, folder / supervisor.TASKS)
    (tmp_path / "working").mkdir()
    return tmp_path


def bundled(place: Path, solver: str) -> Path:
    bundle = place / "input" / "bundle"
    (bundle / "wheels").mkdir(parents=True)
    (bundle / "model.safetensors").write_bytes(b"weights" * 100)
    for name, module in (("trm_relay-0", "trm_relay.py"), ("other-0", "other.py")):
        with zipfile.ZipFile(bundle / "wheels" / f"{name}-py3-none-any.whl", "w") as packed:
            packed.writestr(module, ANSWER + solver if module == "trm_relay.py" else "")
    named = {str(path.relative_to(bundle)): path for path in bundle.rglob("*") if path.is_file()}
    about = {name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for name, path in named.items()}
    (bundle / "manifest.json").write_text(json.dumps({"files": about}))
    return bundle


def run(place: Path, bundle: Path, hours: float = 12.0, environ: dict[str, str] | None = None) -> str:
    """The first line of the log; the file is valid whatever it says."""
    given = {RERUN: "1"} if environ is None else environ
    working = place / "working"
    assert supervise(bundle, place / "input", working, SLUG, hours, ("--variants", "9"), given) == 0
    tasks = read_tasks(supervisor.find(place / "input", SLUG))
    assert check(working / "submission.json", tasks) == []
    first = (working / "arc.log").read_text().splitlines()[0]
    alone = read_json(working / "submission.json") == {name: fallback(task) for name, task in tasks.items()}
    assert first.startswith("fallbacks alone, valid for 10 tasks" if alone else "with answers, valid for 10 tasks")
    assert sorted(path.name for path in working.iterdir() if path.is_dir()) == []
    return first


@pytest.mark.parametrize(
    ("solver", "facts"),
    [
        ("answer(); print(done)", ("with answers", "complete", "12 of 24 votes")),
        ("answer(); print(done); sys.exit(75)", ("with answers", "budget", "12 of 24 votes")),
        ("import nothing_of_this_name", ("fallbacks alone", "ModuleNotFoundError", "nothing_of_this_name")),
        ("answer(); print('no room'); sys.exit(78)", ("with answers", "78", "no room")),
        ("answer(); os.kill(os.getpid(), signal.SIGKILL)", ("with answers", "-9")),
        ("answer(cell=11); print(done)", ("fallbacks alone", "invalid", "11")),
        ("os.remove(out)", ("fallbacks alone", "invalid")),
        ("open(out, 'w').write('{')", ("fallbacks alone", "invalid")),
    ],
)
def test_whatever_the_solver_does(place: Path, solver: str, facts: tuple[str, ...]) -> None:
    first = run(place, bundled(place, solver))
    assert all(fact in first for fact in facts), first


def test_a_solver_that_never_ends_is_killed_before_the_limit(place: Path) -> None:
    began = time.monotonic()
    first = run(place, bundled(place, "answer(); time.sleep(600)"), hours=4 / 3600)
    assert "with answers" in first and "killed" in first and time.monotonic() - began < 60


def test_memory_gets_smaller_chunks_and_the_same_command(place: Path) -> None:
    solver = "print(sys.argv[-2:], file=open('starts', 'a')); answer(); sys.exit(0 if '4' in sys.argv else -9)"
    run(place, bundled(place, solver))
    starts = (place / "working" / "starts").read_text().splitlines()
    assert [start for start in starts if "--chunk" in start] == ["['--chunk', '32']", "['--chunk', '4']"]


def test_the_child_gets_the_bundle_the_budget_and_nobodys_settings(place: Path) -> None:
    solver = "answer(); json.dump([words, dict(os.environ)], open('seen', 'w')); print(done)"
    bundle = bundled(place, solver)
    run(place, bundle, environ={RERUN: "1", "RELAY_STORE": "s3://mine", "PYTHONPATH": "/mine", "KEPT": "1"})
    words, environ = json.loads((place / "working" / "seen").read_text())
    assert words[1:5] == ["arc", "solve", "--weights", str(bundle)] and "9" in words
    assert float(words[words.index("--budget-minutes") + 1]) == pytest.approx(700, abs=2)
    assert environ["KEPT"] == "1" and "RELAY_STORE" not in environ and environ["PYTHONPATH"] != "/mine"


def test_a_save_takes_a_short_path(place: Path) -> None:
    solver = "answer(); json.dump(words, open('seen', 'w')); print(done)"
    run(place, bundled(place, solver), environ={})
    words = json.loads((place / "working" / "seen").read_text())
    assert words[words.index("--variants") + 1] == words[words.index("--steps") + 1] == "1"
    assert float(words[words.index("--budget-minutes") + 1]) < 10


@pytest.mark.parametrize(
    ("harm", "fact"),
    [
        ("bit", "model.safetensors"),
        ("weights", "model.safetensors"),
        ("own", "trm_relay-0"),
        ("manifest", "manifest.json"),
    ],
)
def test_a_damaged_bundle_is_named_and_not_run(place: Path, harm: str, fact: str) -> None:
    bundle = bundled(place, "answer(); print(done)")
    weights = bundle / "model.safetensors"
    if harm == "bit":
        data = bytearray(weights.read_bytes())
        data[99] ^= 4
        weights.write_bytes(data)
    elif harm == "manifest":
        (bundle / "manifest.json").write_text("{")
    else:
        (weights if harm == "weights" else bundle / "wheels" / "trm_relay-0-py3-none-any.whl").unlink()
    first = run(place, bundle)
    assert "fallbacks alone" in first and fact in first


def test_a_missing_wheel_of_others_is_noted(place: Path) -> None:
    bundle = bundled(place, "answer(); print(done)")
    (bundle / "wheels" / "other-0-py3-none-any.whl").unlink()
    assert "complete" in run(place, bundle)
    assert "other-0-py3-none-any.whl" in (place / "working" / "arc.log").read_text()


@pytest.mark.parametrize("style", [(SLUG,), ("competitions", SLUG), ("elsewhere", "deep")])
def test_both_styles_of_paths(tmp_path: Path, style: tuple[str, ...]) -> None:
    folder = tmp_path.joinpath(*style)
    folder.mkdir(parents=True)
    (folder / supervisor.TASKS).write_text("{}")
    assert supervisor.find(tmp_path, SLUG) == folder / supervisor.TASKS


def test_a_cell_that_is_run_again_keeps_the_answers(place: Path) -> None:
    bundle = bundled(place, "answer(); print(done)")
    run(place, bundle)
    (bundle / "manifest.json").unlink()
    assert "with answers" in run(place, bundle)


def test_without_tasks_it_ends_well_and_says_so(tmp_path: Path) -> None:
    assert supervise(tmp_path, tmp_path, tmp_path, SLUG, 12.0, environ={}) == 0
    assert supervisor.TASKS in (tmp_path / "arc.log").read_text().splitlines()[0]


def test_the_times_of_twelve_hours_and_of_three_minutes() -> None:
    assert (Times(43_200).budget / 60, Times(43_200).kill / 60) == (700, 710)
    assert (Times(180).budget, Times(180).kill) == (135, 157.5)


ODD = ("", " ", "arc prize", "ARC-Prize", "a/b", "..", "../x", "a_b", "-a", "a--b", "\u00e4rger", "a\nb", "a" * 101)


@pytest.mark.parametrize(
    ("option", "odd"),
    [
        *(("hours", hours) for hours in (float("inf"), float("nan"))),
        *(
            ("title", title)
            for title in ("\u6f22\u5b57", "", "Four", "a" * 44, "a????", "\u00c4pfel und Birnen", "Two\nlines")
        ),
        *((option, name) for option in ("slug", "owner") for name in ODD),
        ("slug", "https://www.kaggle.com/competitions/arc"),
        ("slug", YOUR_NAME),
    ],
)
def test_a_notebook_that_could_not_run_is_not_written(option: str, odd: object) -> None:
    """By Kaggle's rules for titles and for names in addresses, which it applies after the upload."""
    given: dict[str, Any] = {
        "slug": SLUG,
        "owner": "o",
        "title": "ARC 1",
        "hours": 1.0,
        "accelerator": "",
        "inputs": "/i",
        "working": "/w",
    }
    Target(**given)
    Target(**{**given, "slug": "a" * 100, "owner": YOUR_NAME, "title": "a" * 43})
    with raising(TaskError, f"--{option}"):
        Target(**{**given, option: odd})
