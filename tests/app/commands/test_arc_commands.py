"""ARC from task files to a score, through the command line: what is made, what is refused, and with which exit code."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.app.models.trm import Trm
from tests.app.cli import Desk
from tests.trm.data.arc import files
from trm.builders import built
from trm.data.arc import generate
from trm.data.arc.votes import check_submission

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
    check_submission(json.loads((desk.folder / "submission.json").read_text()), {task.name: 2 for task in tested})
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
    step.with_name("step_2.json").unlink()
    assert "identifiers.json" in desk("evaluate", *TASK, "--weights", str(step), code=78).err
    notes = desk("import", str(step), *TASK, "run=adapted", "--json").json["notes"]
    assert any("mean" in note for note in notes)
    own = (desk.folder / "built" / "identifiers.json").read_text()
    step.with_name("identifiers.json").write_text(own)
    assert desk("evaluate", *TASK, "--weights", str(step), "--rows", "2", "--json").json["provenance"]["rows"] == 2
    step.with_name("identifiers.json").write_text(json.dumps(json.loads(own)[:-1]))
    assert desk("evaluate", *TASK, "--weights", str(step), code=78).err.count("sha256:") == 2


@pytest.mark.slow
def test_hidden_outputs_are_never_scored(desk: Desk) -> None:
    (desk.folder / "tasks" / f"arc-agi_{generate.TEST}_solutions.json").unlink()
    desk("run", *TASK, "run=r")
    found = desk("evaluate", *TASK, "run=r", "--out", "s.json", "--json").json
    assert set(found["metrics"]) == {"candidates", "coverage"} and found["provenance"]["scored"] is None
    assert json.loads((desk.folder / "s.json").read_text()).keys() == {t.name for t in files.tasks()[generate.TEST]}


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


def test_a_broken_file_is_named(desk: Desk) -> None:
    path = desk.folder / "tasks" / f"arc-agi_{generate.TRAINING}_challenges.json"
    cut(path)
    assert path.name in desk("prepare", *TASK, code=65).err


def test_a_folder_is_never_written_over(desk: Desk) -> None:
    desk("prepare", *TASK, "--folder", "built")
    before = (desk.folder / "built" / "identifiers.json").read_bytes()
    assert "built" in desk("prepare", *TASK, "data.num_aug=2", "--folder", "built", code=78).err
    assert (desk.folder / "built" / "identifiers.json").read_bytes() == before


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
    done = desk("run", *shlex.split(TRAIN), *small, "--json", RELAY_TARGET_STEPS="2").json
    assert done["durable_step"] == 2


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
