"""A count of one has its noun in the singular, in what commands print about the smallest run and the smallest data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from relay.app.messages.wording import counted
from tests.app.cli import Desk
from tests.app.models.test_contract import MODELS
from tests.trm.data.arc import files
from trm.data.arc import generate

PLURAL = re.compile(r"(?<![\d,./])1 (?:[a-z]+ )?(?!\w*(?:ss|us|is|as|ms)\b)[a-z]+s\b(?!=)")
"""'1 rows' and '1 more rows', but not '1 pass' or '1 is'."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path / "desk", {"RELAY_CPU": "1"}, MODELS.of_task("sudoku4"), models=MODELS)  # type: ignore[arg-type]
    monkeypatch.chdir(made.folder)
    return made


def test_the_words() -> None:
    assert [counted(number, "pass", "passes") for number in (0, 1, 2)] == ["0 passes", "1 pass", "2 passes"]
    assert counted(1000, "row") == "1,000 rows"
    assert PLURAL.findall("1 rows, 11 rows, 0.1 tasks, 1 more accounts, 1 pass, 1 row") == ["1 rows", "1 more accounts"]


def test_text_of_one_document_a_part(desk: Desk) -> None:
    (desk.folder / "a.jsonl").write_text("\n".join(json.dumps("word " * 4) for _ in range(3)))
    text = ("task=lm_tiny", "data.train=a.jsonl", "arch.context=8", "batch_size=1")
    said = desk("prepare", *text)
    assert said.out.count("1 document,") == 3 and not PLURAL.findall(said.out + said.err)
    (desk.folder / "a.jsonl").write_text(json.dumps("a" * 40))
    assert "1 document," in desk("prepare", *text, code=65).err


@pytest.mark.slow
def test_arc_of_one_task(desk: Desk) -> None:
    path = str(files.kaggle(desk.folder / "tasks", generate.TEST, files.tasks()[generate.TEST][:1]))
    subset = (f"data.subsets=[{generate.TEST}]", f"data.test_set={generate.TEST}")
    data = ("task=arc1", "data.source=tasks", *subset, "data.num_aug=0", "data.canvas=12", "data.held_out=0")
    arch = ("hidden_size=16", "num_heads=2", "puzzle_emb_ndim=16", "puzzle_emb_len=1", "halt_max_steps=1")
    words = (*data, *(f"arch.{one}" for one in arch), "batch_size=1", "target_steps=1", "run=r")
    lines = {word: desk(word, *words) for word in ("prepare", "run", "evaluate", "doctor")}
    lines["solve"] = desk("arc", "solve", "--tasks", path, "--variants", "1", *words)
    lines["check"] = desk("arc", "check", "submission.json", "--tasks", path)
    for said in lines.values():
        assert not PLURAL.findall(said.out + said.err), said
    assert "of 1 task" in lines["prepare"].out and "1 task," in lines["check"].out


def test_a_run_of_one_step_by_one_account(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    run = ("run", "run=r", "target_steps=1", "batch_size=1")
    lines = [desk(*run), desk(*run), desk("prepare"), desk("gc", "--run", "r")]
    lines += [desk(word, "--run", "r") for word in ("status", "report", "next", "plan", "verify", "doctor", "examples")]
    lines += [desk("evaluate", "run=r", "--rows", "1"), desk("accounts", "list"), desk("report", "run=r", "--sessions")]
    for said in lines:
        assert not PLURAL.findall(said.out + said.err), said
