"""Finds the Chromium of the browser tests, with advice where none exists.

`python -m tests.app.dashboard.chromium` prints its path.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ADVICE = (
    "No Chromium was found, and the dashboard's tests need one: `make browser` (apt-get install "
    "chromium-headless-shell, or playwright's own), or name one in RELAY_CHROMIUM."
)


def chromium() -> str:
    """The path of a browser that starts without a window. Raises FileNotFoundError with the remedy."""
    named = os.environ.get("RELAY_CHROMIUM")
    found = [named] if named else [path for name in NAMES if (path := shutil.which(name))]
    return next(iter(found), None) or _playwright_s_own()


def _playwright_s_own() -> str:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    if not path.is_file():
        raise FileNotFoundError(ADVICE)
    return str(path)


if __name__ == "__main__":
    try:
        print(chromium())
    except FileNotFoundError as error:
        sys.exit(str(error))
