"""The page's HTML around a document, served or as one file; knows no store. Nothing of the document is markup.

Scripts and styles are named by their SHA-256 in the page's own policy, so that nothing else can run in it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from relay.app.handout import hand_out

STYLES = ("uPlot.min.css", "style.css")
SCRIPTS = ("uPlot.iife.min.js", "dom.js", "panels.js", "charts.js", "app.js")
COMMON = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
SERVED_POLICY = (
    f"{COMMON}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
"""Of the served page, as a header."""
MIME = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@cache
def static(name: str) -> str:
    """One of the files that come with the program."""
    return files("relay.app.dashboard").joinpath("static", name).read_text(encoding="utf-8")


def served(document: Mapping[str, Any]) -> str:
    """The page as the server gives it: it fetches its scripts and styles, and asks for news."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">\n' for name in STYLES)
    scripts = "".join(f'<script src="/static/{name}" defer></script>\n' for name in SCRIPTS)
    return _page(document, styles + scripts, live=True)


def whole(document: Mapping[str, Any]) -> str:
    """The page as one file that needs nothing else: for a mail, an archive, a notebook's frame."""
    styles, scripts = [static(name) for name in STYLES], [static(name) for name in SCRIPTS]
    policy = (
        f"{COMMON}; script-src {' '.join(map(_hashed, scripts))}; style-src {' '.join(map(_hashed, styles))}; "
        "require-trusted-types-for 'script'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">\n'
    head += "".join(f"<style>{text}</style>\n" for text in styles)
    return _page(document, head, live=False, tail="".join(f"<script>{text}</script>\n" for text in scripts))


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that no parser of HTML ends early or reads anything else from."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _page(document: Mapping[str, Any], head: str, live: bool, tail: str = "") -> str:
    title = html.escape(f"{document['run']} · {document['project']}")
    data = f'<script type="application/json" id="data">{embedded(document)}</script>\n'
    shell = static("shell.html").replace("<!--live-->", "live" if live else "file")
    opening, closing = shell.split("<!--data-->")
    opening = opening.replace("<!--title-->", title).replace("<!--head-->", head)
    return opening + data + tail + closing


def export(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace the file at once: relay.dashboard-file/1. Raises BadConfig (78) where it cannot be written."""
    made = hand_out(path, whole(document).encode(), "Give --export another file.")
    return {"schema": "relay.dashboard-file/1", **made}
