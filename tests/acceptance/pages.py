"""What the pages of the documentation show: blocks of commands, and the output or recording that follows a block.

    ```sh                                     commands, one a line, each executed
    python rotate_accounts.py report
    ```
    <!-- lines: Steps|Links -->               optional: only the output's lines that match are shown
    ```text                                   their output, produced by a test run; or
    ![what it shows](recordings/report.svg)   the same as a picture of a terminal, in color

`make snapshots` writes outputs and recordings again. Numbers, durations, dates, hashes and paths differ between runs
and machines, so a test compares everything else (`normal`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

WIDTH = 100
"""Columns of the terminal."""
_BLOCK = re.compile(
    r"^(?P<indent> *)```sh\n(?P<commands>.*?)^ *```\n"
    r"(?:(?: *<!-- lines: (?P<lines>[^\n]+?) -->\n)?"
    r"(?:(?P<open> *```text\n)(?P<text>.*?)^ *```\n| *!\[[^]]*\]\((?P<svg>[\w./-]*recordings/[\w-]+\.svg)\)\n))?",
    re.MULTILINE | re.DOTALL,
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Block:
    """One block of commands."""

    commands: tuple[str, ...]
    lines: str | None
    """Pattern of the lines that are shown; None: all."""
    text: str | None
    """The output as the page shows it; None without one."""
    svg: str | None
    """The recording that shows it, relative to the page."""


def blocks(page: str) -> list[Block]:
    """All blocks of a page's text, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        indent = len(match["indent"])
        lines = tuple(line[indent:] for line in match["commands"].splitlines() if line.strip())
        text = match["text"] and "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        found.append(Block(lines, match["lines"], text, match["svg"]))
    return found


def rewritten(page: str, outputs: list[str]) -> str:
    """The page with these outputs, one for each block; those that nobody shows are left out."""
    left = iter(outputs)

    def one(match: re.Match[str]) -> str:
        output = next(left)
        if match["open"] is None:
            return match[0]
        body = "".join(f"{match['indent']}{line}\n".replace(" \n", "\n") for line in output.splitlines())
        return match[0].replace(f"{match['open']}{match['text']}", f"{match['open']}{body}")

    return _BLOCK.sub(one, page)


def shown_in_color(raw: str, lines: str | None) -> str:
    """The part of a block's output that the page shows."""
    rows = [row for row in raw.splitlines() if _OF_A_SLOW_MACHINE not in row]
    kept = [row for row in rows if lines is None or re.search(lines, _ANSI.sub("", row))]
    return "\n".join(kept).strip("\n") + "\n"


def shown(raw: str, lines: str | None) -> str:
    """The same as plain text, without blanks at the ends of lines."""
    return "".join(f"{row.rstrip()}\n" for row in _ANSI.sub("", shown_in_color(raw, lines)).splitlines())


def normal(text: str) -> str:
    """The text without what differs between runs and machines. Equal hashes stay equal, different ones different."""
    seen: dict[str, str] = {}
    for pattern, word in _VARYING:
        text = pattern.sub(lambda found, word=word: word, text)
    text = _HASH.sub(lambda found: seen.setdefault(found[0], f"HASH{chr(ord('a') + len(seen))}"), text)
    return _NUMBER.sub("N", text).strip()


_OF_A_SLOW_MACHINE = "Matplotlib is building the font cache"
"""Told once, and only where it takes seconds."""
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b|\b[0-9a-f]{16,}\b")
_NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")
_DURATION = r"(?:\d[\d.,]* (?:ms|s|min|h|days?|weeks?|minutes?|hours?|seconds?)\b)"
_VARYING: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"unnamed-\w{4}"), "OWNER"),
    (re.compile(r"(?:file://)?(?:/[\w.~-]+){2,}/?|[~$][\w{}]*(?:/[\w.-]+)+"), "PATH"),
    (re.compile(r"(?:\w{3} )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[+-]\d\d:\d\d|Z| [A-Z]{3,4})?"), "TIME"),
    (re.compile(rf"{_DURATION}(?:(?: to | - | and |–| ){_DURATION})*"), "DURATION"),
    (re.compile(r"\d[\d.,]* (?:[kMGT]?i?B|bytes)\b"), "BYTES"),
    (re.compile(r"[━╌█▏▎▍▌▋▊▉]+"), "BAR"),
    (re.compile(r"\([^()]*DURATION[^()]*\)"), "(DURATIONS)"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"[─═]{3,}"), "RULE"),
]


def recorded(commands: tuple[str, ...], raw: str, title: str) -> str:
    """A picture of a terminal that has run the commands, as SVG: only text and shapes, and no address is loaded."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    for command in commands:
        console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(raw.rstrip("\n")))
    svg = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id=f"recording-{re.sub(r'[^a-z]', '', title)}")
    return re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def words(svg: str) -> str:
    """The text that a recording shows, a line a row of the terminal; its title is left out."""
    rows: dict[str, str] = {}
    for row, body in re.findall(r'<text class="[\w-]+-r\d+"[^>]*? y="([\d.]+)"[^>]*?>(.*?)</text>', svg, re.DOTALL):
        rows[row] = rows.get(row, "") + unescape(body).replace("\xa0", " ")
    return "\n".join(line.rstrip() for line in rows.values())


def differing(block: Block, raw: str, folder: Path) -> str:
    """What the page in the folder shows and what the run printed, if their words differ; "" if they agree."""
    told, was = "", ""
    if block.text is not None:
        told, was = normal(block.text), normal(shown(raw, block.lines))
        assert was, f"{block.commands}: nothing to show"
    elif block.svg is not None:
        path = folder / block.svg
        told = unwrapped(path.read_text(encoding="utf-8")) if path.exists() else ""
        was = unwrapped(picture(block, raw))
    return "" if told == was else f"the page shows\n{told}\nand the commands printed\n{was}"


def unwrapped(svg: str) -> str:
    """The words of a recording on one line: where a line ends depends on the length of its numbers."""
    return normal(" ".join(words(svg).split()))


def picture(block: Block, raw: str) -> str:
    """The recording that the block names, as SVG."""
    return recorded(block.commands, shown_in_color(raw, block.lines), Path(block.svg or "").stem)


def write(page: Path, outputs: list[str]) -> None:
    """Write the page's outputs and recordings."""
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    told = [shown(raw, block.lines) for block, raw in zip(found, outputs, strict=True)]
    page.write_text(rewritten(text, told), encoding="utf-8")
    for block, raw in zip(found, outputs, strict=True):
        if block.svg is not None:
            path = (page.parent / block.svg).resolve()
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture(block, raw), encoding="utf-8")
