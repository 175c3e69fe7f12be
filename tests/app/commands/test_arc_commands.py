"""ARC from task files to a score, through the command line: what is made, what is refused, and with which exit code."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.app.models.trm import Trm
from relay.core.events import Trouble
from tests.app.cli import Desk
from tests.trm.data.arc import files
from trm import workload
from trm.builders import built
from trm.competition.votestore import VoteStore
from trm.data.arc import generate
from trm.data.arc.submission import check, faults
from trm.data.arc.tasks import raw_task
from trm.presets import KS

TINY = """
batch_size: 4
threads: 1
target_steps: 2
data:
  num_aug: 1
  canvas: 10
  held_out: 2
arch:
  hidden_size: 16
  num_heads: 2
  puzzle_emb_ndim: 16
  puzzle_emb_len: 1
  halt_max_steps: 2
  forward_dtype: float32
"""
TASK = (
    "task=arc1",
    "data.source=tasks",
    f"data.subsets=[{generate.TRAINING},{generate.TEST}]",
    f"data.test_set={generate.TEST}",
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path / "desk", {"RELAY_CPU": "1"}, plugin=Trm())  # type: ignore[arg-type]
    monkeypatch.chdir(made.folder)
    (made.folder / "config_multi_account.yaml").write_text(TINY)
    for subset, some in files.tasks().items():
        files.kaggle(made.folder / "tasks", subset, some)
    return made


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_tasks_only_and_is_scored(desk: Desk, tmp_path: Path) -> None:
    """From files or from the folder that was built from them; another list of identifiers is named and refused (78)."""
    lines = desk("prepare", *TASK, "--folder", "built", "--json").json["lines"]
    assert any("21 with the blank one" in line for line in lines)
    assert desk("run", *TASK, "--json", "run=r").json["durable_step"] == 2
    shown = [desk("status", "--json", "run=r", *words).json["session"]["data"] for words in ((), TASK)]
    assert shown == [None, "tasks"], "the files are this machine's own"
    folder = ("task=arc1", "data.train=built", "run=r")
    again = desk("run", *folder, "--json", "target_steps=3").json
    assert (again["from_step"], again["durable_step"], again["certified"]) == (2, 3, "exact")
    other = (*TASK, "run=r", "data.num_aug=2")
    refused = desk("run", *other, "target_steps=4", code=78).err
    assert refused.count("sha256:") == 2, "names both lists"
    for word in ("evaluate", "examples"):
        assert desk(word, *other, code=78).err.count("sha256:") == 2, "names both lists"
    assert "arch.L_cycles" in desk("run", *TASK, "run=r", "arch.L_cycles=6", "target_steps=4", code=78).err
    found = desk("evaluate", *TASK, "run=r", "--out", "submission.json", "--json").json
    assert {"pass@1", "pass@2", "pass@1000", "official", "exact_accuracy"} <= set(found["metrics"])
    block = found["provenance"]
    assert (block["outputs"], block["candidates"], block["steps"], block["checkpoints"]) == (10, 2, 2, 1)
    assert block["subsets"] == {generate.TRAINING: 5, generate.TEST: 5} and block["public"] is True
    pinned = desk("evaluate", *folder, "--json", "--steps", "1", "--rows", "4").json
    assert pinned["provenance"]["steps"] == 1 and pinned["provenance"]["warnings"]
    assert pinned["provenance"]["data"] == block["data"]
    deeper = desk("evaluate", *folder, "--json", "--recursions", "3", "--raw", "--rows", "4").json
    assert (deeper["provenance"]["steps"], deeper["weights"], deeper["recursions"]) == (3, "raw", 3)
    tested = files.tasks()[generate.TEST]
    assert not faults(json.loads((desk.folder / "submission.json").read_text()), {t.name: raw_task(t) for t in tested})
    told = desk("evaluate", *folder, "--rows", "4").out
    shares = [*(f"pass@{k}" for k in KS), "official", "coverage", "exact_accuracy", "cell_accuracy"]
    assert all(re.search(rf"\b{re.escape(name)} [0-9.]+%", told) for name in shares), told
    shown = desk("examples", *TASK, "run=r", "--first", "1", "--out", "p.svg", "--json").json["pairs"]
    assert shown[0]["truth"] and (desk.folder / "p.svg").is_file()
    desk("export", *TASK, "run=r")
    exported = "export/step_3/model.safetensors"
    assert desk("evaluate", *TASK, "--weights", exported, "--rows", "4", "--json").json["provenance"]["rows"] == 4
    for change in ("data.num_aug=2", "arch.L_cycles=6"):
        fact = "sha256:" if change.startswith("data") else "arch.L_cycles=4"
        assert fact in desk("evaluate", *TASK, "--weights", exported, change, code=78).err
        assert fact in desk("import", exported, *TASK, "run=i", change, code=78).err


@pytest.mark.slow
def test_a_foreign_file_needs_its_list(desk: Desk) -> None:
    """The reference's step_N is evaluated with its identifiers.json, adapted without, and refused with another list."""
    desk("prepare", *TASK, "--folder", "built")
    desk("run", *TASK, "run=r")
    desk("export", *TASK, "run=r", "--format", "reference", "--out", "theirs")
    step = desk.folder / "theirs" / "step_2"
    for ours in ("step_2.json", "identifiers.json"):
        step.with_name(ours).unlink()
    assert "identifiers.json" in desk("evaluate", *TASK, "--weights", str(step), code=78).err
    notes = desk("import", str(step), *TASK, "run=adapted", "--json").json["notes"]
    assert any("mean" in note for note in notes)
    own = (desk.folder / "built" / "identifiers.json").read_text()
    step.with_name("identifiers.json").write_text(own)
    assert desk("evaluate", *TASK, "--weights", str(step), "--rows", "2", "--json").json["provenance"]["rows"] == 2
    step.with_name("identifiers.json").write_text(json.dumps(json.loads(own)[:-1]))
    assert desk("evaluate", *TASK, "--weights", str(step), code=78).err.count("sha256:") == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "hub", "reference"])
