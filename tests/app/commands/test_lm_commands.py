"""Commands on runs of the language model: the task picks the model, and a run brings its own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lm.config import TOKENIZER_FILE
from lm.data import text
from relay.app.models.lm import Lm
from relay.app.models.registry import MODELS
from relay.app.models.trm import Trm
from relay.core.runs.opening import ConfigDiffers
from relay.core.runs.sources import DataDiffers, DataElsewhere
from relay.core.settings.origins import BadSetting, Fault
from tests.app.cli import Desk

pytestmark = pytest.mark.slow
SMALL = ("arch.width=16", "arch.heads=2", "arch.context=16", "batch_size=4", "threads=1", "data.size_mb=1")
LM = ("task=lm_tiny", *SMALL)
TRM = ("task=sudoku4", "batch_size=4", "data.train_rows=8", "arch.hidden_size=16", "arch.num_heads=2",
       "arch.H_cycles=1", "arch.L_cycles=1", "threads=1")  # fmt: skip
EVALUATED = ("evaluation.every_commits=1", "evaluation.rows=8", "checkpoint.every_steps=20")


def new(folder: Path) -> Desk:
    return Desk(folder, plugin=Trm(), models=MODELS)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A run of the language model, and one of the first model."""
    made = new(tmp_path_factory.mktemp("lm"))
    made.train(40, *LM, "refine.preset=uniform", *EVALUATED)
    made.train(2, *TRM, "evaluation.every_commits=0", run="puzzles")
    return made


def settings(desk: Desk, *words: str) -> dict[str, tuple[object, str]]:
    found = desk("config", "show", "--json", *words).json["settings"]
    return {one["key"]: (one["value"], one["origin"]) for one in found}


def test_every_command_follows_the_runs_own_model(desk: Desk) -> None:
    assert settings(desk, "--run", "r")["refine.weight_base"] == (1.0, "run r")
    assert "arch.H_cycles" in settings(desk, "--run", "puzzles")
    assert "bits per byte" in desk("report", "--run", "r").out
    session = desk.status()["session"]
    assert (session["step"], session["batch"]) == (40, 4) and "lm_tiny" in session["model"]
    found = desk("evaluate", "--run", "r", "--rows", "8", "--steps", "6", "--json").json
    assert {"bpb", "bpb_1", "bpb_5", "unigram_bpb", "uniform_bpb"} <= set(found["metrics"])
    seen = desk("examples", "--run", "r", "--first", "1", "--out", "seen.png", "--json").json
    assert len(seen["continuations"][0]["steps"]) == 4 and (desk.folder / "seen.png").stat().st_size > 1000
    assert "after step 4" in desk("examples", "--run", "r", "--first", "1").out
    metrics = json.loads(next(desk.folder.glob("relay_store/**/r/step_40.e1/manifest.json")).read_text())["metrics"]
    assert metrics["valid/bpb"] < 8 and {"token_loss", "token_loss_1", "objective", "grad_norm"} <= set(metrics)


def test_a_run_is_continued_without_its_task(desk: Desk) -> None:
    desk("run", "--run", "r", "--account", "account_1", "--new-target", "42", "evaluation.every_commits=0")
    assert [link["certified"] for link in desk.status()["links"][1:]] == ["exact"]

    def differing(run: str, *words: str) -> set[str]:
        done = desk("run", "--run", run, "--target-steps", "50", *words, code=78)
        return {one.key for one in done.raised(ConfigDiffers).changed}

    assert differing("r", "refine.preset=extreme") == {"refine.weight_base", "refine.reward", "refine.gradient"}
    assert differing("r", "task=sudoku4") == differing("puzzles", "task=lm_tiny", "refine.steps=2") == {"task"}
    done = desk("run", "--run", "puzzles", "--target-steps", "50", "refine.steps=2", code=78)
    assert done.raised(BadSetting).fault is Fault.UNKNOWN


