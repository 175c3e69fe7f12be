"""The reference's commands for Sudoku and mazes, word for word as its README has them, on tiny data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from relay.app.models.trm import Trm
from relay.core.runs.opening import Changed, ConfigDiffers
from tests.app.cli import Desk
from trm.data import maze, sudoku
from trm.data.folders import write_part

DATA = Path(__file__).parents[2] / "data"
SUDOKU_MLP = """
arch=trm \
data_paths="[data/sudoku-extreme-1k-aug-1000]" \
evaluators="[]" \
epochs=50000 eval_interval=5000 \
lr=1e-4 puzzle_emb_lr=1e-4 weight_decay=1.0 puzzle_emb_weight_decay=1.0 \
arch.mlp_t=True arch.pos_encodings=none \
arch.L_layers=2 \
arch.H_cycles=3 arch.L_cycles=6 \
+run_name=pretrain_mlp_t_sudoku ema=True
"""
SUDOKU_ATT = """
arch=trm \
data_paths="[data/sudoku-extreme-1k-aug-1000]" \
evaluators="[]" \
epochs=50000 eval_interval=5000 \
lr=1e-4 puzzle_emb_lr=1e-4 weight_decay=1.0 puzzle_emb_weight_decay=1.0 \
arch.L_layers=2 \
arch.H_cycles=3 arch.L_cycles=6 \
+run_name=pretrain_att_sudoku ema=True
"""
MAZE = """
arch=trm \
data_paths="[data/maze-30x30-hard-1k]" \
evaluators="[]" \
epochs=50000 eval_interval=5000 \
lr=1e-4 puzzle_emb_lr=1e-4 weight_decay=1.0 puzzle_emb_weight_decay=1.0 \
arch.L_layers=2 \
arch.H_cycles=3 arch.L_cycles=4 \
+run_name=pretrain_att_maze30x30 ema=True
"""
TINY = """
batch_size: 4
threads: 1
arch:
  hidden_size: 16
  num_heads: 2
  puzzle_emb_ndim: 16
  halt_max_steps: 2
  forward_dtype: float32
"""
"""What makes it small: the machine's settings, not the command."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path / "desk", {"RELAY_CPU": "1"}, plugin=Trm())  # type: ignore[arg-type]
    monkeypatch.chdir(made.folder)
    (made.folder / "config_multi_account.yaml").write_text(TINY)
    games = {
        "sudoku-extreme-1k-aug-1000": ("sudoku", sudoku.read_csv, 11),
        "maze-30x30-hard-1k": ("maze", maze.read_csv, 6),
    }
    for name, (game, read, vocabulary) in games.items():
        inputs, labels = read(DATA / game / "good.csv")
        for part in ("train", "test"):
            write_part(made.folder / "data" / name, part, inputs, labels, vocabulary)
    return made


def settings(desk: Desk, command: str, *more: str, **environ: str) -> dict[str, Any]:
    shown = desk("config", "show", "--json", *shlex.split(command), *more, **environ).json
    return {row["key"]: row["value"] for row in shown["settings"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "run", "task", "metrics"),
    [
        (SUDOKU_MLP, "pretrain_mlp_t_sudoku", "sudoku", {"exact_accuracy", "cell_accuracy", "n"}),
        (SUDOKU_ATT, "pretrain_att_sudoku", "sudoku_att", {"exact_accuracy", "cell_accuracy", "n"}),
        (MAZE, "pretrain_att_maze30x30", "maze", {"exact_accuracy", "cell_accuracy", "n", "optimal_path"}),
    ],
    ids=["sudoku_mlp", "sudoku_att", "maze"],
)
def test_the_command_trains_goes_on_and_is_evaluated(
    desk: Desk, command: str, run: str, task: str, metrics: set[str]
) -> None:
    words = shlex.split(command)
    assert desk("run", *words, "--json", RELAY_TARGET_STEPS="2").json["durable_step"] == 2
    again = desk("run", *words, "--json", RELAY_TARGET_STEPS="3").json
    assert (again["from_step"], again["durable_step"], again["certified"]) == (2, 3, "exact")
    refused = desk("run", *words, "lr=2e-4", code=78, RELAY_TARGET_STEPS="4")
    assert refused.raised(ConfigDiffers).changed == (Changed("lr", "0.0001", "0.0002"),) and refused.advised("fork")
    found = desk("evaluate", *words, "--rows", "2", "--json").json
    assert found["run"] == run and set(found["metrics"]) == metrics
    shown = desk("examples", *words, "--first", "2", "--json").json["puzzles"]
    right = [not one["steps"][-1]["wrong"] for one in shown]
    assert sum(right) / 2 == found["metrics"]["exact_accuracy"] and all(len(one["steps"]) == 2 for one in shown)
    assert settings(desk, command)["task"] == task


