"""One slot's bytes: strict both ways; damage is never mistaken for a newer version, nor the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.messages.errors import paragraph
from relay.core.errors import Exit
from relay.core.ledger.canonical import ZEROS, digest, dumps
from relay.core.ledger.changes import KINDS
from relay.core.ledger.entry import FORMAT, Entry, NewerFormat, NotAnEntry, decode, encode
from relay.core.ledger.frozen import MAX_ENTRY_BYTES
from tests.core.making import id_of
from tests.facts import raising

ENTRY = Entry(
    seq=3,
    base=2,
    parent="f" * 64,
    nonce=id_of(1),
    kind="incident",
    session=id_of(2),
    account="account_1",
    epoch=1,
    at=1.7e9,
    change={"a": 0.1},
    state={"b": [1, 2.5, None]},
)
RAW = encode(ENTRY)


def sealed(**fields: Any) -> bytes:
    """The entry with other fields, and the SHA-256 that fits them."""
    body = ENTRY.model_dump(mode="json") | fields
    return dumps({"body": body, "sha256": digest(dumps(body))})


def test_an_entry_reads_back_as_it_was_written() -> None:
    assert decode(RAW, KINDS, 3) == ENTRY
    assert ENTRY.passed_slots == range(3, 3)
    assert ENTRY.model_copy(update={"base": 0}).passed_slots == range(1, 3)


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_no_changed_byte_goes_unseen(position: int, flip: int) -> None:
    broken = RAW[:position] + bytes([RAW[position] ^ flip]) + RAW[position + 1 :]
    with pytest.raises(NotAnEntry):
        decode(broken, KINDS, 3)


@given(st.integers(0, len(RAW) - 1))
def test_no_truncation_goes_unseen(length: int) -> None:
    with pytest.raises(NotAnEntry):
        decode(RAW[:length], KINDS, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"seq": 4},
        {"base": 3},
        {"base": -2},
        {"parent": "F" * 64},
        {"nonce": "short"},
        {"session": None},
        {"account": "Not A Name"},
        {"epoch": -1},
        {"epoch": True},
        {"at": "now"},
        {"at": 1e300},
        {"change": []},
        {"state": None},
        {"more": 1},
        {"format": 0},
        {"format": "1"},
        {"format": True},
        {"kind": 5},
    ],
)
def test_a_body_that_breaks_the_schema_is_no_entry(fields: dict[str, Any]) -> None:
    with pytest.raises(NotAnEntry):
        decode(sealed(**fields), KINDS, 3)


def test_other_spellings_of_the_same_entry_are_no_entry() -> None:
    for data in (RAW + b"\n", b" " + RAW, RAW.replace(b'"kind"', b'"\\u006bind"'), b"{}", b"[]"):
        with pytest.raises(NotAnEntry):
            decode(data, KINDS, 3)
    with pytest.raises(NotAnEntry):
        decode(dumps({"body": ENTRY.model_dump(mode="json"), "sha256": "0" * 64}), KINDS, 3)


@pytest.mark.parametrize("fields", [{"format": FORMAT + 1}, {"format": FORMAT + 1, "new": 1}, {"kind": "merge"}])
def test_an_intact_newer_entry_asks_for_an_upgrade(fields: dict[str, Any]) -> None:
    named = f"format {FORMAT + 1}" if "format" in fields else "kind 'merge'"
    with raising(NewerFormat, named) as error:
        decode(sealed(**fields), KINDS, 3)
    assert error.value.exit_code == Exit.BAD_CONFIG and "`git pull`" in paragraph(error.value)


def test_a_damaged_newer_entry_is_damage() -> None:
    with pytest.raises(NotAnEntry):
        decode(sealed(format=FORMAT + 1)[:-3] + b'0"}', KINDS, 3)


def test_the_genesis_has_no_parent() -> None:
    assert decode(sealed(seq=0, base=-1, parent=ZEROS), KINDS, 0).base == -1
    with pytest.raises(NotAnEntry):
        decode(sealed(seq=0, base=-1), KINDS, 0)


def test_an_entry_is_at_most_256_kb() -> None:
    room = MAX_ENTRY_BYTES - len(encode(ENTRY.model_copy(update={"change": {"a": ""}})))
    assert len(encode(ENTRY.model_copy(update={"change": {"a": "x" * room}}))) == MAX_ENTRY_BYTES
    with pytest.raises(NotAnEntry, match="at most 256000"):
        encode(ENTRY.model_copy(update={"change": {"a": "x" * (room + 1)}}))
    with pytest.raises(NotAnEntry):
        decode(RAW + b" " * MAX_ENTRY_BYTES, KINDS, 3)
