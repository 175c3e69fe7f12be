"""States and errors are in color where a terminal has colors, and nothing else about a text changes."""

from __future__ import annotations

import io
import re
from typing import TextIO, cast

import pytest
from rich.style import Style

from relay.app.terminal.color import BAD, GOOD, NOTABLE, colored, with_states
from relay.app.terminal.streams import Stream
from tests.app.cli import Desk

CODES = re.compile(r"\x1b\[[0-9;]*m")
AGE = re.compile(r"\d+ s\b")
WISHES = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE", "JPY_PARENT_PID", "COLAB_RELEASE_TAG")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WISHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"JPY_PARENT_PID": "7"}, False),
        (Terminal(), {"COLAB_RELEASE_TAG": "x", "FORCE_COLOR": "1"}, False),
    ],
)
def test_who_gets_colors(
    stream: io.StringIO, environ: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert (colored("p/r: halted", stream) != "p/r: halted") == wanted


def styles(text: str) -> dict[str, str]:
    """The colored parts of a text."""
    made = with_states(text)
    return {made.plain[span.start : span.end]: str(span.style) for span in made.spans}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p/r: training, step 3/9", {"training": GOOD}),
        ("ana  |quota_exceeded║", {"quota_exceeded": NOTABLE}),
        ("r   training (ana)   3/9", {"training": GOOD}),
        ("LOOK store: /x. See the findings marked LOOK.", {"LOOK": NOTABLE}),
        ("Last link: NOT exact, ana from step 3", {"NOT exact": BAD}),
        ("time was spent in training steps, and it was halted once", {}),
        ("/ready/blocked.LOOKOUT", {}),
    ],
)
def test_a_state_has_a_color_and_the_word_in_a_sentence_has_none(text: str, found: dict[str, str]) -> None:
    assert styles(text) == found and with_states(text).plain == text


@pytest.fixture
def trained(desk: Desk) -> Desk:
    desk.train(3)
    desk("register", "account_2", "Ana's Kaggle", "--owner", "Ana")
    desk("accounts", "pause", "account_1")
    return desk


def test_commands_print_their_states_in_color_and_no_other_text(trained: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"report": {"paused"}, "status": {"finished"}, "accounts list": {"paused"}, "runs list": {"finished"},
              "doctor": {"ok"}, "verify": {"ok"}}  # fmt: skip
    of_run = {words: () if words == "runs list" else ("--run", "r") for words in wanted}
    plain = {words: trained(*words.split(), *of_run[words]).out for words in wanted}
    monkeypatch.setenv("FORCE_COLOR", "1")
    for words, states in wanted.items():
        out = trained(*words.split(), *of_run[words]).out
        assert words == "doctor" or AGE.sub("", CODES.sub("", out)) == AGE.sub("", plain[words])
        for state in states:
            style = next(s for s in (GOOD, NOTABLE, BAD) if Style.parse(s).render(state) in out)
            assert style == (NOTABLE if state == "paused" else GOOD)


def test_an_error_s_first_sentence_is_red_and_json_never_colored(
    trained: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained("status", "--run", "q", code=78).err
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = trained("status", "--run", "q", code=78).err
    assert CODES.sub("", err) == plain
    red = re.match(r"\x1b\[1;31m([^\x1b]*)\x1b\[0m", err)
    assert red and plain.startswith(red[1]) and red[1].endswith(".") and len(red[1]) < len(plain) - 1
    assert "\x1b" not in trained("status", "--run", "r", "--json").out


def test_a_color_never_uncovers_a_secret() -> None:
    """The stream hides whole secrets, and would not find one that holds a color."""
    shown = Terminal()
    stream = Stream("stdout", shown, lambda *_: None, lambda text: text.replace("NEW:s3cr3t", "***"))
    stream.write(colored("LOOK at NEW:s3cr3t", cast(TextIO, stream)))
    assert CODES.sub("", shown.getvalue()) == "LOOK at ***"