def test_the_command_means_what_it_means_to_the_reference(desk: Desk) -> None:
    """reference/trm.md 8: 1,000 groups, 50,000 epochs, batch 768 are 65,100 steps in ten parts of 6,510."""
    about = desk.folder / "data" / "sudoku-extreme-1k-aug-1000" / "train" / "dataset.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"total_groups": 1000}))
    found = settings(desk, SUDOKU_ATT, "global_batch_size=768")
    assert (found["target_steps"], found["checkpoint.every_steps"], found["checkpoint.keep_every"]) == (
        65_100,
        6510,
        6510,
    )
    assert (found["evaluation.every_commits"], found["data.train_rows"], found["data.augment"]) == (1, 1000, False)
    whole = {
        ("epochs=60000", "eval_interval=6000"): 78_120,
        ("global_batch_size=1536",): 32_550,
        ("global_batch_size=4608",): 10_850,
    }
    for words, steps in whole.items():
        more = words if "global_batch_size" in words[0] else (*words, "global_batch_size=768")
        assert settings(desk, SUDOKU_ATT, *more)["target_steps"] == steps
    cosine = settings(desk, SUDOKU_ATT, "global_batch_size=768", "lr_min_ratio=0.1")
    assert cosine["total_steps"] == 65_104
    assert settings(desk, SUDOKU_ATT, "checkpoint_every_eval=False")["checkpoint.keep_every"] == 0
    assert settings(desk, SUDOKU_ATT, RELAY_TARGET_STEPS="7")["target_steps"] == 7


def test_what_is_not_said_is_the_references_default_and_not_our_presets(desk: Desk) -> None:
    """reference/trm.md 13."""
    (desk.folder / "config_multi_account.yaml").write_text("")
    found = settings(desk, "arch=trm data_paths=[data/maze-30x30-hard-1k] epochs=200000 eval_interval=20000")
    expected = {
        "ema": False, "puzzle_emb_lr": 1e-2, "weight_decay": 0.1, "puzzle_emb_weight_decay": 0.1, "batch_size": 768,
        "lr": 1e-4, "lr_warmup_steps": 2000, "arch.L_cycles": 6, "arch.pos_encodings": "rope", "arch.mlp_t": False,
        "arch.hidden_size": 512, "arch.puzzle_emb_ndim": 512, "arch.forward_dtype": "bfloat16", "task": "maze",
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert settings(desk, MAZE, "arch.hidden_size=32")["arch.puzzle_emb_ndim"] == 32


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("epoch=5", 78, "Did you mean epochs?"),
        ("arch.L_cycle=4", 78, "Did you mean arch.L_cycles?"),
        ("eval_interval=7000", 78, "does not divide epochs=50000. The nearest that do: 6250 and 10000"),
        ("eval_interval=60000", 78, "The nearest that do: 50000"),
        ("epochs=1.5", 78, "epochs must be a whole number"),
        ("epochs=1 eval_interval=1 batch_size=99", 78, "fill no batch of 99"),
        ("arch=hrm", 78, "The architecture hrm is not built here. Did you mean arch=trm?"),
        ("arch=tmr", 78, "The architecture tmr is unknown. Did you mean arch=trm?"),
        ("evaluators=[arc@ARC]", 78, "only ARC's data has an evaluator"),
        ("freeze_weights=True", 78, "always trained together"),
        ("arch.no_ACT_continue=False", 78, "the reference itself fails"),
        ("data_paths=[a,b]", 78, "data_paths names 2 folders"),
        ("data_paths=[]", 78, "data_paths is missing"),
        ("data_paths=[nowhere]", 65, "nowhere/train/dataset.json cannot be read"),
        ("data_paths=[data/x-1k-aug-20]", 65, "data/x-1k-aug-20 --num-aug 20"),
        ("checkpoint_every_eval=yes", 78, "must be True or False"),
        ("lr=${oc.env:HOME}", 78, "refers to another value"),
        ("~epoch", 78, "Unknown setting epoch"),
    ],
)
def test_what_cannot_be_is_said_with_what_to_write(desk: Desk, words: str, code: int, message: str) -> None:
    assert message in desk("config", "show", *shlex.split(SUDOKU_MLP), *words.split(), code=code).err


def test_signs_and_single_words_of_the_reference_work_everywhere(desk: Desk) -> None:
    found = settings(desk, "+run_name=mine ++seed=3 global_batch_size=8 ema=True task=sudoku4")
    assert (found["run"], found["seed"], found["batch_size"], found["ema"]) == ("mine", 3, 8, True)
    assert settings(desk, "~batch_size task=sudoku4")["batch_size"] == 64, "the preset's, not the file's"
    assert settings(desk, SUDOKU_MLP, "~evaluators", "~threads")["threads"] == 2
    assert "data_paths=[FOLDER]" in desk("config", "show", "epochs=10", code=78).err


@pytest.mark.slow
def test_a_run_begins_from_load_checkpoint_and_goes_on_with_the_same_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trm.interop.check_torch", lambda version: None)  # the file is our own
    words = shlex.split(SUDOKU_ATT)
    desk("run", *words, RELAY_TARGET_STEPS="1")
    desk("export", *words, "--format", "reference", "--out", "out")
    other = [*words, "run_name=second", "load_checkpoint=out/step_1"]
    begun = desk("run", *other, RELAY_TARGET_STEPS="1")
    assert "step_1" in begun.err
    assert desk("run", *other, "--json", RELAY_TARGET_STEPS="2").json["from_step"] == 1
    refused = desk("run", *words, "load_checkpoint=out/step_1", code=78, RELAY_TARGET_STEPS="3").err
    assert "out/step_1" in refused
    (desk.folder / "out" / "step_1").write_bytes(b"another file")
    assert "out/step_1" in desk("run", *other, code=78, RELAY_TARGET_STEPS="3").err
    (desk.folder / "out" / "step_1").unlink()
    assert desk("run", *other, "--json", RELAY_TARGET_STEPS="3").json["durable_step"] == 3