READING = (
    "status", "status --json", "report", "report --sessions", "report --session last", "next", "plan", "verify",
    "verify --deep", "export", "examples --first 1", "evaluate --rows 2", "config show", "plot --out a.png",
    "dashboard --export a.html", "track --to tensorboard", "gc --dry-run", "gc", "repair", "stop", "unhalt", "prepare",
    "doctor", "fork --to forked",
)  # fmt: skip
"""Commands that take settings for a run that exists, with what else they need."""


@pytest.mark.parametrize("line", READING)
def test_a_setting_without_a_task_is_one_of_the_runs(desk: Desk, line: str) -> None:
    """Never of the default task: one that only the run's task has, one that it lacks, a value that it cannot have."""
    other = desk(*line.split(), "--run", "r", "arch.H_cycles=2", code=78)
    assert "arch.H_cycles" in other.out + other.err and "refine.steps" not in other.out + other.err
    wrong = desk(*line.split(), "--run", "r", "refine.steps=99", code=78)
    assert "refine.steps" in wrong.out + wrong.err
    assert not desk(*line.split(), "--run", "r", "refine.steps=4").errors


def test_a_setting_without_a_task_and_without_a_run_is_one_of_the_default_task(tmp_path: Path) -> None:
    desk = new(tmp_path)
    for words in (("status",), ("report",), ("config", "show"), ("run",), ("init",), ("prepare",)):
        assert desk(*words, "refine.steps=4", code=78).raised(BadSetting).fault is Fault.UNKNOWN
    assert not (tmp_path / "relay_store").exists()


def test_export_and_its_card_build_the_same_network(desk: Desk) -> None:
    files = [Path(name) for name in desk("export", "--run", "r", "--format", "hub", "--json").json["files"]]
    assert {path.name for path in files} == {"README.md", "config.json", "model.safetensors"}
    assert len({path.stat().st_mode for path in files}) == 1, "the weights are as readable as the rest"
    card = files[-1].read_text()
    assert "refine.weight_base=1" in card and "valid/bpb" not in card
    words = ["arch.width=16", "arch.heads=2", "arch.context=16", "data.size_mb=1", "threads=1"]
    weights = ("--weights", str(files[0]))
    found = desk("evaluate", *weights, "--rows", "8", "task=lm_tiny", *words, "--json").json
    own = desk("evaluate", "--run", "r", "--rows", "8", "--json").json
    assert found["metrics"]["bpb"] == pytest.approx(own["metrics"]["bpb"])
    assert desk("export", "--run", "r", "--format", "reference", code=78)


def test_a_shorthand_gives_the_flags_and_is_not_pinned(desk: Desk) -> None:
    words = ("task=lm_tiny", "--run", "none")
    shown = settings(desk, *words, "refine.preset=moderate")
    assert shown["refine.reward"] == (0.5, "command line: refine.preset=moderate") and "refine.preset" not in shown
    done = desk("config", "show", *words, "refine.preset=moderate", "refine.reward=1", code=78)
    assert "refine.reward=0.5" in done.raised(BadSetting).args[0]
    assert desk("config", "show", *words, "refine.preset=moderat", code=78).raised(BadSetting).near == "moderate"
    assert settings(desk, *words, "refine.preset=plain", "refine.steps=1")["refine.loops"][0] == 0


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["task=lm_tiny", "refine.steps=0"], ["refine.steps"]),
        (["task=lm_tiny", "refine.weight_base=no"], ["refine.weight_base", "last"]),
        (["task=lm_tiny", "arch.heads=3"], ["arch", "heads"]),
        (["task=lm_tiny", "data.vocab_size=300"], ["data", "tokenizer=generated"]),
        (["task=lm_tiny", "data.tokenizer=generated"], ["257"]),
        (["task=lm_tinny"], ["task=lm_tiny", "lm_extreme"]),
        (["task=lm_tiny", "batch=4"], ["batch_size"]),
        (["refine.steps=2"], ["refine.steps", "sudoku4"]),
    ],
)
def test_impossible_settings(desk: Desk, words: list[str], facts: list[str]) -> None:
    done = desk("run", "--run", "never", "--account", "account_1", *words, code=78)
    assert all(fact in done.err for fact in facts), done.err


