"""`login`: each provider's own flow against a double of its service; what it keeps, and that it shows no secret."""

from __future__ import annotations

import http.client
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from relay.app.logins import Terminal
from relay.app.machine.tokenfile import keep, path_of
from relay.app.notebooks.notebook import Notebook, Stopped
from storage.base import open_store
from storage.drive.credentials import NARROW
from storage.drive.store import DriveStore
from storage.dropbox.login import SCOPES
from storage.guides import GUIDES
from storage.packages import install
from tests.app.cli import Desk, Result
from tests.storage.drive.fake.world import CLIENT, SECRET
from tests.storage.drive.handle import running as drive_running
from tests.storage.dropbox.handle import Person
from tests.storage.dropbox.handle import running as dropbox_running
from tests.storage.fakes.process import ROOT
from tests.storage.hf.handle import running as hf_running

TELL = Terminal.tell
Browser = Callable[[str], str]
"""Opens the page of an address as a person does; returns what the person copies from there."""
INSTALLED = {"installed": {"client_id": CLIENT, "client_secret": SECRET, "token_uri": "https://evil.example/token"}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ana")


def page(port: int, url: str, **more: str) -> tuple[str, bytes]:
    """Where a browser that opens a provider's page is sent, and what it shows."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    target = f"{parts.path}?{parts.query}{'&' if more else ''}{urlencode(more)}"
    connection.request("GET", target, headers={"Host": parts.netloc})
    with closing(connection), connection.getresponse() as answer:
        return answer.headers.get("Location", ""), answer.read()


def google(person: str = "allow", alter: Callable[[str], str] = str) -> Browser:
    """The browser of somebody who is signed in to Google."""

    def copied(url: str) -> str:
        return alter(page(drive_running().port, url, login_hint="ana", person=person)[0])

    return copied


def dropbox(url: str) -> str:
    """The browser of somebody who is signed in to Dropbox."""
    found = re.search(rb"<b>(.+)</b>", page(dropbox_running().port, url)[1])
    assert found
    return found[1].decode()


class Seat:
    """A person in front of a terminal or cell: hears lines, answers questions in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, browser: Browser | None, *answers: str) -> None:
        self.lines: list[str] = []
        self.secrets: list[str] = []
        """What was typed without being shown."""
        self._browser, self._answers = browser, list(answers)

        def tell(terminal: Terminal, text: str) -> None:
            self.lines.append(text)
            TELL(terminal, text)

        monkeypatch.setattr(Terminal, "tell", tell)
        monkeypatch.setattr(Terminal, "ask", lambda _, prompt, secret=False: self.answer(secret))

    @property
    def address(self) -> str:
        return next(line for text in self.lines for line in text.splitlines() if line.startswith("https://"))

    def answer(self, secret: bool = False) -> str:
        given = self._answers.pop(0) if self._answers else self._browser(self.address)  # type: ignore[misc]
        self.secrets += [given] * secret
        return given


def client_file(desk: Desk) -> Path:
    path = desk.folder / "client.json"
    path.write_text(json.dumps(INSTALLED))
    return path


def held(desk: Desk, service: str) -> dict[str, str]:
    """What the file keeps, whose mode is 600."""
    path = path_of({"HOME": str(desk.folder)}, service)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir() if item.name.startswith(".")] == []
    return dict(json.loads(path.read_text()))


def shows_none(result: Result, seat: Seat, *values: str) -> None:
    said = "\n".join([result.out, result.err, *seat.lines])
    assert all(values) and not [value for value in values if value in said]


@pytest.mark.slow
def test_drive_asks_for_the_one_narrow_permission_by_pkce_and_the_file_opens_a_store(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_running()
    seat = Seat(monkeypatch, google())
    result = desk("login", "drive", "--client", str(client_file(desk)), "--json")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(seat.address).query).items()}
    assert asked["scope"] == NARROW and asked["access_type"] == "offline" and asked["code_challenge_method"] == "S256"
    assert result.json["variables"] == ["RELAY_DRIVE_TOKEN"]
    token = json.loads(held(desk, "drive")["RELAY_DRIVE_TOKEN"])
    assert sorted(token) == ["client_id", "client_secret", "refresh_token", "type"]
    shows_none(result, seat, token["refresh_token"], token["client_secret"])
    desk("config", "show", RELAY_STORE="drive://new")
    monkeypatch.setenv("RELAY_DRIVE_TOKEN", desk.handed_on["RELAY_DRIVE_TOKEN"])
    made = desk("init", "--run", "r", "--json", RELAY_STORE="drive://new").json["address"]
    assert isinstance(open_store(made.partition("#")[0]), DriveStore)


