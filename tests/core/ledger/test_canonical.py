"""Canonical JSON: one value, one byte string; and nothing hostile gets through."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.ledger.canonical import NotCanonical, digest, dumps, loads
from tests.facts import raising

texts = st.text(st.characters(codec="utf-8"))
numbers = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_written_reads_back_and_writes_the_same(value: object) -> None:
    data = dumps(value)
    assert data.isascii()
    again = loads(data, 10**6)
    assert again == value
    assert dumps(again) == data


def test_key_order_does_not_matter() -> None:
    assert dumps({"b": 1, "a": 2}) == dumps({"a": 2, "b": 1}) == b'{"a":2,"b":1}'


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"123456789012345678901",
        b"[" * 40 + b"]" * 40,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"\xff\xfe",
        b"",
        b"{",
        b"1 2",
    ],
)
def test_what_could_mean_two_things_is_refused(data: bytes) -> None:
    with pytest.raises(NotCanonical) as error:
        loads(data, 10**6)
    assert "\n" not in str(error.value)


def test_oversize_is_refused_before_it_is_parsed() -> None:
    assert loads(b"[1]", 3) == [1]
    with raising(NotCanonical, 4, 3):
        loads(b"[12]", 3)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {1, 2}, b"bytes", object()])
def test_what_json_cannot_hold_is_not_written(value: object) -> None:
    with pytest.raises(NotCanonical):
        dumps(value)


def test_a_value_within_itself_is_not_written() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotCanonical):
        dumps(loop)


def test_digest_is_sha256() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        value = loads(data, 1000)
    except NotCanonical:
        return
    assert loads(json.dumps(value).encode(), 10_000) == value
