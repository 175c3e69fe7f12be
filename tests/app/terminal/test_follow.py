"""`report --watch` shows new entries; a look without news costs one read of the tail; a silent store ends nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from relay.app.commands.invoking import spelled
from relay.app.terminal.follow import LEAST_S, PATIENCE, Appended, Following, Redrawn, follow, shortened
from relay.core.clock import RealRuntime
from relay.core.errors import BadData
from storage.base import Ref, Stat, Store, StoreError
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.storage.counting import CountingStore


class Clock(RealRuntime):
    """Time advances only during a sleep."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


class Script:
    """A source whose looks give these texts, or fail with these errors; over with the last one."""

    def __init__(self, *looks: str | Exception) -> None:
        self._looks = list(looks)
        self.shown = ""

    @property
    def key(self) -> object:
        return self.shown

    @property
    def over(self) -> bool:
        return not self._looks

    def look(self) -> None:
        found = self._looks.pop(0)
        if isinstance(found, Exception):
            raise found
        self.shown = found

    def text(self) -> str:
        return self.shown


def appended(*looks: str | Exception, every_s: float = 10.0) -> tuple[list[str], list[str], Clock]:
    out, err, clock = list[str](), list[str](), Clock()
    follow(Script(*looks), clock, every_s, Appended(out.append, err.append))
    return out, err, clock


def test_where_nothing_moves_only_news_is_appended_and_the_target_ends_it() -> None:
    out, err, clock = appended("step 1", "step 1", "step 2", "step 2", "step 3")
    assert out == ["step 1", "\nstep 2", "\nstep 3"] and not err
    assert clock.slept == [10.0] * 4


def test_no_store_is_asked_more_often_than_every_two_seconds() -> None:
    assert appended("a", "b", every_s=0.01)[2].slept == [LEAST_S]


def test_a_silent_store_is_told_of_once_and_asked_ever_more_rarely() -> None:
    silent = [StoreError("no answer")] * 6
    out, err, clock = appended("step 1", *silent, "step 2", "step 3")
    assert out == ["step 1", "\nstep 2", "\nstep 3"]
    assert len(err) == 2 and "10 s" in err[0] and "no answer" in err[0]
    assert clock.slept == [10.0, 20.0, 40.0, *([10.0 * PATIENCE] * 4), 10.0]


def test_the_first_look_must_be_answered_and_damage_is_no_silence() -> None:
    with pytest.raises(StoreError):
        appended(StoreError("no answer"))
    with pytest.raises(BadData):
        appended("step 1", BadData("damaged"))


def screen(source: Script, clock: Clock, width: int, height: int, plain: bool = False) -> Redrawn:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, no_color=True)
    shown = Redrawn(plain, console)
    source.look()
    shown._following = Following(source, clock, 10.0, clock.now)
    return shown


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 10), (120, 6)])
@pytest.mark.parametrize("plain", [False, True])
def test_a_screen_holds_what_fits_and_says_how_old_it_is(width: int, height: int, plain: bool) -> None:
    clock = Clock()
    shown = screen(Script("\n".join(["日本語 " * 30, "row"] * 10), "more"), clock, width, height, plain)
    clock.now = 95.0
    lines = shown.drawn().plain.split("\n")
    assert len(lines) == min(21, height - 1) and all(cell_len(line) <= width for line in lines)
    assert all(fact in lines[-1] for fact in ("2 min", "10 s", "Ctrl-C"))
    assert height > 22 or lines[-2].endswith("more")
    assert not plain or shown.drawn().plain.isascii()


def test_a_screen_tells_why_it_is_old() -> None:
    clock, source = Clock(), Script("step 1", StoreError("no\nanswer"), "step 2")
    shown = screen(source, clock, 80, 24)
    clock.now = 130.0
    assert shown._following is not None
    shown._following.look()
    first, why = shown.drawn().plain.split("\n")
    assert first == "step 1" and "2 min" in why and why.endswith(": no answer")


