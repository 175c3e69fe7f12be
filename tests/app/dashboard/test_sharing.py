"""`dashboard --push` and `compare`: what becomes public is listed first, and only then published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import Exit
from relay.core.names import Names
from tests.app.cli import PROJECT, Desk

LABEL = "Ada Lovelace's Colab"
NOTE = "call Ada at home"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Two runs, one of them with a note."""
    folder = tmp_path_factory.mktemp("sharing")
    desk = Desk(folder / "desk", {"RELAY_STORE": f"file://{folder / 'store'}"})
    desk("register", "account_1", LABEL)
    desk("run", "--run", "r", "--account", "account_1", "--until-step", "20", "--note", NOTE, code=Exit.HANDOFF)
    desk("run", "batch_size=8", "--run", "s", "--account", "account_1", "--new")
    return desk


def stored(desk: Desk) -> set[Path]:
    return {path for path in (desk.folder.parent / "store").rglob("*") if path.is_file()}


def test_a_note_is_on_the_page_but_not_on_a_redacted_one(desk: Desk) -> None:
    found = desk("dashboard", "--run", "r", "--json").json
    assert [(one["text"], one["account"], one["step"]) for one in found["notes"]] == [(NOTE, "account_1", 0)]
    assert ["batch_size", "4"] in found["settings"]
    redacted = desk("dashboard", "--run", "r", "--json", "--redact").json
    assert [one["text"] for one in redacted["notes"]] == [None] and NOTE not in json.dumps(redacted)


def test_a_push_lists_what_becomes_public_and_publishes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(desk)
    monkeypatch.setattr("relay.app.commands.looking.publishing.publish_space", None)
    for place in ("space:ada/relay", "store"):
        said = desk("dashboard", "--run", "r", "--push", place, "--json").json
        assert (said["pushed"], said["address"], said["public"]["redacted"]) == (False, None, True)
        assert said["public"]["accounts"] == ["account_1"] and said["public"]["notes"] == []
        assert (said["public"]["notes_left_out"], said["public"]["sessions"]) == (1, 1)
        assert "loss" in said["public"]["metrics"] and "batch_size" in said["public"]["settings"]
        assert all(one["bytes"] > 0 and len(one["sha256"]) == 64 for one in said["files"])
    text = desk("dashboard", "--run", "r", "--push", "store").out
    assert "Not published" in text and LABEL not in text and stored(desk) == before
    named = desk("dashboard", "--run", "r", "--push", "store", "--with-names", "--json").json
    assert named["public"]["accounts"] == [LABEL] and named["public"]["notes"] == [NOTE]


def test_with_yes_a_space_gets_the_page_without_names(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Mapping[str, bytes]] = {}

    def publish(space: str, files: Mapping[str, bytes]) -> str:
        sent[space] = files
        return f"https://hub.invalid/spaces/{space}"

    monkeypatch.setattr("relay.app.commands.looking.publishing.publish_space", publish)
    said = desk("dashboard", "--run", "r", "--push", "space:ada/relay", "--yes", "--json").json
    assert said["pushed"] and said["address"].endswith("ada/relay")
    files = sent["ada/relay"]
    assert set(files) == {"index.html", "README.md"} and b"sdk: static" in files["README.md"]
    page = files["index.html"].decode()
    assert [one["bytes"] for one in said["files"]] == [len(data) for data in files.values()]
    assert not [word for word in ("Lovelace", NOTE, str(desk.folder.parent)) if word in page]


def test_with_yes_the_store_gets_the_page_next_to_the_ledger(desk: Desk) -> None:
    said = desk("dashboard", "--run", "r", "--push", "store", "--yes", "--json").json
    path = desk.folder.parent / "store" / Names(PROJECT, "r").page
    assert path.is_file() and said["address"].endswith(Names(PROJECT, "r").page)
    assert "Lovelace" not in path.read_text()
    assert desk("verify", "--run", "r", "--json").json["ok"]
    assert desk("runs", "list", "--json").json["runs"]


@pytest.mark.parametrize("place", ["ada/relay", "space:ada", "space:../x", "https://x", ""])
def test_another_place_is_refused(desk: Desk, place: str) -> None:
    assert "space:OWNER/NAME" in desk("dashboard", "--run", "r", "--push", place or "space:", code=2).err


def test_options_that_do_not_fit_are_refused(desk: Desk) -> None:
    assert "--push" in desk("dashboard", "--run", "r", "--yes", code=2).err
    assert "--port" in desk("dashboard", "--run", "r", "--push", "store", "--port", "8000", code=2).err
    assert "--export" in desk("dashboard", "--run", "r", "--push", "store", "--export", "x.html", code=2).err


def test_the_hub_is_asked_for_a_static_space_and_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    from storage.contract import BadAddress, Denied, Unavailable
    from storage.hf.space import publish_space

    calls: list[tuple[str, Any]] = []

    class Api:
        status = 0

        def __init__(self, endpoint: str) -> None:
            pass

        def create_repo(self, repo: str, **more: Any) -> None:
            if Api.status:
                error = huggingface_hub.errors.HfHubHTTPError.__new__(huggingface_hub.errors.HfHubHTTPError)
                error.response = type("Response", (), {"status_code": Api.status})()
                raise error
            calls.append((repo, more))

        def create_commit(self, repo: str, added: Any, **more: Any) -> None:
            calls.append((repo, {one.path_in_repo: one.path_or_fileobj for one in added} | more))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    address = publish_space("ada/relay", {"index.html": b"page"})
    assert address.endswith("/spaces/ada/relay")
    (_, made), (_, commit) = calls
    assert (made["repo_type"], made["space_sdk"], made["exist_ok"]) == ("space", "static", True)
    assert commit["index.html"] == b"page" and commit["repo_type"] == "space"
    for status, kind in ((403, Denied), (503, Unavailable)):
        Api.status = status
        with pytest.raises(kind):
            publish_space("ada/relay", {})
    with pytest.raises(BadAddress):
        publish_space("../relay", {})


def test_compare_shows_cost_metrics_and_the_settings_that_differ(desk: Desk) -> None:
    found = desk("compare", "r", f"{PROJECT}/s", "--export", "both.html", "--json").json
    assert [(row["run"], row["step"], row["state"]) for row in found["runs"]] == [
        ("r", 20, "idle"),
        ("s", 40, "finished"),
    ]
    assert [one for one in found["differences"] if one["key"] == "batch_size"] == [
        {"key": "batch_size", "values": ["4", "8"]}
    ]
    assert found["same"] >= 2 and all("loss" in row["metrics"] for row in found["runs"])
    page = (desk.folder / "both.html").read_text()
    assert found["file"]["bytes"] == len(page.encode()) and "Lovelace" in page
    text = desk("compare", "r", "s").out
    assert "batch_size" in text and "other settings equal" in text
    redacted = desk("compare", "r", "s", "--redact", "--export", "both.html", "--json").json
    assert "Lovelace" not in (desk.folder / "both.html").read_text() and redacted["runs"][0]["who"] == "account_1"


@pytest.mark.parametrize("names", [("r",), ("r", "r"), tuple("abcdefghi")])
def test_fewer_than_two_or_more_than_eight_are_refused(desk: Desk, names: tuple[str, ...]) -> None:
    assert "2 to 8" in desk("compare", *names, code=2).err


def test_a_run_that_is_not_there_is_named(desk: Desk) -> None:
    assert "nothing_here" in desk("compare", "r", "nothing_here", code=78).err
