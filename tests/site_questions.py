"""Ten questions of users, typed into the site's search in a browser: is the answer within two clicks?

    make site && python -m tests.site_questions

A click opens a result; a second one may follow a link on that page. The table goes into a record.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.app.dashboard.chromium import chromium

SITE = Path(__file__).parents[1] / ".site" / "html"
FIRST = 5
"""Results that a reader looks at."""


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
    Question("what others can see of me", "what is stored about me privacy", "reference/stored.html"),
)


def results(page: Page, words: str) -> list[str]:
    """The addresses of the first results, relative to the site."""
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type(words)
    found: list[str] = []
    until = time.monotonic() + 20
    while time.monotonic() < until and not found:
        page.wait_for_timeout(500)
        links = page.evaluate(
            """() => {
                const all = (root) => [...root.querySelectorAll('*')].flatMap(
                    (node) => node.shadowRoot ? [node, ...all(node.shadowRoot)] : [node]);
                return all(document).map((node) => node.tagName === 'A' ? node.href : '').filter((href) => href.includes('?h='));
            }"""
        )
        found = [link.removeprefix(SITE.as_uri() + "/").partition("?")[0] for link in links]
    return list(dict.fromkeys(found))[:FIRST]


def linked(page: Page, name: str) -> set[str]:
    """The pages that a page's own text links to."""
    page.goto((SITE / name).as_uri())
    links = page.eval_on_selector_all("article a[href], main a[href]", "nodes => nodes.map((a) => a.href)")
    return {link.removeprefix(SITE.as_uri() + "/").partition("#")[0] for link in links}


def main() -> int:
    """Print the table; 1 if an answer is further away than two clicks."""
    far = 0
    print("| question | typed | first result | clicks |\n|---|---|---|---|")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        page = browser.new_page()
        for question in QUESTIONS:
            page.goto((SITE / "index.html").as_uri())
            found = results(page, question.types)
            clicks = 1 if question.answer in found else 0
            if not clicks and any(question.answer in linked(page, name) for name in found):
                clicks = 2
            far += not clicks
            place = f", result {found.index(question.answer) + 1}" if clicks == 1 else ""
            first = found[0] if found else "nothing"
            print(f"| {question.wants} | `{question.types}` | {first} | {clicks or 'more than 2'}{place} |", flush=True)
        browser.close()
    return int(far > 0)


if __name__ == "__main__":
    sys.exit(main())