def test_rows_are_shortened_to_the_terminal() -> None:
    assert shortened(["a", "b", "c"], "foot", 5) == ["a", "b", "c", "foot"]
    assert shortened(["a", "b", "c"], "foot", 4) == ["a", "... 2 more", "foot"]
    assert shortened(["a", "b", "c"], "", 4) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("report --watch", "report --watch=10"),
        ("report --watch 5 x=1", "report --watch 5 x=1"),
        ("report --watch=5", "report --watch=5"),
        ("report --watch x=1 --run r", "report --watch=10 x=1 --run r"),
        ("report --watch --sessions", "report --watch=10 --sessions"),
        ("report --watch -1", "report --watch -1"),
        ("run --wait 5", "run --wait 5"),
    ],
)
def test_a_watch_needs_no_number(words: str, meant: str) -> None:
    assert spelled(words.split()) == meant.split()


@contextmanager
def between_looks(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> Iterator[None]:
    """While a watch waits, this happens; then Ctrl-C."""
    waiting = iter(acts)

    def sleep(self: RealRuntime, seconds: float) -> None:
        if seconds >= 7.0:
            act = next(waiting, None)
            if act is None:
                raise KeyboardInterrupt
            act()

    with monkeypatch.context() as patched:
        patched.setattr(RealRuntime, "sleep", sleep)
        yield


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A run at step 10 of 40."""
    made = Desk(tmp_path / "here", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    made("register", "account_1", "Ana's Colab", "--owner", "Ana")
    made.plugin.made = {"crash": {15: RuntimeError("the GPU is gone")}}
    made.train(40, "checkpoint.every_steps=10", code=1)
    made.plugin.made = {}
    return made


def nothing() -> None:
    """As long as no session trains."""


def test_a_report_is_followed_to_the_target(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with between_looks(monkeypatch, nothing, nothing, lambda: desk.train(40)):
        done = desk("report", "--watch", "7", "--run", "r")
    progress = [line.split("(")[1].split()[0] for line in done.out.splitlines() if "Total Progress" in line]
    assert progress == ["10/40", "40/40"] and "Ended" not in done.err


def test_sessions_are_followed_without_a_name_until_ctrl_c(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with between_looks(monkeypatch, nothing):
        done = desk("report", "--watch", "7", "--sessions", "--redact", "--run", "r")
    assert done.out.count("epoch") == 1 and "crashed" in done.out and "Ana" not in done.out
    assert len(done.err.splitlines()) == 1 and "Traceback" not in done.err


def test_a_watch_may_begin_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "here", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    with between_looks(monkeypatch, nothing, lambda: desk.train(10)):
        done = desk("report", "--watch", "7", "--run", "r")
    assert "Not begun" in done.out and "10/10" in done.out


def test_a_store_that_vanishes_for_a_while_ends_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [True]

    class Unmounted(Wrapper):
        def stat(self, ref: Ref) -> Stat:
            return self._answer(super().stat, ref)

        def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
            return self._answer(partial(super().get, limit=limit), ref)

        def _answer(self, ask: Callable[[Ref], Any], ref: Ref) -> Any:
            if not there[0]:
                raise StoreError("the share is not mounted")
            return ask(ref)

    wrap_stores(monkeypatch, Unmounted)
    gone, back = (lambda: there.__setitem__(0, False)), (lambda: there.__setitem__(0, True))
    with between_looks(monkeypatch, gone, back):
        done = desk("report", "--watch", "7", "--run", "r")
    assert done.out.count("Total Progress") == 1
    assert "the store does not answer" in done.err and "not mounted" in done.err and "answers again" in done.err


def test_a_look_that_finds_nothing_new_reads_next_to_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    stores, counts = list[CountingStore](), list[int]()

    def wrapped(store: Store) -> Store:
        stores.append(CountingStore(store))
        return stores[-1]

    def count() -> None:
        counts.append(sum(sum(store.counts.values()) for store in stores))

    wrap_stores(monkeypatch, wrapped)
    with between_looks(monkeypatch, count, count, count):
        desk("report", "--watch", "7", "--run", "r", "--redact")
    assert counts[0] > 5 and counts[2] - counts[1] <= 2, counts


def test_what_cannot_be_followed_is_refused(desk: Desk) -> None:
    for words in (("--json",), ("--session", "last"), ("--account", "account_1")):
        assert "--watch follows" in desk("report", "--watch", *words, code=2).err
    assert "--watch" in desk("report", "--watch", "1", code=2).err
