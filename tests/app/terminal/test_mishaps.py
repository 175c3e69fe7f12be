"""Each way to fail has its exit code and one paragraph with the remedy."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from relay.app.terminal.mishaps import explain, log_bug, tell
from relay.core import errors
from relay.core.errors import KINDS, Exit, RelayError
from relay.core.lease.signals import Interrupted
from storage import base
from storage.base import StoreError

KINDS_OF_OURS = [
    k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, RelayError) and "exit_code" in vars(k)
]
"""One for each exit code; OfStore and its kinds take theirs from these."""
KINDS_OF_OURS.remove(RelayError)


@pytest.mark.parametrize("kind", KINDS_OF_OURS)
def test_our_own_errors_keep_their_code_and_words(kind: type[RelayError]) -> None:
    code, text = explain(kind("happened.\n  Do."))
    assert code == int(kind.exit_code) > 1
    assert text == "happened. Do."


@pytest.mark.parametrize("kind", [k for _, k in inspect.getmembers(base, inspect.isclass) if issubclass(k, StoreError)])
def test_every_storage_error_has_a_code_and_advice(kind: type[StoreError]) -> None:
    error = kind.__new__(kind)
    error.args = ("refused",)
    code, text = explain(error)
    assert code in (Exit.BAD_CONFIG, Exit.UPLOAD_FAILED, Exit.STORAGE_UNREACHABLE, Exit.BAD_DATA)
    assert text.startswith("Storage: refused. ") and "\n" not in text


def test_the_specified_codes() -> None:
    expected = {base.BadAddress: 78, base.QuotaExceeded: 69, base.Denied: 69, base.Unavailable: 69, base.Throttled: 69}
    assert {kind: explain(kind("x"))[0] for kind in expected} == expected


def test_anything_else_is_a_bug_with_a_log_and_no_locals(tmp_path: Path) -> None:
    secret_local = "never-in-the-log"
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        code, text = explain(error)
        log = log_bug(error, tmp_path, 0.0, [])
    assert code == 1 and "bug" in text
    assert (
        log is not None and "ZeroDivisionError" in log.read_text() and secret_local not in log.read_text().split('"')[0]
    )


def test_json_gets_one_document_and_people_a_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    tell(73, "held, token=abcdefgh", None, True, ["held"])
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document == {
        "schema": "relay.error/1",
        "exit_code": 73,
        "error": "LeaseHeld",
        "message": "***, token=***",
        "log": None,
    }
    assert captured.err == "***, token=***\n"


def test_a_planned_end_before_the_lease_has_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = explain(Interrupted("stop", "SIGUSR2"))
    tell(code, text, None, True, [])
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["error"]) == (75, "Stopped")


def test_every_error_code_has_one_name_and_it_is_that_of_the_class() -> None:
    assert {kind: KINDS[kind.exit_code] for kind in KINDS_OF_OURS} == {kind: kind.__name__ for kind in KINDS_OF_OURS}
    assert set(Exit) - set(KINDS) == {Exit.OK, Exit.HANDOFF}
    assert len(set(KINDS.values())) == len(KINDS)
