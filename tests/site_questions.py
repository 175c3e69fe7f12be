"""Ten questions of users, typed into the site's search in a browser: is the answer within two clicks?

    make site && python -m tests.site_questions

A click opens a result; a second one may follow a link on that page. The table goes into a record.
"""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.app.dashboard.chromium import chromium

SITE = Path(__file__).parents[1] / ".site" / "html"
FIRST = 5
"""Results that a reader looks at."""

LINKS = """() => {
    const all = (root) => [...root.querySelectorAll('*')].flatMap(
        (node) => node.shadowRoot ? [node, ...all(node.shadowRoot)] : [node]);
    const options = all(document).filter((node) => node.tagName === 'A' && node.role === 'option');
    return options.map((node) => node.href).filter((link) => link);
}"""
"""The results in the search's own part of the page."""


@dataclass(frozen=True)
class Question:
    """What a user wants, what they type, and where the answer is."""

    wants: str
    types: str
    answer: str
    """The page, with the heading if it has several."""


QUESTIONS = (
    Question("continue after my machine was killed", "session was killed", "how-to/tutorial.html"),
    Question("invite a friend", "invite a friend", "how-to/people.html"),
    Question("the rights that an S3 key needs", "s3 rights of the key", "how-to/stores.html"),
    Question("what exit code 75 means", "exit code 75", "how-to/mend.html"),
    Question("use both T4 of Kaggle", "kaggle two GPUs", "how-to/notebooks.html"),
    Question("relay my own PyTorch script", "own pytorch loop", "how-to/own-loop.html"),
    Question("send curves to W&B", "wandb", "how-to/watch.html"),
    Question("go back to an older checkpoint", "older checkpoint", "how-to/mend.html"),
    Question("Google Drive token expired", "drive token expired", "how-to/drive-dropbox.html"),
    Question("what others can see of me", "privacy stored", "reference/stored.html"),
)


@contextmanager
def serving() -> Iterator[str]:
    """The address of the site; search needs a server."""
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def results(page: Page, address: str, words: str) -> list[str]:
    """The addresses of the first results, relative to the site."""
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type(words)
    found: list[str] = []
    until = time.monotonic() + 20
    while time.monotonic() < until and not found:
        page.wait_for_timeout(500)
        links = page.evaluate(LINKS)
        found = [re.split("[?#]", link.removeprefix(address))[0] for link in links]
    return list(dict.fromkeys(found))[:FIRST]


def linked(page: Page, address: str, name: str) -> set[str]:
    """The pages that a page's own text links to."""
    page.goto(address + name)
    links = page.eval_on_selector_all("article a[href], main a[href]", "nodes => nodes.map((a) => a.href)")
    return {link.removeprefix(address).partition("#")[0] for link in links}


def main() -> int:
    """Print the table; 1 if an answer is further away than two clicks."""
    far = 0
    print("| question | typed | first result | clicks |\n|---|---|---|---|")
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        page = browser.new_page()
        for question in QUESTIONS:
            page.goto(f"{address}index.html")
            found = results(page, address, question.types)
            clicks = 1 if question.answer in found else 0
            if not clicks and any(question.answer in linked(page, address, name) for name in found):
                clicks = 2
            far += not clicks
            place = f", result {found.index(question.answer) + 1}" if clicks == 1 else ""
            first = found[0] if found else "nothing"
            print(f"| {question.wants} | `{question.types}` | {first} | {clicks or 'more than 2'}{place} |", flush=True)
        browser.close()
    return int(far > 0)


if __name__ == "__main__":
    sys.exit(main())
