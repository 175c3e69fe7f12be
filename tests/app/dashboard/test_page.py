"""The page: no content of the document is markup, and nothing that is not ours can run or be fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.dashboard.data import Seen
from relay.app.dashboard.page import RUN_SCRIPTS, SCRIPTS, STYLES, embedded, export, served, static, whole
from relay.core.errors import BadConfig
from relay.core.ledger.state import Incident
from relay.people.status import AccountRow
from tests.app.shown import document
from tests.people.views import NOW, trained, view

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>'\"&\u2028\u202e\x00]]>"
STATIC = files("relay.app.dashboard").joinpath("static")
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


class Tags(HTMLParser):
    """Every tag, its attributes, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            self.inside.append((self.found[-1][1], data))


def hostile() -> dict[str, Any]:
    noted = (Incident(at=NOW, epoch=1, step=1, account=None, cause=HOSTILE[:20], text=HOSTILE),)
    run = trained(incidents=noted, halted=HOSTILE, metrics={"<b>": 1.0})
    return document(Seen(view(run, (AccountRow("account_1", HOSTILE, "ready"),), store=HOSTILE)))


@pytest.mark.parametrize("page", [served, whole])
def test_a_hostile_name_adds_no_tag_and_no_attribute(page: Any) -> None:
    harmless = document(Seen(view(trained())))
    hurt, plain = Tags(page(hostile())), Tags(page(harmless))
    assert [tag for tag, _ in hurt.found] == [tag for tag, _ in plain.found]
    events = [name for _, attributes in hurt.found for name in attributes if name.startswith("on")]
    assert events == [] and not any("style" in attributes for _, attributes in hurt.found)


@given(st.recursive(st.text() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_what_is_embedded_is_read_back_and_has_no_character_of_markup(value: Any) -> None:
    text = embedded({"x": value})
    assert json.loads(text) == {"x": value}
    assert not re.search("[<>&\u2028\u2029]", text) and text.isascii()


def test_the_file_allows_its_own_scripts_and_styles_by_their_hash_and_nothing_else() -> None:
    tags = Tags(whole(hostile()))
    (policy,) = [a["content"] for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy and "default-src 'none'" in policy and "unsafe" not in policy and "connect-src" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    running = [
        text for attributes, text in tags.inside if attributes.get("type") != "application/json" and text.strip()
    ]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running} == allowed
    assert len(allowed) == len(STYLES) + len(RUN_SCRIPTS)
    assert not [a for _, a in tags.found if "src" in a or str(a.get("href", "#")).startswith(("http", "/"))]


def test_nothing_that_is_shipped_names_another_address() -> None:
    for name in (*STYLES, *SCRIPTS, "shell.html", "run.html", "board.html", "controls.html"):
        named = set(re.findall(r"(?:https?:)?//[a-z][a-z0-9.]+\.[a-z]{2,}[^\s\"')]*", static(name)))
        assert named <= {"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}, name


def test_the_vendored_plots_are_the_published_ones_with_their_licence() -> None:
    note = STATIC.joinpath("uPlot.md").read_text()
    for name, sha256 in VENDORED.items():
        assert hashlib.sha256(STATIC.joinpath(name).read_bytes()).hexdigest() == sha256
        assert sha256 in note and name in note
    assert "1.6.32" in note and "v1.6.32" in static("uPlot.iife.min.js")[:80]
    assert "MIT License" in STATIC.joinpath("uPlot.LICENSE").read_text()[:80]


def test_our_scripts_make_no_markup_from_text() -> None:
    ours = [name for name in SCRIPTS if not name.startswith("uPlot")]
    source = "\n".join(static(name) for name in ours)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.on[a-z]+ =", source
    )


def test_the_file_replaces_another_at_once_or_says_where_it_cannot(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text("old")
    found = export(hostile(), path)
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["bytes"] == path.stat().st_size < 400_000
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]
    with pytest.raises(BadConfig, match=r"run\.html"):
        export(hostile(), tmp_path / "absent" / "run.html")
    with pytest.raises(BadConfig, match=re.escape(str(tmp_path))):
        export(hostile(), tmp_path)


def test_the_documentation_s_pictures_are_there_and_small() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "how-to" / "dashboard.md").read_text()
    for name in ("light", "dark", "phone"):
        picture = root / "docs" / f"dashboard-{name}.png"
        assert picture.stat().st_size <= 200_000 and picture.name in page