def test_an_export_has_its_list_if_the_data_is_here(desk: Desk, form: str) -> None:
    """`arc solve` finds it. Without the data, or over another list, the weights come alone, and a line says why."""
    desk("run", *TASK, "run=r")
    desk("prepare", *TASK, "--folder", "built")
    export = ("export", "--format", form)
    own = (desk.folder / "built" / "identifiers.json").read_bytes()
    for words, why in (
        (("task=arc1", "run=r"), "data.source"),
        ((*TASK, "run=r", "data.num_aug=2"), "sha256:"),
        ((*TASK, "run=r", "data.source=nowhere"), "nowhere"),
    ):
        alone = desk(*export, *words, "--out", "alone", "--json")
        assert not [*desk.folder.glob("alone/**/identifiers.json")] and alone.json["files"]
        assert why in alone.err and "identifiers.json" in alone.err
    files = [Path(name) for name in desk(*export, *TASK, "run=r", "--json").json["files"]]
    (listed,) = [path for path in files if path.name == "identifiers.json"]
    assert listed.read_bytes() == own and all(path.is_file() for path in files)
    weights = "export/step_2"
    solve = ("arc", "solve", "--tasks", CHALLENGES, "--weights", weights, "--variants", "2", "threads=1", "device=cpu")
    assert desk(*solve, "--json").json["provenance"]["unknown_tasks"] == 0
    assert desk(*export, *TASK, "run=r").err.count("identifiers.json") == 0, "the same list again"
    listed.write_text("[]")
    assert str(listed) in desk(*export, *TASK, "run=r").err and listed.read_text() == "[]"


@pytest.mark.slow
def test_hidden_outputs_are_never_scored(desk: Desk) -> None:
    (desk.folder / "tasks" / f"arc-agi_{generate.TEST}_solutions.json").unlink()
    desk("run", *TASK, "run=r")
    found = desk("evaluate", *TASK, "run=r", "--out", "s.json", "--json").json
    assert set(found["metrics"]) == {"candidates", "coverage"} and found["provenance"]["scored"] is None
    assert json.loads((desk.folder / "s.json").read_text()).keys() == {t.name for t in files.tasks()[generate.TEST]}


