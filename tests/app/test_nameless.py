"""A page without names: people's labels in every form, notes and paths go; the program's own words and ids stay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.app.nameless import public_page


def page(text: str, **more: Any) -> dict[str, Any]:
    row = {"account": "account_1", "kind": "planned", "end": text, "report": {"incidents": [text, f"note: {text}"]}}
    return {
        "header": {"phase": "training"},
        "accounts": [{"id": "account_1", "label": "account_1", "state": "ready"}],
        "sessions": [row, {"account": "account_2", "report": None}],
        "incidents": [{"cause": "note", "text": text}, {"cause": "crash", "text": f"seen by {text}!"}],
        "notes": [{"account": "account_1", "text": text}],
        "settings": [["data.train", text]],
        **more,
    }


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        ("<b>Ada</b>", "<b>Ada</b>"),
        ("\x1b[31mAda\x1b[0m", "[31mAda[0m"),
        ("Ada\u202e\u200bLovelace", "AdaLovelace"),
        ("\u0623\u062f\u0627 L", "\u0623\u062f\u0627 L"),
    ],
)
def test_a_label_is_replaced_as_it_is_stored_and_as_it_is_shown(label: str, shown: str) -> None:
    for text in (label, shown):
        found = json.dumps(public_page(page(text), {label: "account_1"}), ensure_ascii=False)
        assert text not in found and "seen by account_1!" in found


@pytest.mark.parametrize("label", ["training", "planned", "account_1", "ready", "note"])
def test_a_label_that_equals_a_word_or_an_id_of_ours_breaks_nothing(label: str) -> None:
    found = public_page(page("nothing"), {label: "account_2"})
    assert found["header"]["phase"] == "training" and found["sessions"][0]["kind"] == "planned"
    assert [row["account"] for row in found["sessions"]] == ["account_1", "account_2"]
    assert found["accounts"][0]["id"] == "account_1" and found["accounts"][0]["state"] == "ready"


def test_notes_and_paths_are_left_out() -> None:
    found = public_page(page("/home/ada/data"), {})
    assert found["notes"] == [{"account": "account_1", "text": None}]
    assert found["sessions"][0]["report"]["incidents"] == ["/home/ada/data"], "the session's note is gone"
    assert found["incidents"][0]["text"] == "A note, left out here."
    paths = ["/home/ada/x", "~/x y", "C:\\Users\\ada\\x", "s3://bucket/ada", "see '/mnt/ada'", "data/train", "1/2"]
    board = {"differences": [{"key": "data.train", "values": paths}]}
    told = public_page(board, {})["differences"][0]["values"]
    assert not [text for text in told if "ada" in text] and told[-2:] == ["data/train", "1/2"]
