"""The Python of docs/how-to/drive-dropbox.md works; its sign-in is tests/app/commands/test_login.py."""

from __future__ import annotations

import re

import pytest

from tests.storage.dropbox.handle import Fake, Person
from tests.storage.fakes.process import ROOT

(BLOCK,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/drive-dropbox.md").read_text(), re.DOTALL)


def run(block: str) -> None:
    """Execute a block as a person would who pastes it."""
    exec(compile(block, "docs/how-to/drive-dropbox.md", "exec"), {})  # noqa: S102 - our own page


def test_the_number_of_the_page_is_the_shared_folders(
    person: Person, fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in person.environ.items():
        monkeypatch.setenv(name, value)
    fake.control("share", id="5501", accounts={person.name: "/Name of the folder"})
    run(BLOCK)
    number = capsys.readouterr().out.strip()
    store = person.store(f"dropbox://ns:{number}/relay")
    store.put("a", b"data")
    assert person.look(namespace="5501")["files"] == {"/relay/a": 4}
    mounted = person.store("dropbox:///name of the folder")
    assert [stat.name for stat in mounted.list("")] == ["relay/a"]