CHALLENGES = f"tasks/arc-agi_{generate.TEST}_challenges.json"
SOLUTIONS = f"tasks/arc-agi_{generate.TEST}_solutions.json"
FIELDS = {
    "score_outputs",
    "score_tasks",
    "pass_at",
    "candidates",
    "coverage",
    "provenance",
    "votes",
    "valid",
    "complete",
}


@pytest.mark.slow
def test_a_run_is_solved_checked_and_scored(desk: Desk) -> None:
    """By the run or by its exported weights with their list: the same votes, which one store keeps."""
    desk("run", *TASK, "run=r")
    solve = ("arc", "solve", "--tasks", CHALLENGES)
    ended = desk(*solve, *TASK, "run=r", "--budget-minutes", "0.05", "--json", code=75).json
    assert (ended["complete"], ended["valid"], ended["votes"]) == (False, True, 0), "the budget counts from the start"
    done = desk(*solve, *TASK, "run=r", "--json").json
    assert done["schema"] == "relay.arc/1" and set(done) >= FIELDS
    assert (done["complete"], done["votes"], done["planned"], done["candidates"]) == (True, 20, 20, 2)
    about = done["provenance"]
    assert about["training"].startswith("transductive") and about["unknown_tasks"] == 0 and not about["warnings"]
    assert "variants" in desk(*solve, *TASK, "run=r", "--variants", "1", code=78).err
    before = {name: (desk.folder / name).read_bytes() for name in ("submission.json", "submission.json.votes")}
    text = (desk.folder / CHALLENGES).read_text()
    tasks = json.loads(text)
    next(iter(tasks.values()))["test"][0]["input"][0][0] ^= 1
    (desk.folder / CHALLENGES).write_text(json.dumps(tasks))
    assert "tasks" in desk(*solve, *TASK, "run=r", code=78).err
    (desk.folder / CHALLENGES).write_text(text)
    assert before == {name: (desk.folder / name).read_bytes() for name in before}
    checked = desk("arc", "check", "submission.json", "--tasks", CHALLENGES, "--json").json
    assert checked["valid"] and checked["outputs"] == 10 and set(checked) >= FIELDS
    scored = desk("arc", "score", "submission.json", "--solutions", SOLUTIONS, "--json").json
    assert scored["score_outputs"] == scored["right"]["2"] / 10 and len(scored["by_task"]) == 5
    evaluated = desk("evaluate", *TASK, "run=r", "--submission", "e.json", "--json").json
    arc = evaluated["arc"]
    assert arc["complete"] and set(arc) >= FIELDS and arc["pass_at"]["2"] == arc["score_tasks"]
    assert evaluated["metrics"]["official"] == arc["score_outputs"] <= scored["score_outputs"], (
        "no fallback counts as a prediction"
    )
    assert json.loads((desk.folder / "e.json").read_text()) == json.loads((desk.folder / "submission.json").read_text())
    desk("export", *TASK, "run=r")
    desk("prepare", *TASK, "--folder", "built")
    listed = desk.folder / "export" / "step_2" / "identifiers.json"
    own = (desk.folder / "built" / "identifiers.json").read_text()
    of_file = (*solve, "--weights", "export/step_2", "threads=1", "device=cpu")
    assert listed.read_text() == own and desk(*of_file, "--json").json["resumed"] == 20, "export wrote the list"
    listed.unlink()
    unknown = desk(*of_file, "--out", "unknown.json", "--variants", "2", "--json").json
    assert unknown["provenance"]["unknown_tasks"] == 5
    assert "data.source" in unknown["provenance"]["warnings"][0], "there is no list"
    listed.write_text(own)
    assert desk(*of_file, "--json").json["resumed"] == 20, "the weights are those of the run"
    for change, fact in (("arch.L_cycles=5", "arch.L_cycles"), ("data.canvas=9", "data.canvas")):
        assert fact in desk(*of_file, change, code=78).err
    listed.write_text(json.dumps([*json.loads(own)[:-1], "another"]))
    assert desk(*of_file, code=78).err.count("sha256:") == 2, "names both lists"
    listed.unlink()
    assert desk(*of_file, *TASK, "data.num_aug=2", code=78).err.count("sha256:") == 2
    for words, code in ((("--steps", "3"), 78), (("device=xla",), 78), (("--step", "2"), 2)):
        desk(*of_file, *words, code=code)
    desk("run", "run=other", "task=sudoku4", "target_steps=1", "data.train_rows=20", "arch.mlp_t=true")
    assert "ARC" in desk("arc", "solve", "--tasks", CHALLENGES, "--out", "o.json", "run=other", code=78).err


