"""One table gives the meaning of a storage error, in every place: code, store and advice."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from relay.app.messages.errors import paragraph
from relay.core.errors import BadConfig, BadData, RelayError, StorageUnreachable, UploadFailed, of_store, store_errors
from storage import base
from storage.memory import MemoryStore
from storage.oserrors import translate
from storage.s3 import open_s3
from tests.app.cli import Desk


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (base.BadAddress, BadConfig),
        (base.QuotaExceeded, StorageUnreachable),
        (base.Denied, StorageUnreachable),
        (base.Unavailable, StorageUnreachable),
        (base.Throttled, StorageUnreachable),
        (base.OutcomeUnknown, UploadFailed),
        (base.Missing, BadData),
        (base.Corrupt, BadData),
    ],
)
def test_each_storage_error_has_one_meaning(kind: type[base.StoreError], ours: type[RelayError]) -> None:
    with pytest.raises(ours) as caught, store_errors(MemoryStore("x"), "The time cannot be told"):
        raise kind("it says no.")
    text = paragraph(caught.value)
    assert isinstance(caught.value.__cause__, kind)
    assert "memory://x" in text and "it says no." in text and text.endswith(".")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENAMETOOLONG, "File name too long"),
    ],
)
def test_what_to_do_is_said_once(error: OSError) -> None:
    text = paragraph(of_store(translate(error, "/x", reading=False), "file:///x"))
    assert len(re.findall(r"\. (?:Give|Check|Make|Free|Use)\b", text)) == 1 and text.endswith(".")


def test_a_package_that_is_missing_is_no_fault_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.s3.find_spec", lambda name: None)
    with pytest.raises(base.BadAddress) as refused:
        open_s3("s3://bucket/relay", read_only=True)
    text = paragraph(of_store(refused.value))
    assert "Install it: `" in text and "Correct" not in text


def test_a_question_keeps_its_mark() -> None:
    text = paragraph(of_store(base.Unavailable("it has gone. Is its disk still mounted?")))
    assert "mounted? " in text


def test_the_store_is_named_once() -> None:
    assert paragraph(of_store(base.Unavailable("memory://x: gone."), "memory://x")).count("memory://x") == 1


@pytest.mark.parametrize(
    "words",
    ["status", "report", "next", "verify", "run --target-steps 1", "stop", "init", "register a A", "gc --dry-run"],
)
def test_a_file_given_as_the_store_is_78_with_the_setting_to_correct(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").write_text("no folder")
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": str(tmp_path / "file")})
    refused = desk(*words.split(), code=78)
    assert str(tmp_path / "file") in refused.err and "RELAY_STORE" in refused.err
    assert (tmp_path / "file").read_text() == "no folder"
