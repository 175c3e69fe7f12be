"""FineWeb-Edu's shards from a double of the hub."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lm.data import hub
from lm.data.generate import generated
from lm.data.text import load_text
from relay.torch.faults import DataError
from tests.facts import raising
from tests.lm.small import small
from tests.torch.hubdouble import Dataset, serving


def shard(first: int) -> bytes:
    texts = list(generated("stories", 60_000))[first : first + 40]
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": texts}), out)
    return out.getvalue()


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    files = {hub.name_of(number): shard(40 * place) for place, number in enumerate((0, 1, hub.HELD_OUT))}
    monkeypatch.setattr(hub, "_WAIT_S", 0.0)
    with serving(Dataset(hub.REPO, files), tmp_path, monkeypatch) as found:
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
        yield found


def test_as_many_shards_as_asked_for_are_fetched_once(dataset: Dataset, tmp_path: Path) -> None:
    lines = list[str]()
    config = small(train="hub", shards=2)
    found = load_text(config, tmp_path, lines.append)
    assert [found.extents[part].documents for part in ("train", "valid", "test")] == [80, 20, 20]
    assert "GB" in lines[0] and "MB/s" in lines[1] and "MB/s" in lines[-1]
    asked = len(dataset.asked)
    again = load_text(config, tmp_path, lines.append)
    assert len(dataset.asked) == asked and again.pinned(config) == found.pinned(config)
    held = {name: set(bytes(found.parts[name].tokens).split(b"\0")[1:]) for name in ("valid", "test")}
    assert not held["valid"] & held["test"]


def test_a_cut_download_goes_on_and_an_absent_shard_is_named(dataset: Dataset, tmp_path: Path) -> None:
    dataset.cut = 1000
    hub.fetch(tmp_path, 1, lambda line: None, lambda name, total: lambda count: None)
    before = len(dataset.asked)
    with raising(DataError, hub.name_of(2), hub.REPO, "data.train"):
        hub.fetch(tmp_path, 3, lambda line: None, lambda name, total: lambda count: None)
    assert len(dataset.asked) - before >= hub.TRIES