def test_texts_that_cannot_be_trained_on(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    never = ("run", "--run", "never", "--account", "account_1")
    assert "gone.txt" in desk(*never, *LM, f"data.train={tmp_path / 'gone.txt'}", code=65).err
    assert "document" in desk(*never, *LM, f"data.train={tmp_path / 'a.txt'}", code=65).err
    assert "lm_fast" in desk(*never, "--cpu", "task=lm_fast", "data.train=generated", code=78).err


FEW = b"".join(b"Line %d.\n%s" % (number, b"\n" * (number % 200 == 0)) for number in range(900))


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("empty.txt", b"", ["empty"]),
        ("broken.txt", b"fine\nbad \xff here\n", ["line 2"]),
        ("broken.jsonl", b'"fine"\n{"text": "bad\n', ["line 2"]),
        ("few.txt", FEW, ["batch", "arch.context"]),
        ("large.txt", None, ["1,000 GB"]),
    ],
)
def test_each_unusable_text_ends_with_65_and_its_place(
    desk: Desk, tmp_path: Path, name: str, content: bytes | None, facts: list[str]
) -> None:
    """`None`: a terabyte, which nothing reads."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(10**12) if content is None else file.write(content)
    words = (*LM, f"data.train={tmp_path / name}", "batch_size=900")
    for command in (("prepare",), ("run", "--run", "never", "--account", "account_1")):
        done = desk(*command, *words, code=65)
        assert all(fact in done.err for fact in (*facts, "" if content == FEW else name)), done.err


def test_a_fork_takes_another_objective_but_no_other_shape(desk: Desk) -> None:
    desk("fork", "--run", "r", "--to", "second", "refine.preset=extreme", "lr_matrix=0.005")
    pinned = settings(desk, "--run", "second")
    assert pinned["refine.weight_base"][0] == 10.0 and pinned["lr_matrix"][0] == 0.005
    assert pinned["refine.steps"] == (4, "run second")
    desk("run", "--run", "second", "--account", "account_1", "--new-target", "44", "evaluation.every_commits=0")
    refused = desk("fork", "--run", "r", "--to", "wider", "arch.width=32", code=78).err
    assert "blocks.0.q" in refused and "(32, 32)" in refused
    bpe = ("data.tokenizer=generated", "data.vocab_size=300")
    assert "embed" in desk("fork", "--run", "r", "--to", "bpe", *bpe, code=78).err
    desk("fork", "--run", "r", "--to", "hops", "data.text=hops", "arch.context=32")
    assert settings(desk, "--run", "hops")["data.text"][0] == "hops"


def test_the_guides_criteria_stand_before_its_second_phase(desk: Desk) -> None:
    """Of a run whose objective rewards steps, with its own number of steps; others have none."""
    desk("fork", "--run", "r", "--to", "phase1", "refine.preset=aggressive")
    desk("run", "--run", "phase1", "--account", "account_1", "--new-target", "80", "evaluation.every_commits=0")

    def found(run: str, *words: str) -> list[bool]:
        document = desk("evaluate", "--run", run, "--rows", "8", "--json", *words).json
        return [one["met"] for one in (document.get("provenance") or {}).get("criteria", [])]

    assert len(found("phase1")) == 4 and found("phase1", "--steps", "2") == found("r") == []
    said = desk("evaluate", "--run", "phase1", "--rows", "8").out
    assert len([line for line in said.splitlines() if line.startswith(("met: ", "NOT met: "))]) == 4
    assert "bpb" in said and "plain model" in said


def test_horizons_fork_from_one_constant_part(desk: Desk) -> None:
    """Each falls to its own end from the same state, which the constant part's run shares."""
    made = ("run", "--account", "account_1", "evaluation.every_commits=0")
    for total in ("60", "80"):
        desk("fork", "--run", "r", "--to", f"to{total}", "--from-step", "40", "decay_share=0.5", f"total_steps={total}")
        assert settings(desk, "--run", f"to{total}")["total_steps"][0] == int(total)
        desk(*made, "--run", f"to{total}", "--target-steps", total)
        (last,) = desk.folder.glob(f"relay_store/**/to{total}/step_{total}.e1/manifest.json")
        rate = settings(desk, "--run", "r")["lr_matrix"][0]
        assert json.loads(last.read_text())["metrics"]["lr"] == pytest.approx(float(str(rate)) * 2 / int(total))


