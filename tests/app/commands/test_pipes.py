"""A pipe, or a link that leads to no file, in place of a user's file: refused and named, unless a shell opened the pipe
and it is read once."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from relay.core.settings.config import FILE_NAME
from storage.regular import is_there, regular
from tests.app.cli import Desk
from tests.app.models.test_contract import MODELS
from tests.trm.data.arc import files
from trm.data.arc import generate

ARC1 = ("task=arc1", f"data.subsets=[{generate.TEST}]", f"data.test_set={generate.TEST}")
TASKS = f"solved/arc-agi_{generate.TEST}_challenges.json"
SOLUTIONS = TASKS.replace("challenges", "solutions")
PIPES = ("p", "p.txt", "p.jsonl", "folder/task.json", f"kaggle/arc-agi_{generate.TEST}_challenges.json")
PARTS = ("built/train/dataset.json", "arrays/train/all__puzzle_identifiers.npy")
ABOUT = {
    "pad_id": 0, "ignore_label_id": 0, "blank_identifier_id": 0, "vocab_size": 11, "seq_len": 81, "sets": ["all"],
    "num_puzzle_identifiers": 1, "total_groups": 1, "mean_puzzle_examples": 1, "total_puzzles": 1,
}  # fmt: skip
WORDS = [
    (("config", "show", "--config", "p"), 78),
    (("run", "--config", "p"), 78),
    (("cloud", "list", "--prices", "p"), 78),
    (("cloud", "prices", "--catalog", "p", "--source", "a" * 40, "--date", "unknown", "--to", "x.yaml"), 78),
    (("accounts", "quota", "a", "--json-file", "p"), 78),
    (("study", "check", "p"), 78),
    (("login", "drive", "--client", "p"), 78),
    (("arc", "check", "p", "--tasks", TASKS), 65),
    (("arc", "check", TASKS, "--tasks", "p"), 65),
    (("arc", "score", "p", "--solutions", SOLUTIONS), 65),
    (("arc", "score", TASKS, "--solutions", "p"), 65),
    (("arc", "solve", "--tasks", "p", "--weights", "w"), 65),
    (("arc", "solve", "--tasks", "folder", "--weights", "w"), 65),
    (("arc", "solve", "--tasks", TASKS, "--weights", "p"), 65),
    (("prepare", *ARC1, "data.source=p"), 65),
    (("prepare", *ARC1, "data.source=kaggle"), 65),
    (("prepare", "task=arc1", "data.train=built"), 65),
    (("prepare", "task=sudoku", "data.train=p", "data.test=p"), 65),
    (("prepare", "task=sudoku", "data.train=built", "data.test=built"), 65),
    (("prepare", "task=sudoku", "data.train=arrays", "data.test=arrays"), 65),
    (("prepare", "task=lm_tiny", "data.train=p.txt"), 65),
    (("prepare", "task=lm_tiny", "data.valid=p.jsonl"), 65),
    (("prepare", "task=lm_tiny", "data.tokenizer=p", "data.vocab_size=300"), 65),
    (("evaluate", "task=sudoku4", "--weights", "p"), 65),
    (("import", "p", "task=lm_tiny"), 65),
]


GONE = "../blobs/5f3c"
"""Where a link leads."""
FACTS = {"pipe": ("",), "gone": (GONE, os.strerror(errno.ENOENT)), "loop": (os.strerror(errno.ELOOP),)}
"""The reason in the message, one of these: the readers of `arc`, which are used alone too, say what the system says."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", FACTS)
@pytest.mark.parametrize(("words", "code"), WORDS, ids=["_".join(words) for words, _ in WORDS])
def test_a_place_without_a_file_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, kind: str
) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_CPU": "1"}, MODELS.of_task("sudoku4"), models=MODELS)  # type: ignore[arg-type]
    monkeypatch.chdir(desk.folder)
    files.kaggle(desk.folder / "solved", generate.TEST, files.tasks()[generate.TEST])
    for path in (*PIPES, *PARTS):
        (desk.folder / path).parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(desk.folder / path)
        else:
            (desk.folder / path).symlink_to(GONE if kind == "gone" else Path(path).name)
    (desk.folder / "arrays" / "train" / "dataset.json").write_text(json.dumps(ABOUT))
    said = desk(*words, code=code)
    assert any(re.search(rf"\b{re.escape(Path(path).name)}\b", said.err + said.out) for path in (*PIPES, *PARTS))
    assert any(fact in said.err + said.out for fact in FACTS[kind])


@pytest.mark.parametrize("kind", ["gone", "loop"])
def test_the_usual_configuration_is_read_also_where_it_is_a_link_to_nothing(tmp_path: Path, kind: str) -> None:
    """Its disk may be missing: no session begins with other settings."""
    desk = Desk(tmp_path / "desk")
    (desk.folder / FILE_NAME).symlink_to(GONE if kind == "gone" else FILE_NAME)
    assert FILE_NAME in desk("config", "show", code=78).err


def test_a_file_a_folder_and_the_null_device_may_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "file", Path(os.devnull)):
        assert regular(path) == path
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(OSError, match=re.escape(str(path))):
            regular(path)


def test_a_link_to_a_file_is_there_and_one_to_anything_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    links = {name: tmp_path / f"to_{name}" for name in ("file", "folder", "pipe", "none", "to_loop")}
    for name, link in links.items():
        link.symlink_to(name if name != "to_loop" else link.name)
    assert is_there(tmp_path / "file") and is_there(links["file"])
    assert not any(map(is_there, (tmp_path / "none", tmp_path / "folder", tmp_path / "pipe", links["folder"])))
    for name in ("pipe", "none", "to_loop"):
        with pytest.raises(OSError, match=re.escape(str(links[name]))):
            is_there(links[name])


def test_a_pipe_that_a_shell_opened_is_taken_where_it_is_read_once(tmp_path: Path) -> None:
    """As in `cloud list --prices <(...)`. A configuration is read several times."""
    desk = Desk(tmp_path / "desk")
    prices, usual = desk("cloud", "prices").out, desk("cloud", "list").out
    reader, writer = os.pipe()
    with os.fdopen(reader):
        with os.fdopen(writer, "w") as file:
            file.write(prices)
        place = f"/dev/fd/{reader}"
        assert place in desk("config", "show", "--config", place, code=78).err
        assert desk("cloud", "list", "--prices", place).out == usual
