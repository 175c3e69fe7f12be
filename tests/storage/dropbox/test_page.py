"""The Python of docs/how-to/dropbox.md does what the page says."""

from __future__ import annotations

import re

import pytest

from tests.storage.dropbox.handle import Fake, Person
from tests.storage.fakes.process import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/dropbox.md").read_text(), re.DOTALL)

ASKED = (
    "https://www.dropbox.com/oauth2/authorize?",
    "code_challenge",
    "token_access_type=offline",
    "files.content.write",
)
"""Of the address that a person opens."""


def run(block: str, *, answers: list[str]) -> None:
    """Execute a block as a person would who types these answers."""
    code = compile(block, "docs/how-to/dropbox.md", "exec")
    exec(code, {"input": lambda _: answers.pop(0)})  # noqa: S102 - our own page


def test_the_token_of_the_page_opens_the_store(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    run(BLOCKS[0], answers=[person.holds["app_key"] + "\n", f"code-{person.name}"])
    out = capsys.readouterr().out
    assert all(part in out for part in ASKED)
    assert out.strip().endswith(f"DROPBOX_REFRESH_TOKEN = {person.holds['refresh_token']}")


def test_the_number_of_the_page_is_the_shared_folders(
    person: Person, fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in person.environ.items():
        monkeypatch.setenv(name, value)
    fake.control("share", id="5501", accounts={person.name: "/Name of the folder"})
    run(BLOCKS[1], answers=[])
    number = capsys.readouterr().out.strip()
    store = person.store(f"dropbox://ns:{number}/relay")
    store.put("a", b"data")
    assert person.look(namespace="5501")["files"] == {"/relay/a": 4}
    mounted = person.store("dropbox:///name of the folder")
    assert [stat.name for stat in mounted.list("")] == ["relay/a"]