def test_prepare_says_what_the_text_is(desk: Desk) -> None:
    lines = desk("prepare", *LM, "--run", "none", "--json").json["lines"]
    assert any("documents" in line and "bytes a token" in line for line in lines) and "sha256:" in lines[-1]
    assert "run r" in desk("prepare", "--run", "r").out
    assert desk("prepare", *LM, "--run", "none", "--folder", "x", code=78)


def test_the_file_of_one_model_does_not_reach_into_another(tmp_path: Path) -> None:
    desk = new(tmp_path)
    (tmp_path / "config_multi_account.yaml").write_text("batch_size: 9\narch:\n  H_cycles: 2\nrun: own\n")
    shown = settings(desk, "task=lm_tiny")
    assert shown["batch_size"] == (16, "preset lm_tiny") and shown["run"][0] == "own"
    assert settings(desk)["batch_size"][0] == 9
    (tmp_path / "config_multi_account.yaml").write_text("task: lm_tiny\nbatch_size: 9\nrefine:\n  preset: plain\n")
    assert settings(desk)["refine.steps"][0] == 1 and settings(desk, "task=sudoku4")["batch_size"][0] == 64
    (tmp_path / "config_multi_account.yaml").write_text("refine:\n  steps: 2\n")
    assert desk("config", "show", code=78).raised(BadSetting).fault is Fault.UNKNOWN


def test_what_is_not_here_is_as_in_the_tasks_preset() -> None:
    pinned = {"task": "lm_fast", "data": {"tokenizer": "sha256:ab", "odd": "sha256:cd", "vocab_size": 300}}
    base = Lm().base(pinned, {"data.train": "text.txt"})
    assert base == {
        "task": "lm_fast", "data.tokenizer": "generated", "data.vocab_size": 300, "data.train": "text.txt",
    }  # fmt: skip


def test_a_friend_needs_the_same_text(tmp_path: Path) -> None:
    first, second = new(tmp_path / "first"), new(tmp_path / "second")
    path, other = tmp_path / "text.txt", tmp_path / "other.txt"
    path.write_text("".join(f"Line {number} of a text.\n" + "\n" * (number % 50 == 0) for number in range(2000)))
    other.write_text(path.read_text().replace("text", "book"))
    first.train(2, *LM, f"data.train={path}", "evaluation.every_commits=0")
    second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
    more = ("run", "--run", "r", "--account", "account_1", "--target-steps", "3", "evaluation.every_commits=0")
    missing = second(*more, code=78).raised(DataElsewhere).missing["data.train"]
    assert missing is not None and (missing.kind, missing.name) == ("file", "text.txt") and missing.rows > 3
    differs = second(*more, f"data.train={other}", code=78).raised(ConfigDiffers)
    assert [one.key for one in differs.changed] == ["data.train"]
    second(*more, f"data.train={path}")
    assert [link["certified"] for link in first.status()["links"][1:]] == ["exact"]


