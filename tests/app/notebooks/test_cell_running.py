"""What runs a cell's command and what shows it: one interrupt, every line, a bar that moves, a page in its frame."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.app.notebooks import notebook
from relay.app.notebooks.cellrun import CellView, drawn, follow, page
from relay.core.clock import RealRuntime

SCRIPT = """trap 'echo got; exit 130' INT
printf 'ready\\nhalf'; echo ' line' >&2; echo '{"a": 1}'; while :; do sleep 0.02; done"""


def test_an_interrupt_of_the_kernel_reaches_the_command_once_and_its_end_is_waited_for(tmp_path: Path) -> None:
    lines = list[str]()

    def line(text: str) -> None:
        lines.append(text)
        if text == "ready":
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    code, out = follow(["bash", "-c", SCRIPT], os.environ, tmp_path, line, RealRuntime())
    assert (code, out) == (130, "") and lines == ["ready", "half line", '{"a": 1}', "got"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_while_the_command_starts_is_handed_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the cell, and left a session behind that nobody saw."""
    start = subprocess.Popen

    def interrupted(*words: Any, **more: Any) -> Any:
        child = start(*words, **more)
        os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    assert follow(["sleep", "60"], os.environ, tmp_path, print, RealRuntime()) == (130, "")


KERNEL = """
import os, pathlib, sys
from relay.app.notebooks.cellrun import follow
from relay.core.clock import RealRuntime
wait = "while ! test -e told; do sleep 0.02; done"
words = ["bash", "-c", f"echo ready; {wait}; for i in $(seq 2000); do echo $i; done && touch done"]
follow(words, os.environ, pathlib.Path(sys.argv[1]), lambda text: print(text, flush=True), RealRuntime())
"""


def test_a_session_outlives_the_kernel_and_goes_on_talking_to_nobody(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    words = [sys.executable, "-c", KERNEL, str(tmp_path)]
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout and kernel.stdout.readline() == "ready\n"
        kernel.kill()
    (tmp_path / "told").touch()
    for _ in range(500):
        if (tmp_path / "done").exists():
            return
        time.sleep(0.02)
    raise AssertionError("the session ended with its kernel")


def test_standard_output_can_be_a_document_and_a_signal_has_a_code(tmp_path: Path) -> None:
    lines = list[str]()
    words = ["bash", "-c", "echo '{}'; echo people >&2; kill -9 $$"]
    assert follow(words, os.environ, tmp_path, lines.append, RealRuntime(), document=True) == (137, "{}")
    assert lines == ["people"]
    assert notebook.read("no json") == notebook.read("[1]") == {}


def test_lines_that_only_say_how_far_it_is_share_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    shown, moved = list[Any](), list[Any]()
    handle = SimpleNamespace(update=lambda data, raw: moved.append(data))

    def show(data: Any, **options: Any) -> Any:
        shown.append((data, options))
        return handle

    view = CellView(show)
    for text in ("step 5/1,000  9 steps/h", "Step 5 is committed.", "step 6/1,000", "waiting for Ana: 4:30"):
        view.line(text)
    assert capsys.readouterr().out == "Step 5 is committed.\n"
    assert len(shown) == 1 and len(moved) == 2 and shown[0][1] == {"raw": True, "display_id": True}
    assert 'value="6" max="1000"' in moved[0]["text/html"] and "progress" not in moved[1]["text/html"]
    CellView(None).line("step 7/1,000")
    assert capsys.readouterr().out == "step 7/1,000\n"
    assert "<img" not in drawn("step 1/2 <img src=x>")["text/html"]


def test_a_hostile_page_stays_in_its_frame() -> None:
    tags = list[tuple[str, dict[str, str | None]]]()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attrs)))

    hostile = """<p title='"'></iframe><script>alert(1)</script>" onload="alert(2)"""
    Parser().feed(page(hostile, 900)["text/html"])
    assert [tag for tag, _ in tags] == ["div", "iframe"]
    frame = tags[1][1]
    assert frame["srcdoc"] == hostile and frame["sandbox"] == "allow-scripts" and "onload" not in frame