@pytest.mark.slow
def test_a_table_that_is_one_row_short_is_not_solved_with(desk: Desk) -> None:
    desk("prepare", *TASK, "--folder", "built")
    desk("run", *TASK, "run=r")
    desk("export", *TASK, "run=r", "--format", "reference", "--out", "theirs")
    step = desk.folder / "theirs" / "step_2"
    step.with_name("step_2.json").unlink()
    own = json.loads((desk.folder / "built" / "identifiers.json").read_text())
    solve = ("arc", "solve", "--tasks", CHALLENGES, "--weights", str(step), "--json")
    for kept, code in ((own[:-1], 78), (own, 0)):
        step.with_name("identifiers.json").write_text(json.dumps(kept))
        done = desk(*solve, "task=arc1", code=code)
    assert done.json["complete"] and done.json["provenance"]["unknown_tasks"] == 0
    assert "task=" in desk(*solve, "--out", "other.json", code=78).err, "the file does not describe its network"


def test_a_bad_submission_or_tasks_file_is_named(desk: Desk) -> None:
    tasks = json.loads((desk.folder / CHALLENGES).read_text())
    first = next(iter(tasks))
    made = {name: [{"attempt_1": [[1]], "attempt_2": [[2]]}] * 2 for name in tasks}
    check = ("arc", "check", "s.json", "--tasks", CHALLENGES)
    faulty = {
        "missing": {name: outputs for name, outputs in made.items() if name != first},
        "attempt_3": made | {first: [made[first][0], made[first][0] | {"attempt_3": [[1]]}]},
        "attempt_2": made | {first: [made[first][0], made[first][0] | {"attempt_2": []}]},
    }
    for fact, content in faulty.items():
        (desk.folder / "s.json").write_text(json.dumps(content))
        told = desk(*check, code=65).out
        assert fact in told and first in told
        (fault,) = desk(*check, "--json", code=65).json["faults"]
        assert fault["task"] == first
        assert first in desk("arc", "score", "s.json", "--solutions", SOLUTIONS, code=65).err
    (desk.folder / "s.json").write_text(json.dumps(made))
    desk(*check)
    desk("arc", "check", "nowhere.json", "--tasks", CHALLENGES, code=65)
    tasks[first]["test"][1]["input"] = []
    (desk.folder / CHALLENGES).write_text(json.dumps(tasks))
    for words in (check, ("arc", "solve", "--tasks", CHALLENGES, "--weights", "w")):
        told = desk(*words, code=65).err
        assert first in told and "test 2" in told


@pytest.mark.parametrize("out", ["config_multi_account.yaml/s.json", "/proc/new/s.json"])
def test_a_submission_that_cannot_be_written_is_named(desk: Desk, out: str) -> None:
    """Its folder cannot be made."""
    said = desk("arc", "solve", "--tasks", CHALLENGES, "--weights", "w", "--out", out, code=78).err
    assert out.rpartition("/")[0] in said


@pytest.mark.parametrize(
    "option", ["--adapt-lr=inf", "--adapt-table-lr=inf", "--variants=9999999", f"--chunk={10**20}"]
)
def test_a_number_beyond_all_use_is_refused_before_the_solve(desk: Desk, option: str) -> None:
    """They ended in a message of a library, or never."""
    said = desk("arc", "solve", "--tasks", CHALLENGES, "--weights", "w", option, code=2).err
    assert option.partition("=")[0] in said and not (desk.folder / "submission.json").exists()


@pytest.mark.parametrize("option", ["--slug", "--owner", "--title"])
def test_a_bundle_that_kaggle_would_refuse_is_refused_before_weights_are_read(desk: Desk, option: str) -> None:
    bundle = ("arc", "bundle", "--tasks", "none", "--out", "b", "--weights", "nowhere")
    for odd in ("", "\u6f22\u5b57", "a" * 101):
        assert option in desk(*bundle, option, odd, code=78).err
    assert "nowhere" in desk(*bundle, "--owner", "ana", code=65).err