def test_the_command_that_a_fork_prints_trains_it_to_its_end(tmp_path: Path) -> None:
    """The text of the parent is known here, and the length of a falling rate is the target."""
    desk, path = new(tmp_path), tmp_path / "text.txt"
    path.write_text("".join(f"Line {number} of a text.\n" + "\n" * (number % 50 == 0) for number in range(2000)))
    desk.train(2, *LM, f"data.train={path}", "evaluation.every_commits=0")
    words = ("refine.preset=extreme", "lr_matrix=0.005", "decay_share=0.5", "total_steps=6")
    printed = shlex.split(desk("fork", "--run", "r", "--to", "second", *words).out.split(": ", 1)[1])
    assert set(words) <= set(printed)
    done = printed[printed.index("run") :]
    desk(*done, "--account", "account_1", "evaluation.every_commits=0")
    status = desk.status("second")
    assert (status["step"], status["target_steps"]) == (6, 6)


@pytest.mark.parametrize(
    ("task", "to_zero", "above"),
    [(LM, "decay_share=0.5", "decay_share=0"), (TRM, "lr_min_ratio=0", "lr_min_ratio=0.1")],
    ids=["lm", "trm"],
)
def test_a_target_beyond_the_schedule_is_warned_of_once(
    tmp_path: Path, task: tuple[str, ...], to_zero: str, above: str
) -> None:
    """The rates are 0 there: of a new run, and of one whose target was raised."""
    desk, off = new(tmp_path / "desk"), ("evaluation.every_commits=0", "batch_size=2")
    for name, end, target, rate, warned in (
        ("short", 2, 3, to_zero, True),
        ("raised", 3, 3, to_zero, False),
        ("raised", 3, 4, to_zero, True),
        ("positive", 2, 3, above, False),
    ):
        said = desk("run", *task, *off, rate, f"total_steps={end}", f"run={name}", f"target_steps={target}")
        found = [line for line in said.err.splitlines() if line.startswith("RATE")]
        assert len(found) == warned, said.err
        assert not warned or str(end) in found[0]
        assert len(said.advised("fork")) == warned


@pytest.mark.parametrize(("task", "falling"), [(LM, "decay_share=0.5"), (TRM, "lr_min_ratio=0.5")], ids=["lm", "trm"])
def test_the_same_command_again_may_name_a_length_that_the_run_does_not_pin(
    tmp_path: Path, task: tuple[str, ...], falling: str
) -> None:
    """With constant rates the length decides nothing; with falling ones another length is refused."""
    desk = new(tmp_path)
    words = (*task, "total_steps=9", "evaluation.every_commits=0")
    desk.train(2, *words)
    desk.train(3, *words)
    desk.train(2, *words, falling, run="falls")
    desk.train(3, *words, falling, run="falls")
    more = ("run", "--run", "falls", "--account", "account_1", "--target-steps", "4", "total_steps=8")
    assert [one.key for one in desk(*more, code=78).raised(ConfigDiffers).changed] == ["total_steps"]


def test_a_machine_that_trains_another_tokenizer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = new(tmp_path / "first")
    first.train(2, *LM, "data.tokenizer=generated", "data.vocab_size=300", "evaluation.every_commits=0")
    first("export", "--run", "r")
    assert (first.folder / "export" / "step_2" / TOKENIZER_FILE).is_file()
    second, real = new(tmp_path / "second"), text.trained
    second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
    monkeypatch.setattr(text, "trained", lambda texts, size: real([one.upper() for one in texts], size))
    done = second("run", "--run", "r", "--account", "account_1", "--target-steps", "3", code=78)
    assert "data.tokenizer" in done.raised(DataDiffers).missing


