"""A run's text: split by document, as tokens, by the same bytes everywhere; rows as a function of (seed, step)."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm import presets
from lm.config import TOKENIZER_FILE, Data, LmConfig
from lm.data import hub, text
from lm.data.generate import ANSWER, generated, landed
from lm.data.rows import Rows
from lm.data.text import Text, load_text
from lm.data.tokenizer import BOS, Bpe, Bytes, trained
from lm.model import IGNORE
from relay.torch.faults import DataError, TaskError
from tests.facts import raising
from tests.lm.small import small


def load(root: Path, **data: object) -> Text:
    return load_text(small(**data), root)


def write(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return str(path)


@pytest.fixture
def prose(tmp_path: Path) -> str:
    return write(
        tmp_path / "prose.jsonl", [one for one, _ in zip(generated("stories", 10**6), range(200), strict=False)]
    )


STORIES = "6133835a52730dec302048d976bf5049c91f02ea033ec764b88faec3b7e8b3e8"
HOPS = "bea9f2dcd4056e58344464a4c9d80d20610c450240591bb2b6f0b529a284a5e6"
"""Runs have pinned the content of a megabyte: it never changes."""


def test_generated_text_is_the_same_everywhere(tmp_path: Path) -> None:
    """Its content is pinned; what was made before is taken."""
    first = load(tmp_path, size_mb=1)
    pinned = first.pinned(small(size_mb=1))
    assert pinned == {"train": f"sha256:{STORIES}"}
    (folder,) = (tmp_path / "lm").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = load(tmp_path, size_mb=1)
    assert again.pinned(small()) == pinned
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "train.tokens").write_bytes(b"cut")
    assert load(tmp_path, size_mb=1).pinned(small()) == pinned


def test_splits_are_by_document_and_share_none(tmp_path: Path, prose: str) -> None:
    found = load(tmp_path, train=prose)
    texts = {name: set(bytes(rows.tokens).split(b"\0")[1:]) for name, rows in found.parts.items()}
    assert sum(map(len, texts.values())) == len(set().union(*texts.values())) == 200
    size = {name: sum(map(len, own)) for name, own in texts.items()}
    assert 0.04 < size["valid"] / sum(size.values()) < 0.08 and 0.04 < size["test"] / sum(size.values()) < 0.08


def test_own_parts_are_taken_whole_and_pinned_by_themselves(tmp_path: Path, prose: str) -> None:
    other = write(tmp_path / "other.jsonl", ["another text of some length " * 9])
    config = small(train=prose, valid=other, test=other)
    found = load_text(config, tmp_path)
    assert found.extents["train"].documents == 200 and found.extents["valid"].documents == 1
    pinned = found.pinned(config)
    assert pinned["valid"] == pinned["test"] != pinned["train"]
    assert load_text(small(train=prose, test=other), tmp_path).pinned(small(test=other))["train"] != pinned["train"]


def test_windows_of_an_epoch_show_each_token_once() -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    rows = Rows(tokens, 8, bos=0)
    seen = list[int]()
    for step in range(rows.windows // 4):
        batch = rows.batch_at(3, step, 4)
        assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
        seen += batch.targets.flatten().tolist()
    assert len(seen) == len(set(seen)) > 970
    assert sorted(seen) == list(range(min(seen), max(seen) + 1))


def test_a_row_is_a_function_of_seed_and_step() -> None:
    tokens = np.arange(5000, dtype=np.uint16)
    one, two = Rows(tokens, 8, bos=0), Rows(tokens, 8, bos=0)
    places = [(seed, step) for seed in range(3) for step in range(0, 400, 37)]
    before = [one.batch_at(*place, 5).inputs for place in places]
    after = [two.batch_at(*place, 5).inputs for place in reversed(places)]
    assert all(torch.equal(a, b) for a, b in zip(before, reversed(after), strict=True))
    assert len({tuple(found.flatten().tolist()) for found in before}) == len(places)


@pytest.mark.slow
def test_hops_are_followed_and_only_whole_answers_are_scored(tmp_path: Path) -> None:
    for document in list(generated("hops", 20_000)):
        letters, hops, answer = re.fullmatch(r"([abcd]{24})\|([1-4])=([abcd])", document).groups()  # type: ignore[union-attr]
        assert landed(letters, int(hops)) == answer
    assert landed("cabcab", 2) == "a" and landed("abc", 1) is None
    config = small(text="hops", size_mb=1, context=64)
    found = load_text(config, tmp_path)
    assert found.pinned(config) == {"train": f"sha256:{HOPS}"}
    batch = found.train.batch_at(0, 0, 4)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        scored = [place for place, target in enumerate(targets) if target != IGNORE]
        whole = bytes(inputs).index(0)
        wanted = [place for place, token in enumerate(inputs) if token == ord(ANSWER) and place > whole]
        assert scored == wanted and len(scored) >= 1


def test_bpe_is_trained_once_for_all_and_gives_the_text_back(tmp_path: Path, prose: str) -> None:
    found = load(tmp_path, train=prose, tokenizer="generated", vocab_size=400)
    tokenizer = found.tokenizer
    assert tokenizer.vocab_size == 400 and found.pinned(small())["tokenizer"] == f"sha256:{found.tokenizer_hash}"
    odd = f"Zoë's 1234 {BOS} x\n\n"
    (tokens,) = tokenizer.encoded([odd])
    assert tokenizer.decoded(tokens.tolist()) == odd and tokenizer.bos not in tokens
    assert int(tokenizer.lengths[tokens].sum()) == len(odd.encode()) and tokenizer.lengths[tokenizer.bos] == 0
    texts = list(generated("stories", 50_000))
    assert trained(texts, 300) == trained(texts, 300)
    (kept,) = tmp_path.glob(f"lm/*/{TOKENIZER_FILE}")
    by_path = load(tmp_path, train=prose, tokenizer=str(kept), vocab_size=400)
    assert by_path.pinned(small()) == found.pinned(small())
    assert float(found.extents["train"].bytes / len(found.train.tokens)) > 1.8


def test_letter_counts_leave_out_what_stands_between_documents() -> None:
    rows = Rows(np.frombuffer(b"\0aab\0b", dtype=np.uint8), 2, bos=0)
    counts = rows.counts(256)
    assert (int(counts[0]), int(counts[ord("a")]), int(counts[ord("b")]), int(counts.sum())) == (0, 2, 2, 4)


def test_impossible_texts(tmp_path: Path, prose: str) -> None:
    single = write(tmp_path / "single.jsonl", ["only one " * 100])
    with raising(DataError, 1, "data.valid"):
        load(tmp_path, train=single)
    with raising(DataError, "zero byte"):
        load(tmp_path, train=write(tmp_path / "zero.jsonl", ["a\0b" * 9, "c" * 99, "d" * 99]))
    with raising(DataError, "batch_size", 900):
        load_text(small(train=prose, batch_size=900, context=512), tmp_path)
    assert load_text(small(train=prose, batch_size=900, context=512), tmp_path, fetching=None).parts["test"].size
    with raising(DataError, "row", 4096):
        load(tmp_path, train=prose, valid=single, context=4096, test=prose)
    few = write(tmp_path / "few.jsonl", ["ab " * 9, "abc " * 9, "abcd " * 9])
    with raising(DataError, "data.vocab_size"):
        load(tmp_path, train=few, tokenizer="generated", vocab_size=4000)
    with raising(TaskError, "lm_fast", "data.train=hub"):
        load_text(presets.preset("lm_fast").model_copy(update={"data": Data()}), tmp_path)
    (tmp_path / "t.json").write_text("{}")
    with raising(DataError, TOKENIZER_FILE):
        load(tmp_path, train=prose, tokenizer=str(tmp_path / "t.json"), vocab_size=300)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        ({"tokenizer": "generated"}, "257"),
        ({"tokenizer": "generated", "vocab_size": 100}, "256"),
        ({"vocab_size": 4096}, "tokenizer=generated"),
        ({"text": "hops", "train": "a.txt"}, "train=generated"),
    ],
)
def test_impossible_settings(data: dict[str, object], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        Data.model_validate(data)


def test_bytes_say_what_they_are() -> None:
    made = Bytes()
    assert made.decoded([*"é".encode(), 0, 255]) == "é¶�" and made.lengths.sum() == 255


def test_no_other_file_is_taken_for_a_tokenizer() -> None:
    made = json.loads(trained(generated("stories", 30_000), 300))
    made["added_tokens"], made["model"]["vocab"] = (
        [],
        {name: index for name, index in made["model"]["vocab"].items() if name != BOS},
    )
    with raising(DataError, BOS):
        Bpe(json.dumps(made).encode())


def test_a_tokenizer_that_does_not_fit_is_named_before_any_text_is_read(tmp_path: Path) -> None:
    """A text of gigabytes would become tokens first, and again after the setting was mended."""
    absent = str(tmp_path / "text.jsonl")
    good, odd, gone = (tmp_path / name for name in ("good.json", "odd.json", "gone.json"))
    good.write_bytes(trained(generated("stories", 30_000), 300))
    odd.write_text("no tokenizer")
    with raising(TaskError, "data.vocab_size=300"):
        load(tmp_path, train=absent, tokenizer=str(good), vocab_size=400)
    for path, fact in ((odd, "read"), (gone, "does not exist"), (tmp_path, "is not a file")):
        with raising(DataError, path, fact):
            load(tmp_path, train=absent, tokenizer=str(path), vocab_size=300)


def test_parts_that_a_killed_process_left_are_removed(tmp_path: Path, prose: str) -> None:
    """A killed process leaves them, each as large as the text; a process that still writes has the lock."""
    load(tmp_path, train=prose)
    (folder,) = (tmp_path / "lm").iterdir()
    (folder / "about.json").unlink()
    (folder / "train.tokens.abc.part").write_bytes(b"half")
    load(tmp_path, train=prose)
    assert not list(folder.glob("*.part")) and (folder / "about.json").is_file()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raising(DataError, tmp_path / "file", "data_dir"):
        load(tmp_path / "file")


SPACED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    "change",
    [
        {"truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}},
        {"padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
         | {"pad_type_id": 0, "pad_token": BOS}},
        *({"normalizer": {"type": name}} for name in ("Lowercase", "NFC", "NFD", "NFKC")),
        {"normalizer": {"type": "Prepend", "prepend": "x"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": SPACED},
        {"model": {"dropout": 0.5}},
        {"model": {"vocab": {"~": 100_000}}},
        {"decoder": None},
    ],
    ids=lambda change: json.dumps(change)[:40],
)  # fmt: skip
def test_a_tokenizer_that_does_not_give_the_text_back_is_refused(change: dict[str, Any]) -> None:
    """Bits per byte count the bytes of tokens: a text that was cut, padded or changed would give another number."""
    made = json.loads(trained(generated("stories", 30_000), 300))
    Bpe(json.dumps(made).encode())
    if model := change.get("model"):
        vocab = made["model"]["vocab"] | model.get("vocab", {})
        change = {"model": made["model"] | model | {"vocab": vocab}}
    with raising(DataError, TOKENIZER_FILE):
        Bpe(json.dumps(made | change).encode())


def test_a_text_whose_tokens_stand_for_other_bytes_is_refused() -> None:
    """A change that the check at the start did not show."""
    made = json.loads(trained(generated("stories", 30_000), 300))
    made["normalizer"] = {"type": "Replace", "pattern": {"String": "Ada"}, "content": "Adam"}
    tokenizer = Bpe(json.dumps(made).encode())
    assert len(tokenizer.encoded(["Ben"])) == 1
    with raising(DataError, TOKENIZER_FILE):
        tokenizer.encoded(["Ben", "Ada"])


def test_counters_of_the_generator() -> None:
    """Every story of the grammar speaks of two names; the numbers add up."""
    names = Counter(re.match(r"(\w+) and (\w+) meet", story).groups() for story in generated("stories", 40_000))  # type: ignore[union-attr]
    assert len(names) > 30 and all(one != two for one, two in names)


@pytest.mark.parametrize(
    ("package", "data"), [("tokenizers", {"tokenizer": "generated", "vocab_size": 300}), ("pyarrow", {})]
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, data: dict[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    table = tmp_path / "a.parquet"
    table.write_bytes(b"table")
    with raising(TaskError, package, "[lm]"):
        load(tmp_path, **({"train": str(table)} if package == "pyarrow" else data))


def test_the_disk_is_not_filled(tmp_path: Path, prose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**7})())
    with raising(DataError, "data_dir"):
        load(tmp_path, train=prose)
    assert not list(tmp_path.glob("lm/*/*.tokens"))
    with raising(DataError, "data.shards"):
        hub.fetch(tmp_path, 3, lambda line: None, lambda name, total: lambda count: None)


def test_lines_about_a_text(tmp_path: Path, prose: str) -> None:
    config: LmConfig = small(train=prose)
    lines = load_text(config, tmp_path).lines()
    assert "documents" in lines[0] and "1.0" in lines[0] and "sha256:" in lines[-1]
