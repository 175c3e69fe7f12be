"""Addresses that look like others: what is no address makes no folder, and every folder's address leads back to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from storage.base import BadAddress, is_address, open_store
from storage.kinds import KINDS
from tests.app.cli import Desk
from tests.facts import raising


@pytest.mark.parametrize(
    "text",
    [
        "file:/mnt/x",
        "s3:bucket/x",
        "FILE:/x",
        r"C:\relay",
        "C:/relay",
        "http:x",
        "S3//x",
        *(f"{one}//x" for one in KINDS),
    ],
)
def test_what_begins_as_an_address_is_no_folder(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raising(BadAddress, text, f"./{text}"):
        open_store(text)
    assert is_address(text)
    open_store(f"./{text}").put("a", b"1")  # whoever means such a folder can say so


@pytest.mark.parametrize(
    "text", ["file:///x", "s3://b", "/mnt/a:b", "./a:b", "~/x", "x", "s3/x", "./s3//x", "nas//x", ""]
)
def test_addresses_and_paths_are_told_apart(text: str) -> None:
    assert is_address(text) == ("://" in text)


@pytest.mark.parametrize("middle", ["\n", "\r\n", "\t"])
def test_an_address_on_two_lines_is_refused_and_not_taken_for_another(middle: str, tmp_path: Path) -> None:
    with raising(BadAddress, repr(f"st{middle}ore")[1:-1]):
        open_store(f"file://{tmp_path}/st{middle}ore")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_end_of_a_line_after_an_address_changes_nothing(end: str, tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/store{end}").address == f"file://{tmp_path}/store"


SECRET = "hunter2"
MISTAKEN = [
    f'"s3://{SECRET}/relay"',
    f"'dropbox:///{SECRET}'",
    f"“s3://{SECRET}”",
    f'"/mnt/{SECRET}"',
    f"`{SECRET}`",
    f" s3://{SECRET}/relay",
    f"s3://{SECRET}/relay ",
    f"\ts3://{SECRET}",
    f"\u00a0file:///{SECRET}",
    f"\ufeffs3://{SECRET}",
    f" {SECRET}",
    f"{SECRET} ",
    f"{SECRET}\n",
    rf"\\nas\{SECRET}\relay",
    f"ana@nas:/export/{SECRET}",
    f"$HOME/{SECRET}",
    f"${{STORE}}/{SECRET}",
    f"RELAY_STORE=s3://{SECRET}",
    f"./x/s3://{SECRET}",
]
"""Texts that are neither an address nor meant as the name of a folder; each may hold a secret."""


@pytest.mark.parametrize("text", MISTAKEN)
def test_a_text_that_is_no_folder_name_opens_nothing_and_is_not_repeated(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_address(text), "so that no setting makes a path of it"
    for read_only in (True, False):
        with pytest.raises(BadAddress) as refused:
            open_store(text, read_only=read_only)
        assert SECRET not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['"x"', "$HOME/x", "ana@nas:x"])
def test_a_folder_of_such_a_name_can_be_written_with_a_dot(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(f"./{text}").put("a", b"1")
    assert (tmp_path / text / "a").is_file()


@pytest.mark.parametrize(
    "text", ['"s3://bucket/relay"', " s3://bucket/relay", "relay ", r"\\nas\share", " relay#id=" + "0" * 32]
)
@pytest.mark.parametrize("given", ["variable", "file", "option", "second store", "demo"])
def test_every_place_of_an_address_refuses_it(text: str, given: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    words, variables = ["run", "--run", "r", "--target-steps", "4"], {"RELAY_STORE": ""}
    if given == "variable":
        variables = {"RELAY_STORE": text}
    elif given == "second store":
        variables = {"RELAY_STORE": "good", "RELAY_CHECKPOINT_STORE": text}
    elif given == "option":
        words.append(f"storage.url={text}")
    elif given == "demo":
        words = ["demo", "--store", text]
    else:
        (desk.folder / "config_multi_account.yaml").write_text(yaml.safe_dump({"storage": {"url": text}}))
    before = sorted(desk.folder.iterdir())
    for command in [words] if given == "demo" else [words, ["status", "--run", "r", *words[5:]]]:
        desk(*command, code=78, **variables)
    made = {path.name for path in set(desk.folder.iterdir()) - set(before)}
    assert made <= {"sync"}, "no store was begun"


@pytest.mark.parametrize("leaf", [b"a b", b"50%", b"%20", b"#x?y", b"n\nl", b"\xff\xfe", "שלום 😀".encode(), b"[b]"])
def test_the_address_of_a_folder_leads_back_to_it(leaf: bytes, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / os.fsdecode(leaf)))
    ref = store.put("a", b"1")
    assert open_store(store.address).get(ref) == b"1"
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [leaf]


def test_a_home_that_nobody_has_is_a_bad_address() -> None:
    with raising(BadAddress, "~nobody-has-this-name/x"):
        open_store("~nobody-has-this-name/x")
