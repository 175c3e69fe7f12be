"""`examples`: which rows of which weights, as text, as a document, as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.app.cli import Desk

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    for target in (3, 6):
        made.train(target)
    return made


def test_the_document_names_the_weights_and_holds_every_answer(desk: Desk) -> None:
    found = desk("examples", "--run", "r", "--rows", "7,3-4", "--json").json
    assert found["schema"] == "relay.examples/1" and [one["row"] for one in found["puzzles"]] == [7, 3, 4]
    assert (found["run"], found["step"], found["which"], found["weights"]) == ("r", 6, "newest checkpoint", "averaged")
    seven = found["puzzles"][0]
    assert [one["wrong"] for one in seven["steps"]] == [3, 1, 0] and (seven["solved"], seven["halts_at"]) == (True, 3)
    assert seven["steps"][-1]["answer"] == seven["label"]
    early = desk("examples", "--run", "r", "--step", "3", "--raw", "--json", "--first", "1").json
    assert (early["step"], early["weights"], len(early["puzzles"])) == (3, "raw", 1)
    said = desk("examples", "--run", "r").out
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("Row ")][:2] == ["Row 1", "Row 2"]
    assert "step 6" in said.splitlines()[0] and "averaged" in said.splitlines()[0]


def test_a_file_of_weights_needs_no_run(desk: Desk) -> None:
    (desk.folder / "step_5000").write_bytes(b"seven b")
    found = desk("examples", "--weights", "step_5000", "--json").json
    assert (found["run"], found["step"], found["which"], found["weights"]) == (None, None, "weights only", None)
    for more in (("--raw",), ("--step", "3")):
        assert "--weights" in desk("examples", "--weights", "step_5000", *more, code=2).err


@pytest.mark.slow
def test_a_picture_is_written_beside_the_text(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    said = desk("examples", "--run", "r", "--out", "solved.png")
    assert "Row 1" in said.out and "solved.png: " in said.err
    assert (desk.folder / "solved.png").read_bytes().startswith(b"\x89PNG")
    assert desk("examples", "--run", "r", "--out", "s.svg", "--dark", "--json").json["picture"]["bytes"] > 1000
    refused = desk("examples", "--run", "r", "--out", "solved.gif", code=2).err
    assert ".png" in refused and ".svg" in refused
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "trm-relay[plot]" in desk("examples", "--run", "r", "--out", "solved.png", code=78).err
    desk("examples", "--run", "r")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--rows", "0"), 2, "rows 1 to 100"),
        (("--rows", "101"), 2, "rows 1 to 100"),
        (("--rows", "3,x"), 2, "3,17 or 5-8"),
        (("--rows", "-3"), 2, "3,17 or 5-8"),
        (("--rows", "8-5"), 2, "names no rows"),
        (("--rows", "1-999999999"), 2, "at most 100"),
        (("--split", "train"), 2, "test, valid"),
        (("--step", "4"), 65, "retains 3, 6"),
    ],
)
def test_what_is_not_there_is_refused(desk: Desk, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in desk("examples", "--run", "r", *words, code=code).err
