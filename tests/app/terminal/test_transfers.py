"""A long transfer is shown, a short one is not; the reported bytes add up, from parts and retries, on every store."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from rich.console import Console

from relay.app.terminal.atwork import IDLE_S
from relay.app.terminal.progress import Bar, Lines
from relay.app.terminal.transfers import EVERY_S, LONG_S, Moving, lines, showing, through
from relay.core.clock import RealRuntime
from relay.core.workload import Progress
from storage.memory import MemoryStore
from storage.parallel import begin
from storage.transfer import upload
from storage.uploads import listening, sent
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores


class Watch(RealRuntime):
    """A clock that only its owner moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_line_comes_only_after_a_while_and_then_now_and_then() -> None:
    watch, told = Watch(), list[str]()
    count = lines(told.append, watch)("fetching", 1500, 80_000_000)
    for _ in range(80):
        count(500_000)
        watch.now += 0.5
    assert told[0].startswith("fetching step 1,500:")
    assert all(fact in told[0] for fact in ("4%", "80.0 MB", "1.2 MB/s", "66 s"))
    assert len(told) == 1 + int((40 - LONG_S) / EVERY_S)


def test_a_short_transfer_says_nothing() -> None:
    watch, told = Watch(), list[str]()
    count = lines(told.append, watch)("sending", 2, 1000)
    watch.now += LONG_S / 2
    count(1000)
    assert told == []


def test_more_than_the_whole_is_the_whole() -> None:
    """A part that is sent again counts twice."""
    watch, told = Watch(), list[str]()
    count = lines(told.append, watch)("sending", 3, 1000)
    watch.now += EVERY_S
    count(900)
    watch.now += EVERY_S
    count(900)
    assert "100%" in told[-1] and "1 kB" in told[-1]


def test_bars_on_a_terminal_leave_nothing_behind() -> None:
    out = io.StringIO()
    with Moving(Console(file=out, force_terminal=True, width=80)) as show:
        count = show("fetching", 7, 2_000_000)
        count(1_000_000)
        count(3_000_000)
    assert "fetching step 7" in out.getvalue() and "MB" in out.getvalue()
    assert out.getvalue().rstrip("\r\n").endswith("\x1b[2K"), "the line is wiped"


def test_where_nobody_sees_a_bar_there_are_lines() -> None:
    watch, told = Watch(), list[str]()
    with showing(told.append, watch) as show:
        count = show("sending", 4, 1000)
        watch.now += LONG_S
        count(500)
    assert len(told) == 1 and "50%" in told[0] and "3 s" in told[0]


def test_a_sessions_bar_gives_way_while_no_step_is_made() -> None:
    watch = Watch()
    bar = Bar(100, watch.monotonic, Console(file=io.StringIO(), force_terminal=True, width=80))
    count = through(bar.transfer, watch)("fetching", 5, 10_000_000)
    watch.now += LONG_S
    count(1_000_000)
    assert "fetching step 5: 10%" in bar.drawn().plain
    bar.step(Progress(6, {}))
    assert "step 6/100" in bar.drawn().plain, "training goes on beside an upload"
    watch.now += IDLE_S
    count(1_000_000)
    assert "20% of 10.0 MB" in bar.drawn().plain
    count(8_000_000)
    assert "step 6/100" in bar.drawn().plain, "it is over"
    bar.close()


def test_a_sessions_lines_tell_a_transfer_no_more_often_than_steps(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    shown = Lines(100, watch.monotonic, 30.0)
    count = through(shown.transfer, watch)("sending", 9, 100_000_000)
    for _ in range(100):
        watch.now += 1.0
        count(1_000_000)
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_who_listens_hears_of_parts_in_threads_and_nobody_elses() -> None:
    mine, others = list[int](), list[int]()
    with listening(mine.append):
        begin(sent, 5).result()
        with listening(others.append):
            begin(sent, 7).result()
        sent(6)
    sent(8)
    assert (mine, others) == ([5, 6], [7])


class InParts(Wrapper):
    """Reports halves, in threads, and the first half twice: it had to be sent again."""

    def put_new(self, name: str, data: bytes | Path) -> str:  # type: ignore[override]
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        for part in (size // 2, size // 2, size - size // 2):
            begin(sent, part).result()
        return self.inner.put_new(name, data)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("wrap", [InParts, Wrapper])
def test_what_is_told_of_an_upload_covers_every_byte(tmp_path: Path, workers: int, wrap: type[Wrapper]) -> None:
    total, told, lock = 0, list[int](), threading.Lock()
    for number in range(5):
        (tmp_path / f"f{number}").write_bytes(bytes(1001 * number))
        total += 1001 * number

    def count(more: int) -> None:
        assert lock.acquire(blocking=False), "one call at a time"
        told.append(more)
        lock.release()

    keys = {f"f{number}": f"x/f{number}" for number in range(5)}
    upload(wrap(MemoryStore()), tmp_path, keys, workers=workers, sent=count)
    again = sum(1001 * number // 2 for number in range(5)) if wrap is InParts else 0
    assert sum(told) == total + again


class Slow(Wrapper):
    """Its clock is that of the test: each piece takes ten seconds."""

    watch: Watch

    def read_range(self, ref: str, start: int, length: int) -> bytes:  # type: ignore[override]
        self.watch.now += 10
        return self.inner.read_range(ref, start, length)  # type: ignore[arg-type]

    def put_new(self, name: str, data: bytes | Path) -> str:  # type: ignore[override]
        self.watch.now += 10
        return self.inner.put_new(name, data)


@pytest.mark.parametrize("words", [("fork", "--to", "other"), ("evaluate", "--rows", "4"), ("export",)])
def test_the_commands_that_move_a_checkpoint_tell_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    desk = Desk(tmp_path / "desk")
    desk.train(4)
    Slow.watch = watch = Watch()
    monkeypatch.setattr(RealRuntime, "monotonic", lambda self: watch.now)
    wrap_stores(monkeypatch, Slow)
    said = desk(words[0], "--run", "r", *words[1:]).err
    assert "fetching step 4: " in said
    assert ("sending step 4: " in said) is (words[0] == "fork")


def test_a_session_tells_how_far_restore_and_last_upload_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "desk")
    desk.train(4)
    Slow.watch = watch = Watch()
    monkeypatch.setattr(RealRuntime, "monotonic", lambda self: watch.now)
    wrap_stores(monkeypatch, Slow)
    said = desk.train(8, "--progress-seconds", "1").err
    assert "fetching step 4: " in said and "sending step 8: " in said
