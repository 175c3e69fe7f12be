"""Addresses that look like others: what is no address makes no folder, and every folder's address leads back to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.base import BadAddress, is_address, open_store
from tests.facts import raising


@pytest.mark.parametrize("text", ["file:/mnt/x", "s3:bucket/x", "FILE:/x", r"C:\relay", "C:/relay", "http:x"])
def test_what_begins_as_an_address_is_no_folder(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raising(BadAddress, text, f"./{text}"):
        open_store(text)
    assert is_address(text)
    open_store(f"./{text}").put("a", b"1")  # whoever means such a folder can say so


@pytest.mark.parametrize("text", ["file:///x", "s3://b", "/mnt/a:b", "./a:b", "~/x", "x", ""])
def test_addresses_and_paths_are_told_apart(text: str) -> None:
    assert is_address(text) == ("://" in text)


@pytest.mark.parametrize("middle", ["\n", "\r\n", "\t"])
def test_an_address_on_two_lines_is_refused_and_not_taken_for_another(middle: str, tmp_path: Path) -> None:
    with raising(BadAddress, repr(f"st{middle}ore")[1:-1]):
        open_store(f"file://{tmp_path}/st{middle}ore")
    assert open_store(f"file://{tmp_path}/store{middle}").address == f"file://{tmp_path}/store"


@pytest.mark.parametrize("leaf", [b"a b", b"50%", b"%20", b"#x?y", b"n\nl", b"\xff\xfe", "שלום 😀".encode(), b"[b]"])
def test_the_address_of_a_folder_leads_back_to_it(leaf: bytes, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / os.fsdecode(leaf)))
    ref = store.put("a", b"1")
    assert open_store(store.address).get(ref) == b"1"
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [leaf]


def test_a_home_that_nobody_has_is_a_bad_address() -> None:
    with raising(BadAddress, "~nobody-has-this-name/x"):
        open_store("~nobody-has-this-name/x")
