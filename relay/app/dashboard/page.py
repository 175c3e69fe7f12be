"""Writes the page's HTML around a document, for the server or as one file; nothing of the document is markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from relay.app.handout import hand_out

STYLES = ("uPlot.min.css", "style.css")
_SHARED = ("uPlot.iife.min.js", "dom.js", "page.js", "curves.js", "download.js")
RUN_SCRIPTS = (*_SHARED, "timeline.js", "runcharts.js", "panels.js", "app.js")
BOARD_SCRIPTS = (*_SHARED, "board.js")
SCRIPTS = (*RUN_SCRIPTS, "board.js")
COMMON = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
SERVED_POLICY = (
    f"{COMMON}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
"""Content-Security-Policy header of the served page."""
MIME = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@cache
def static(name: str) -> str:
    """Return the text of a static file of this package."""
    return files("relay.app.dashboard").joinpath("static", name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Kind:
    """One of the two pages."""

    body: str
    """Its file of markup."""
    scripts: tuple[str, ...]


RUN, BOARD = Kind("run.html", RUN_SCRIPTS), Kind("board.html", BOARD_SCRIPTS)
"""The page of a run (relay.dashboard/1), and that of several (relay.board/1)."""
ALL = ' <a href="/runs">All runs of the store</a>'


def served(document: Mapping[str, Any], kind: Kind = RUN) -> str:
    """Return the page for the server; it fetches its scripts and styles, and listens for new versions."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">\n' for name in STYLES)
    scripts = "".join(f'<script src="/static/{name}" defer></script>\n' for name in kind.scripts)
    return _page(document, kind, styles + scripts, live=True)


def whole(document: Mapping[str, Any], kind: Kind = RUN) -> str:
    """Return the page as one self-contained file, for a mail, an archive or a notebook.

    Its policy lists its scripts and styles by SHA-256, so no others can run.
    """
    styles, scripts = [static(name) for name in STYLES], [static(name) for name in kind.scripts]
    policy = (
        f"{COMMON}; script-src {' '.join(map(_hashed, scripts))}; style-src {' '.join(map(_hashed, styles))}; "
        "require-trusted-types-for 'script'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">\n'
    head += "".join(f"<style>{text}</style>\n" for text in styles)
    return _page(document, kind, head, live=False, tail="".join(f"<script>{text}</script>\n" for text in scripts))


def embedded(document: Mapping[str, Any]) -> str:
    """Return JSON with `<`, `>` and `&` escaped, which is safe inside an HTML script element."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _page(document: Mapping[str, Any], kind: Kind, head: str, live: bool, tail: str = "") -> str:
    title = html.escape(document["title"] if kind is BOARD else f"{document['run']} · {document['project']}")
    data = f'<script type="application/json" id="data">{embedded(document)}</script>\n'
    body = static(kind.body).replace("<!--controls-->", static("controls.html"))
    shell = static("shell.html").replace("<!--live-->", "live" if live else "file").replace("<!--main-->", body)
    shell = shell.replace("<!--all-->", ALL if live and kind is RUN else "")
    opening, closing = shell.split("<!--data-->")
    opening = opening.replace("<!--title-->", title).replace("<!--head-->", head)
    return opening + data + tail + closing


def export(document: Mapping[str, Any], path: Path, kind: Kind = RUN) -> dict[str, Any]:
    """Replace the file atomically; returns relay.dashboard-file/1. Raises BadConfig (78) if it cannot be written."""
    made = hand_out(path, whole(document, kind).encode(), "Give --export another file.")
    return {"schema": "relay.dashboard-file/1", **made}
