"""A run's history, a server of it as the how-to page starts it, a browser; one of each for all tests of a worker."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.app.dashboard.chromium import chromium
from tests.app.dashboard.demo_store import RUN, Story, second, tell
from tests.app.dashboard.waiting import until_drawn

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "dashboard.md"


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Eight sessions, one killed, one rollback, one note; a ninth trains. A smaller run lies in the same store."""
    now = time.time()
    told = tell(tmp_path_factory.mktemp("told") / "store", now, days=3.0, every=500, most=8)
    second(told, now)
    return told


def environment(story: Story, home: Path) -> dict[str, str]:
    return {**os.environ, "RELAY_STORE": story.store.address, "HOME": str(home), "RUN_NAME": RUN}


@pytest.fixture(scope="session")
def address(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server is that the page's own command started."""
    (shown,) = re.findall(r"^\$ python (.*)$", PAGE.read_text(), re.MULTILINE)
    words = shlex.split(shown.replace("watched", RUN))
    server = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment(story, tmp_path_factory.mktemp("home")),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stderr
    line = server.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line + server.stderr.read()
    yield found[0]
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=20)
    assert (server.returncode, out) == (0, "") and err.strip().endswith("Ended. The run goes on without it.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Without a window, and without a sandbox where root would need one. Its event loop ends with the module: other
    tests of the same process run loops of their own."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*root, "--disable-gpu"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, and all that it asked for and complained of."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    def open(self, address: str) -> Page:
        self.page.goto(address)
        until_drawn(self.page)
        return self.page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """`visit(width=360, color_scheme="dark")`; afterwards: no request went to another host, and nothing went wrong."""
    made: list[Visit] = []

    def make(width: int = 1200, **more: Any) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        made.append(Visit(context.new_page()))
        return made[-1]

    yield make
    for one in made:
        home = re.sub("^(http://[^/]+/).*", r"\1", one.page.url.partition("#")[0])
        one.page.context.close()
        assert [url for url in one.asked if not url.startswith((home, "data:"))] == []
        assert one.complaints == []
