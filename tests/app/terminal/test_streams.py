"""A closed output stream: a session's display is dropped, another command reports why it ends."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.machine.logs import close_log, open_log
from relay.app.terminal.streams import Streams, Unwritable

PROGRAM = [sys.executable, "-m", "tests.processes.program"]


class Broken(io.StringIO):
    """Takes nothing from the first text on."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.asked = number, 0

    def write(self, text: str) -> int:
        self.asked += 1
        raise OSError(self.number, "broken")


@pytest.mark.parametrize("before", [False, True])
def test_a_session_goes_on_and_its_log_notes_it_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: bool
) -> None:
    """Also where it was lost before the log was opened."""
    broken, streams = Broken(errno.EIO), Streams()
    monkeypatch.setattr(sys, "stderr", broken)
    with streams.guarded():
        if before:
            print("starting", file=sys.stderr)
        log = open_log(tmp_path, "r", 0.0)
        streams.record()
        for _ in range(3):
            print("step", file=sys.stderr, flush=True)
    close_log()
    assert broken.asked == 1 and sys.stderr is broken
    assert log and log.read_text().count("stderr (broken)") == 1


def test_a_document_that_cannot_be_written_is_told_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(errno.ENOSPC))
    with Streams().guarded():
        print("{}")
    err = capsys.readouterr().err
    assert "stdout (broken)" in err and err.count("\n") == 1


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, Unwritable), (errno.EPIPE, BrokenPipeError)])
def test_a_command_that_shows_something_ends(
    monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(number))
    streams = Streams()
    with streams.guarded():
        with pytest.raises(error), streams.needed():
            print("table")
        print("and nothing is raised twice")


@pytest.mark.parametrize("end", [SystemExit(143), KeyboardInterrupt()])
def test_an_end_that_is_under_way_keeps_its_code(monkeypatch: pytest.MonkeyPatch, end: BaseException) -> None:
    """A terminal that closed cannot be put right any more."""
    monkeypatch.setattr(sys, "stdout", Broken(errno.EIO))
    streams = Streams()
    with streams.guarded(), pytest.raises(type(end)), streams.needed():
        try:
            raise end
        finally:
            print("\x1b[?25h")


def test_a_letter_that_a_stream_does_not_have_is_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    with Streams().guarded():
        print("Jürgen")
        print("goes on")
    assert raw.getvalue() == b"J\\xfcrgen\ngoes on\n"


def test_a_closed_stream_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with Streams().guarded():
        print("step", file=sys.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["config", "show"]])
def test_a_full_disk_is_no_bug(tmp_path: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(__file__).parents[3]), "HOME": str(tmp_path)},
        )
    assert done.returncode == 78 and os.strerror(errno.ENOSPC) in done.stderr and "stdout" in done.stderr
    assert "bug" not in done.stderr and not (tmp_path / "sync").exists()
