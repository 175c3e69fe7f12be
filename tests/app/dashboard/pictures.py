"""Takes the documentation's pictures of a made-up run: `python -m tests.app.dashboard.pictures`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.app.dashboard.chromium import chromium
from tests.app.dashboard.demo_store import RUN, tell
from tests.app.dashboard.waiting import until_drawn

DOCS = Path(__file__).parents[3] / "docs"
SHOTS = (("light", 1160, 1420, "light"), ("dark", 1160, 1420, "dark"), ("phone", 360, 1500, "light"))
"""Name, width, height, colors."""


def main() -> None:
    """A folder that is removed at the end holds the store and the page."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        store = Path(scratch) / "relay"
        tell(store, time.time())
        command = [sys.executable, "rotate_accounts.py", "dashboard", "--run", RUN, "--export", f"{scratch}/run.html"]
        environment = {**os.environ, "RELAY_STORE": store.as_uri()}
        subprocess.run(command, cwd=DOCS.parent, env=environment, check=True)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, width, height, scheme in SHOTS:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(f"file://{scratch}/run.html")
            until_drawn(page)
            page.wait_for_timeout(300)
            page.screenshot(path=DOCS / f"dashboard-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