def test_a_friend_needs_the_same_tokenizer(tmp_path: Path) -> None:
    """Its file is named, for a task whose own tokens are bytes, too."""
    first, second = new(tmp_path / "first"), new(tmp_path / "second")
    path = tmp_path / TOKENIZER_FILE
    path.write_bytes(text.trained(text.generated("stories", 30_000), 300))
    first.train(2, *LM, f"data.tokenizer={path}", "data.vocab_size=300", "evaluation.every_commits=0")
    second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
    more = ("run", "--run", "r", "--account", "account_1", "--target-steps", "3", "evaluation.every_commits=0")
    missing = second(*more, code=78).raised(DataElsewhere).missing["data.tokenizer"]
    assert missing is not None and (missing.kind, missing.name) == ("file", TOKENIZER_FILE)
    assert settings(second, "--run", "r")["data.vocab_size"][0] == 300
    second(*more, f"data.tokenizer={path}")
    assert [link["certified"] for link in first.status()["links"][1:]] == ["exact"]


@pytest.mark.parametrize("kind", ["generated", "file"])
def test_a_run_is_evaluated_without_its_text_by_the_tokenizer_of_its_checkpoint(tmp_path: Path, kind: str) -> None:
    """Another text would train another tokenizer. The text and the tokenizer's file are on the first machine alone."""
    first, second = new(tmp_path / "first"), new(tmp_path / "second")
    own, other = first.folder / "text.txt", second.folder / "other.txt"
    own.write_text("".join(f"Line {number} of a text.\n" + "\n" * (number % 50 == 0) for number in range(2000)))
    other.write_text(own.read_text().replace("text", "book"))
    tokenizer = first.folder / TOKENIZER_FILE
    tokenizer.write_bytes(text.trained(text.generated("stories", 30_000), 300))
    named = str(tokenizer) if kind == "file" else "generated"
    words = (f"data.train={own}", f"data.tokenizer={named}", "data.vocab_size=300", "evaluation.every_commits=0")
    first.train(2, *LM, *words)
    second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
    for path in (own, tokenizer):
        path.rename(path.with_name("away"))
    evaluate = ("evaluate", "--run", "r", "--rows", "4")
    said = second(*evaluate, "--json")
    assert said.json["metrics"]["n"] == 4 and own.name in said.err and TOKENIZER_FILE not in said.err
    assert second("examples", "--run", "r", "--first", "1", "--json").json["continuations"]
    assert second("verify", "--run", "r", "--deep", "--json").json["ok"]
    named = second(*evaluate, f"data.train={other}", "--json")
    assert named.json["metrics"]["n"] == 4 and own.name not in named.err
    foreign = tmp_path / "foreign.json"
    foreign.write_bytes(text.trained(text.generated("hops", 30_000), 300))
    assert TOKENIZER_FILE in second(*evaluate, f"data.tokenizer={foreign}", code=65).err


PROBE = """
import sys
from relay.app import cli
from relay.app.cli import app
from typer.testing import CliRunner
from relay.app.commands.common import App
from relay.app.models.registry import MODELS, default_plugin
for words in {commands!r}:
    done = CliRunner().invoke(app, words, obj=App(default_plugin(), MODELS))
    assert done.exit_code == 0, (words, done.output, done.stderr)
print(sorted(set(sys.modules) & {{"torch", "lm", "trm.workload"}}))
"""


def test_reports_import_no_torch_and_the_first_model_loads_no_other(desk: Desk) -> None:
    """One process each, because nothing unloads a module."""

    def loaded(*commands: list[str]) -> str:
        environ = {"HOME": str(desk.folder), "RELAY_EPHEMERAL": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", PROBE.format(commands=list(commands))]
        done = subprocess.run(words, cwd=desk.folder, env=environ, text=True, capture_output=True, check=True)
        return done.stdout.splitlines()[-1]

    assert loaded(["report", "--run", "r"], ["status", "--run", "r", "--json"]) == "['lm']"
    session = ["run", "--run", "puzzles", "--account", "account_1", "--new-target", "3", "evaluation.every_commits=0"]
    assert loaded(["report", "--run", "puzzles"], session) == "['torch', 'trm.workload']"


ROOT = Path(__file__).parents[3]