def test_a_second_solve_is_refused(desk: Desk) -> None:
    store = VoteStore(desk.folder / "submission.json.votes")
    desk("arc", "solve", "--tasks", CHALLENGES, "--weights", "w", code=73)
    store.close()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize(
    ("words", "code", "facts"),
    [
        (("data.subsets=[small-trainin,small-test]",), 78, ("small-trainin", "small-training")),
        (("data.test_set=small",), 78, ("small", generate.TEST)),
        (("data.source=nowhere",), 65, ("nowhere",)),
        (("data.source=",), 78, ("data.source",)),
        (("data.source=", "data.train=nowhere"), 65, ("nowhere",)),
        (("data.canvas=31",), 78, ("data.canvas",)),
        (("data.canvas=4",), 65, ("rows",)),
        (("data.max_tasks=0",), 78, ("data.max_tasks",)),
        (("data.num_aug=-1",), 78, ("data.num_aug",)),
    ],
)
def test_settings_that_do_not_fit_are_named(
    desk: Desk, words: tuple[str, ...], code: int, facts: tuple[str, ...]
) -> None:
    told = desk("prepare", *TASK, *words, code=code).err
    assert all(fact in told for fact in facts), told


@pytest.mark.parametrize("word", ["prepare", "run", "doctor"])
def test_task_files_of_arc_are_not_passed_over_by_another_task(desk: Desk, word: str) -> None:
    """The usual task is a Sudoku, which would train without a word."""
    said = desk(word, *TASK[1:], code=78)
    assert "data.source" in said.out + said.err and "task=arc1" in said.out + said.err


def test_what_is_said_of_the_data_adds_up(desk: Desk) -> None:
    """The rows and the hash that a run pins are those without the pairs that are held out."""
    lines = desk("prepare", *TASK, "--json").json["lines"]
    (trained,) = [line for line in lines if line.startswith("trained on")]
    variants, demonstrations, tests, held_out = 2, 10 * 12, 5 * 2, 2
    every = variants * (demonstrations + tests)
    assert any(f"train: {every} rows" in line for line in lines)
    assert f" {every - variants * held_out} of" in trained and "sha256" in trained


def test_a_broken_file_is_named(desk: Desk) -> None:
    path = desk.folder / "tasks" / f"arc-agi_{generate.TRAINING}_challenges.json"
    cut(path)
    assert path.name in desk("prepare", *TASK, code=65).err


def test_a_folder_is_never_written_over(desk: Desk) -> None:
    desk("prepare", *TASK, "--folder", "built")
    before = (desk.folder / "built" / "identifiers.json").read_bytes()
    assert "built" in desk("prepare", *TASK, "data.num_aug=2", "--folder", "built", code=78).err
    assert (desk.folder / "built" / "identifiers.json").read_bytes() == before


@pytest.mark.slow
def test_doctor_looks_at_the_data(desk: Desk) -> None:
    """Two parts of one build, whole arrays, task files that can be read: without making or reading all of it."""

    def data(*words: str, code: int = 0) -> list[str]:
        findings = desk("doctor", *words, "--json", code=code).json["findings"]
        return [one["text"] for one in findings if one["subject"] == "data"]

    assert not data("task=sudoku4")
    named = data(*TASK)
    assert any("small-training 5" in text for text in named) and any("10 outputs" in text for text in named)
    desk("prepare", *TASK, "--folder", "built")
    folder = ("task=arc1", "data.train=built")
    assert any("20 rows of 5 groups" in text for text in data(*folder))
    array = desk.folder / "built" / "train" / "all__labels.npy"
    whole = array.read_bytes()
    array.write_bytes(whole[:-100])
    assert "all__labels.npy" in data(*folder, code=65)[0]
    array.write_bytes(whole)
    about = desk.folder / "built" / "test" / "dataset.json"
    about.write_text(about.read_text().replace("21", "20"))
    assert "not of one build" in data(*folder, code=65)[0]
    cut(desk.folder / CHALLENGES)
    assert CHALLENGES in data(*TASK, code=65)[0]


