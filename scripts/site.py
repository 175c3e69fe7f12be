"""Builds the documentation site from the Markdown of this repository: `make site` writes .site/html.

The pages are those that people read in the repository. A link to a file outside docs/ would lead nowhere on the site,
so that file is copied next to the pages. Records, decisions and the log are on the site but not in its search: a user
who looks for a command would find them first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / ".site" / "docs"
UNSEARCHED = ("records/", "decisions/", "LOG.md", "CHANGELOG.md")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")
FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def place(path: Path) -> str:
    """Where a file of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    if name == "docs/README.md":
        return "index.md"
    if name == "README.md":
        return "readme.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return name if path.suffix == ".md" else f"files/{name}"


def stage() -> list[str]:
    """Copy every page and all that a page links to; returns the links that lead nowhere."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = sorted(
        {*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))}
    )
    waiting, done, broken = list(pages), set[Path](), []
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        target = STAGE / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            continue
        links: list[Path] = []

        def relinked(match: re.Match[str], path: Path = path, links: list[Path] = links) -> str:
            file, mark, anchor = match[1].partition("#")
            there = (path.parent / file).resolve()
            if there.is_dir():
                there = there / "README.md"
            if not there.is_file() or not there.is_relative_to(ROOT):
                broken.append(f"{path.relative_to(ROOT)}: {match[1]}")
                return match[0]
            links.append(there)
            return f"]({os.path.relpath(STAGE / place(there), (STAGE / place(path)).parent)}{mark}{anchor})"

        parts = FENCED.split(path.read_text(encoding="utf-8"))
        text = "".join(part if number % 2 else LINK.sub(relinked, part) for number, part in enumerate(parts))
        hidden = place(path).startswith(UNSEARCHED)
        target.write_text(f"---\nsearch:\n  exclude: true\n---\n{text}" if hidden else text, encoding="utf-8")
        waiting += links
    return broken


def main() -> int:
    """The exit code: 0 if every link leads somewhere and the generator has nothing to warn of."""
    if broken := stage():
        print("\n".join(broken), file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
