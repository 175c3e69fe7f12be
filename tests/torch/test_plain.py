"""Plain values survive JSON with their types; others are refused by their path, and so is a stranger's JSON."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.ledger.canonical import dumps, loads
from relay.torch.plain import ANYTHING, LONG, Book, Misfit, Unstorable, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**1100), 2**1100)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    | st.binary(max_size=9)
    | st.sampled_from([np.float32(0.1), np.int64(-3), np.bool_(True), np.uint64(2**64 - 1), np.float64("-inf")])
)
keys = st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.tuples(st.integers(0, 9))
long_lists = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=LONG, max_size=LONG + 3) | st.lists(
    st.floats(), min_size=LONG, max_size=LONG + 3
)
values = st.recursive(
    scalars | long_lists,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(keys, st.integers(), max_size=3).map(Counter)
    ),
    max_leaves=12,
).filter(lambda value: depth(value) < 7)


def depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return 1 + max((depth(each) for each in inside), default=0)


def shown(value: Any) -> Any:
    """Equal only for values of the same types, order and bits."""
    if isinstance(value, dict):
        return type(value), [(shown(k), shown(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [shown(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return type(value), "nan"
    return type(value), repr(value)


def through(value: Any, like: Any = ANYTHING) -> Any:
    book = Book()
    text = dumps(encode(value, "part", book))
    return decode(loads(text, 1 << 20), like, "part", book.tensors)


@given(values)
@settings(max_examples=60, deadline=None)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    assert shown(through(value)) == shown(value)
    assert shown(through(value, value)) == shown(value), "it fits itself"


def test_tensors_and_arrays_come_back() -> None:
    value = {"a": [torch.arange(3), torch.tensor(2.5, dtype=torch.bfloat16)], "b": np.arange(5, dtype=np.uint32)}
    found = through(value)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(found["a"], value["a"], strict=True))
    assert found["b"].dtype == np.uint32 and (found["b"] == value["b"]).all()


@pytest.mark.parametrize(
    ("value", "where", "why"),
    [
        ({"a": [1, lambda: 0]}, "part.a.1", "callable"),
        ({"a": partial(max)}, "part.a", "callable"),
        ({"a": {1, 2}}, "part.a", "set"),
        ({"a": 1j}, "part.a", "complex"),
        ({"a": "\ud800"}, "part.a", "str"),
        ({"a": np.array(["x"])}, "part.a", "ndarray"),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, "part.a", "complex64"),
        ({"a": torch.zeros(2).to_sparse()}, "part.a", "sparse"),
        ({"a": torch.zeros(2, device="meta")}, "part.a", "without data|no data"),
        (torch.Size([1]), "part", "Size"),
        (2**1300, "part", "integer"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_path(value: Any, where: str, why: str) -> None:
    with pytest.raises(Unstorable, match=why) as caught:
        encode(value, "part", Book())
    assert caught.value.where == where


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unstorable, match="contains itself"):
        encode(loop, "part", Book())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("map", "ordered", "counter", "tuple", "tensor", "longlist"),
                    *("array", "int", "float", "bytes", "numpy"),
                ]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=9,
)


@given(json_values)
@settings(max_examples=100, deadline=None)
def test_a_strangers_json_is_a_value_or_refused(node: Any) -> None:
    tensors = {"a": torch.zeros(2), "b": torch.zeros(3, dtype=torch.int64), "ab": torch.zeros(2, 2)}
    try:
        decode(json.loads(json.dumps(node)), {"a": [1, (2,)], "b": torch.zeros(2)}, "part", tensors)
    except Misfit as error:
        assert error.where.startswith("part") and "\n" not in str(error)


@pytest.mark.parametrize(
    ("stored", "live", "where"),
    [
        ({"a": 1}, {"b": 1}, "part.a"),
        ({"a": 1}, {"a": 1, "b": 2}, "part.b"),
        ({"a": "x"}, {"a": 1}, "part.a"),
        ({"a": [1, "x"]}, {"a": [1, 2]}, "part.a.1"),
        ({"a": (1,)}, {"a": [1]}, "part.a"),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(3)}, "part.a"),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.float64)}, "part.a"),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}, "part.a"),
        ({"a": np.zeros(())}, {"a": 1.0}, "part.a"),
        ({"a": torch.zeros(1)}, {"a": 1.0}, "part.a"),
        ({"a": np.True_}, {"a": 1.0}, "part.a"),
    ],
)
def test_another_form_than_the_live_one_is_named(stored: Any, live: Any, where: str) -> None:
    with pytest.raises(Misfit) as caught:
        through(stored, live)
    assert caught.value.where == where


@pytest.mark.parametrize("stored", [{"a": 1}, {0: {"moment": torch.ones(2)}}, {}])
def test_a_dict_that_is_still_empty_takes_any_keys(stored: Any) -> None:
    """As the state of an optimizer that has made no step."""
    assert str(through({"state": stored}, {"state": {}})) == str({"state": stored})


@pytest.mark.parametrize("live", [math.inf, 0, np.float32(1), torch.tensor(1.0)])
@pytest.mark.parametrize("stored", [1.5, 3, np.float64(1.5), np.int64(3), torch.tensor(1.5, dtype=torch.float64)])
def test_a_number_keeps_its_type_in_place_of_another(stored: Any, live: Any) -> None:
    """The best loss so far is infinity at first, later what the script has computed."""
    if isinstance(stored, torch.Tensor) and isinstance(live, torch.Tensor):
        live = live.double()
    found = through({"best": stored}, {"best": live})["best"]
    assert type(found) is type(stored) and found == stored


def test_numbers_none_and_whole_tables_may_differ() -> None:
    assert through({"best": 2.5, "bad": 3, "steps": {7: 1}}, {"best": None, "bad": 0.0, "steps": {1: 1}}) == {
        "best": 2.5,
        "bad": 3,
        "steps": {7: 1},
    }