GUIDE = (
    "dataset.build_arc_dataset --input-file-prefix tasks/arc-agi --output-dir data/arc2concept-aug-1 "
    f"--subsets {generate.TRAINING} {generate.TEST} --test-set-name {generate.TEST} --num-aug 1 --max-puzzles 3"
)
TRAIN = """
arch=trm data_paths="[data/arc2concept-aug-1]" evaluators="[{name: arc@ARC}]" epochs=4 eval_interval=2
arch.L_layers=2 arch.H_cycles=3 arch.L_cycles=4 +run_name=guide ema=True global_batch_size=4
"""


def settings(desk: Desk, *words: str) -> dict[str, Any]:
    return {row["key"]: row["value"] for row in desk("config", "show", "--json", *words).json["settings"]}


@pytest.mark.slow
def test_the_guides_lines_build_and_train(desk: Desk) -> None:
    words = built(shlex.split(GUIDE))
    assert words is not None
    lines = desk(*words, "--json").json["lines"]
    assert any("6 tasks" in line for line in lines), lines
    found = settings(desk, *shlex.split(TRAIN), "arch.hidden_size=16", "arch.num_heads=2")
    assert (found["task"], found["run"], found["batch_size"], found["data.canvas"]) == ("arc2", "guide", 4, 10)
    assert (found["puzzle_emb_lr"], found["weight_decay"], found["arch.L_cycles"]) == (0.01, 0.1, 4)
    assert (found["target_steps"], found["checkpoint.every_steps"]) == (78, 39), "4 epochs of 78 rows, evaluated twice"
    small = ("arch.hidden_size=16", "arch.num_heads=2")
    done = desk("run", *shlex.split(TRAIN), *small, "+checkpoint_path=P", "--json", RELAY_TARGET_STEPS="2").json
    assert done["durable_step"] == 2
    tasks = {task.name: raw_task(task) for task in files.tasks()[generate.TEST][:3]}
    assert check(desk.folder / "P" / "evaluator_ARC_step_2" / "submission.json", tasks) == []
    folder = ("task=arc2", "data.train=data/arc2concept-aug-1", "data.canvas=10", "arch.L_cycles=4", *small)
    assert (desk.folder / "P" / "identifiers.json").is_file(), "for `arc solve --weights`"
    found = desk("evaluate", *folder, "--weights", "P/step_2", "--out", "s.json", "--json").json
    assert found["provenance"]["rows"] == found["arc"]["votes"] > 0, "the file names its list"
    written = (desk.folder / "P" / "evaluator_ARC_step_2" / "submission.json").read_bytes()
    assert (desk.folder / "s.json").read_bytes() == written


def test_pretrain_takes_the_builders_line(monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(Path(__file__).parents[3] / "pretrain.py")
    monkeypatch.setattr(sys, "argv", [script, *shlex.split(GUIDE)])
    runpy.run_path(script, run_name="imported")
    assert sys.argv[1:3] == ["prepare", "task=arc1"]
    assert sys.argv[-2:] == ["--folder", "data/arc2concept-aug-1"] and "data.max_tasks=3" in sys.argv
    assert built(["arch=trm"]) is None
    sudoku = "dataset.build_sudoku_dataset --output-dir data/s --subsample-size 1000 --num-aug 1000"
    assert built(shlex.split(sudoku))[-4:] == ["--num-aug", "1000", "--folder", "data/s"]  # type: ignore[index]
    with pytest.raises(SystemExit) as ended:
        built(["dataset.build_arc_dataset", "--subsets", "a"])
    assert ended.value.code == 2


@pytest.mark.slow
def test_files_that_cannot_be_published_do_not_stop_a_session(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported; a folder that cannot be made is refused before the lease."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workload, "publish_step", full)
    done = desk("run", *TASK, "run=r", "checkpoint_path=P", "--json")
    assert done.json["durable_step"] == 2 and done.event(Trouble).doing == "publishing"
    assert "P" in desk("run", *TASK, "run=other", "checkpoint_path=config_multi_account.yaml/P", code=78).err