@pytest.mark.parametrize(
    ("browser", "fact", "code"),
    [
        (google("deny"), "access_denied", 69),
        (google("untick"), "permission", 69),
        (google("more"), "permission", 69),
        (google(alter=lambda url: url.replace("state=", "state=x")), "another sign-in", 78),
        (google(alter=lambda url: re.sub("code=[^&]+", "code=4/made-up", url)), "invalid_grant", 69),
        (google(alter=lambda url: re.sub("code=[^&]+", "", url)), "no code", 78),
        (lambda url: "", "othing was entered", 78),
    ],
    ids=["denied", "unticked", "more", "state", "code", "cut", "empty"],
)
def test_what_google_or_the_person_does_not_grant_keeps_no_file(
    browser: Browser, fact: str, code: int, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_running()
    seat = Seat(monkeypatch, browser)
    result = desk("login", "drive", "--client", str(client_file(desk)), code=code)
    assert fact in result.err
    assert not path_of({"HOME": str(desk.folder)}, "drive").exists()
    shows_none(result, seat, SECRET)


def test_a_code_of_another_sign_in_is_worth_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By PKCE: a code that somebody else saw, here of a page opened with another challenge."""
    drive_running()

    def stolen(url: str) -> str:
        other = re.sub(r"code_challenge=[^&]+", "code_challenge=" + "A" * 43, url)
        return google()(other)

    Seat(monkeypatch, stolen)
    result = desk("login", "drive", "--client", str(client_file(desk)), code=69)
    assert "invalid_grant" in result.err


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"web": {}}', '{"installed": {"client_id": "x"}}'])
def test_another_file_than_an_oauth_client_is_refused(text: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    Seat(monkeypatch, google())
    (desk.folder / "client.json").write_text(text)
    assert GUIDES["drive"] in desk("login", "drive", "--client", "client.json", code=78).err


@pytest.fixture
def person() -> Person:
    return dropbox_running().account()


def test_dropbox_asks_for_three_permissions_by_pkce_and_the_file_opens_the_folder(
    person: Person, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = person.holds["app_key"]
    seat = Seat(monkeypatch, dropbox)
    result = desk("login", "dropbox", "--json", DROPBOX_APP_KEY=key)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(seat.address).query).items()}
    assert sorted(asked["scope"].split()) == sorted(SCOPES) and asked["code_challenge_method"] == "S256"
    assert f"{seat.address}\n" in result.err, "whole, although the app's key and other parts look like secrets"
    assert held(desk, "dropbox") == person.environ
    shows_none(result, seat, person.holds["refresh_token"])
    for name in ("DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY"):
        monkeypatch.delenv(name, raising=False)
    desk.handed_on.clear()
    desk("config", "show", RELAY_STORE="dropbox:///relay")
    assert desk.handed_on == person.environ


def test_dropbox_refuses_a_wrong_code_and_an_app_without_its_permissions(
    person: Person, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = person.holds["app_key"]
    Seat(monkeypatch, lambda url: "made-up-code")
    refused = desk("login", "dropbox", "--app-key", key, code=69)
    assert "made-up-code" not in refused.err + refused.out
    person.change(scopes=["account_info.read", "files.metadata.read", "files.content.read"])
    Seat(monkeypatch, dropbox)
    assert "files.content.write" in desk("login", "dropbox", "--app-key", key, code=69).err
    assert not path_of({"HOME": str(desk.folder)}, "dropbox").exists()


@pytest.fixture
def signing_in(desk: Desk, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Runs `login hf` in a process of its own, as huggingface_hub reads its settings when it is imported."""
    fake = hf_running()

    def run(outcome: str, typed: str, *words: str) -> tuple[int, str, str]:
        environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | fake.environ()
        environ |= {"HOME": str(desk.folder), "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        fake.control("set", outcome=outcome)
        command = [sys.executable, str(ROOT / "rotate_accounts.py"), "login", "hf", *words]
        done = subprocess.run(command, env=environ, cwd=desk.folder, input=typed, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_hugging_face_signs_in_by_its_library_and_keeps_the_keys_of_the_page(
    signing_in: Callable[..., tuple[int, str, str]], desk: Desk, tmp_path: Path
) -> None:
    fake = hf_running()
    keys = fake.key()
    code, out, err = signing_in("ana", "{AWS_ACCESS_KEY_ID}\n{AWS_SECRET_ACCESS_KEY}\n".format(**keys), "--json")
    assert code == 0, err
    assert json.loads(out)["variables"] == sorted(keys)
    assert "https://huggingface.co/oauth/device" in err and "52AT-FLYZ" in err and "settings/tokens" in err
    assert held(desk, "hf") == keys
    token = (tmp_path / "hf" / "token").read_text()
    assert token in fake.look()["tokens"]
    assert not [value for value in (token, *keys.values()) if value in out + err]


@pytest.mark.slow
def test_a_refused_sign_in_of_hugging_face_keeps_nothing(
    signing_in: Callable[..., tuple[int, str, str]], desk: Desk
) -> None:
    code, _, err = signing_in("access_denied", "")
    assert code == 69 and "access_denied" in err
    assert not path_of({"HOME": str(desk.folder)}, "hf").exists()


def test_keys_alone_need_no_sign_in_and_the_file_opens_the_bucket(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = hf_running()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{fake.port}")
    keys, address = fake.key(), fake.bucket()
    seat = Seat(monkeypatch, None, *keys.values())
    result = desk("login", "hf", "--keys-only")
    assert seat.secrets == [keys["AWS_SECRET_ACCESS_KEY"]] and held(desk, "hf") == keys
    shows_none(result, seat, *keys.values())
    for name in keys:
        monkeypatch.delenv(name, raising=False)
    desk("config", "show", RELAY_STORE=address)
    for name, value in desk.handed_on.items():
        monkeypatch.setenv(name, value)
    assert open_store(address).put("a", b"x")
    Seat(monkeypatch, None, "hf_abcdefghijklmnop")
    mistaken = desk("login", "hf", "--keys-only", code=78)
    assert "HFAK" in mistaken.err and "hf_abcdefghijklmnop" not in mistaken.err


@pytest.mark.parametrize("service", ["drive", "dropbox", "hf"])
def test_a_missing_package_names_its_extra(service: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    Seat(monkeypatch, None, "x")
    monkeypatch.setattr(f"storage.{service}.login.find_spec", lambda name: None)
    assert install(service) in " ".join(desk("login", service, code=78).err.split())


def test_another_word_than_a_service_is_refused_and_forget_removes_the_file(desk: Desk) -> None:
    assert all(name in desk("login", "gcs", code=2).err for name in ("drive", "dropbox", "hf"))
    path = path_of({"HOME": str(desk.folder)}, "drive")
    keep(path, {"RELAY_DRIVE_TOKEN": "{}"})
    assert desk("login", "drive", "--forget", "--json").json["removed"] is True and not path.exists()
    assert desk("login", "drive", "--forget", "--json").json["removed"] is False


def test_the_environment_comes_before_the_file_and_a_strange_file_is_refused(desk: Desk) -> None:
    path = path_of({"HOME": str(desk.folder)}, "dropbox")
    ours: dict[str, Any] = {"DROPBOX_REFRESH_TOKEN": "refresh-of-file", "DROPBOX_APP_KEY": "key-of-file"}
    keep(path, ours)
    desk("config", "show", RELAY_STORE="dropbox:///relay", DROPBOX_ACCESS_TOKEN="sl.of-the-environment")
    assert not set(ours) & set(desk.handed_on)
    for strange in ({"PATH": "/evil"}, {**ours, "LD_PRELOAD": "x"}, {"DROPBOX_APP_KEY": 1}, ["a"]):
        path.write_text(json.dumps(strange))
        assert str(path) in desk("config", "show", RELAY_STORE="dropbox:///relay", code=78).err
    desk("config", "show", RELAY_STORE="s3://bucket/x")


def test_a_notebook_signs_in_inside_its_kernel(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"HOME": str(tmp_path)}
    notebook = Notebook(folder=tmp_path, environ=environ)
    shown: list[str] = []

    def typed(prompt: str) -> str:
        shown.append(capsys.readouterr().out)
        return dropbox(next(line for line in shown[-1].splitlines() if line.startswith("https://")))

    monkeypatch.setattr("builtins.input", typed)
    notebook.log_in("dropbox", app_key=person.holds["app_key"])
    assert {name: environ[name] for name in person.environ} == person.environ
    assert json.loads(path_of(environ, "dropbox").read_text()) == person.environ
    assert person.holds["refresh_token"] not in "".join(shown) + capsys.readouterr().out
    monkeypatch.setattr("builtins.input", lambda prompt: "made-up")
    with pytest.raises(Stopped):
        notebook.log_in("dropbox", app_key=person.holds["app_key"])
    with pytest.raises(Stopped):
        notebook.log_in("gcs")
