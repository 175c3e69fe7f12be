"""Plain values as tagged JSON and back: dicts with any plain keys, tuples, infinities, bytes, numpy scalars, tensors.

A number, a text, a bool or None stands for itself, a JSON list for a list. Everything else is an object with one key,
its tag. Tensors, and longer lists of numbers, are in a `Book`; the JSON has their names. Nothing is pickled.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relay.torch.statefile import TYPES

LONG = 64
"""A list of this many numbers becomes a tensor."""
EXACT = 2**53
"""Integers from here on are written as text, because many readers of JSON round them."""
MOST_DIGITS = 400
DEPTH = 9
"""Nesting of a value. Each level takes up to three of JSON's (relay/core/ledger/frozen.py: MAX_DEPTH)."""
NUMPY = re.compile(r"(bool|u?int(8|16|32|64)|float(16|32|64))")
NUMBER = re.compile(r"u?int(8|16|32|64)|float(16|32|64)")
"""Types of numpy's numbers."""
OF_TENSORS = ("tensor", "longlist", "longtuple", "array")
"""Tags of values that are in tensors."""
MAPS: dict[str, Callable[[Any], Mapping[Any, Any]]] = {"map": dict, "ordered": OrderedDict, "counter": Counter}


class AtPath(ValueError):
    """An error of one value. `where`: its path within the state; `why`: its type, or its fault."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where} {why}")
        self.where, self.why = where, why


class Unstorable(AtPath):
    """A value cannot be stored."""


class Misfit(AtPath):
    """A stored value does not fit the live one."""


@dataclass
class Book:
    """Tensors by name. Tensors that share their memory completely are tied: they have one name."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    finite: set[str] = field(default_factory=set)
    """Names of tensors that must be finite in a checkpoint."""
    trained: set[str] = field(default_factory=set)
    """Those of them that get gradients."""
    _tied: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def put(self, where: str, tensor: Tensor, finite: bool = False) -> str:
        """The name under which the tensor is stored. Raises Unstorable."""
        check_tensor(where, tensor)
        trained, tensor = tensor.requires_grad, tensor.detach()
        memory = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        known = self._tied.get(memory) if tensor.numel() else None
        if known is not None:
            return known
        if where in self.tensors:
            raise Unstorable(where, "names two tensors")
        self._tied[memory] = where
        self.tensors[where] = tensor
        if finite and tensor.is_floating_point():
            self.finite.add(where)
            if trained:
                self.trained.add(where)
        return where


def check_tensor(where: str, tensor: Tensor) -> None:
    """Raises Unstorable for a tensor that is sharded, sparse, without data, or of another type than TYPES."""
    if type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise Unstorable(where, f"is a {type(tensor).__name__}, not a plain tensor")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise Unstorable(where, "is sparse, quantized, or has no data")
    if tensor.dtype not in TYPES:
        raise Unstorable(where, f"has the type {tensor.dtype}")
    if len(where) > 1000:
        raise Unstorable(where[:100], "has a name of more than 1,000 characters")


def encode(value: Any, where: str, book: Book, depth: int = 0) -> Any:
    """The value as JSON; its tensors go into the book. Raises Unstorable for anything that is not plain."""
    kind = type(value)
    if depth > DEPTH:
        raise Unstorable(where, "is nested too deeply, or contains itself")
    if value is None or kind is bool or (kind is str and _encodable(value)):
        return value
    if kind is int:
        return value if abs(value) < EXACT else {"int": _digits(value, where)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Tensor):
        return {"tensor": book.put(where, value)}
    if kind in (list, tuple):
        return _encoded_list(value, where, book, depth)
    tag = next((tag for tag, made in MAPS.items() if made is kind), None)
    if tag is not None:
        return {tag: [_pair(key, each, where, book, depth) for key, each in value.items()]}
    if kind.__module__ == "numpy":
        return _encoded_numpy(value, where, book)
    raise Unstorable(where, f"is {_named(value)}")


def decode(node: Any, like: Any, where: str, tensors: Mapping[str, Tensor], depth: int = 0) -> Any:
    """The value of some JSON. `like`: the live value, whose keys, types and shapes it must have. Raises Misfit."""
    if depth > DEPTH:
        raise Misfit(where, "is nested too deeply")
    if node is None or isinstance(node, (bool, int, float, str)):
        return _like(node, like, where)
    if isinstance(node, list):
        return _like([_item(each, like, i, where, tensors, depth) for i, each in enumerate(node)], like, where)
    if not isinstance(node, dict) or len(node) != 1:
        raise Misfit(where, "is not a stored value")
    ((tag, content),) = node.items()
    if tag == "tuple" and isinstance(content, list):
        return _like(tuple(_item(each, like, i, where, tensors, depth) for i, each in enumerate(content)), like, where)
    if tag in MAPS and isinstance(content, list):
        return _like(_map(tag, content, like, where, tensors, depth), like, where)
    if tag in OF_TENSORS:
        return _from_tensor(tag, content, like, where, tensors)
    return _like(_scalar(tag, content, where), like, where)


def names_in(node: Any) -> Iterator[str]:
    """The names of tensors in some JSON."""
    if isinstance(node, dict):
        for tag, content in node.items():
            if tag in OF_TENSORS:
                yield str(content[-1] if isinstance(content, list) and content else content)
            else:
                yield from names_in(content)
    elif isinstance(node, list):
        for each in node:
            yield from names_in(each)


def _encoded_list(value: Sequence[Any], where: str, book: Book, depth: int) -> Any:
    kind = type(value)
    if len(value) >= LONG:
        for of, dtype in ((int, torch.int64), (float, torch.float64)):
            if all(type(each) is of for each in value) and (of is float or all(-(2**63) <= v < 2**63 for v in value)):
                return {f"long{kind.__name__}": book.put(where, torch.tensor(value, dtype=dtype))}
    found = [encode(each, f"{where}.{i}", book, depth + 1) for i, each in enumerate(value)]
    return found if kind is list else {"tuple": found}


def _pair(key: Any, value: Any, where: str, book: Book, depth: int) -> list[Any]:
    if isinstance(key, Tensor) or type(key) in (list, *MAPS.values()):
        raise Unstorable(where, f"has {_named(key)} as a key")
    return [encode(key, f"{where} (a key)", Book(), depth + 1), encode(value, f"{where}.{key}", book, depth + 1)]


def _encoded_numpy(value: Any, where: str, book: Book) -> Any:
    name = str(getattr(value, "dtype", ""))
    if not NUMPY.fullmatch(name):
        raise Unstorable(where, f"is {_named(value)}")
    if type(value).__name__ != "ndarray":
        return {"numpy": [name, value.tobytes().hex()]}
    same = value.copy().view(f"i{value.itemsize}") if name in ("uint16", "uint32", "uint64") else value.copy()
    return {"array": [name, book.put(where, torch.from_numpy(same))]}  # torch has no arithmetic for the large unsigned


def _from_tensor(tag: str, content: Any, like: Any, where: str, tensors: Mapping[str, Tensor]) -> Any:
    name = content[1] if tag == "array" and isinstance(content, list) and len(content) == 2 else content
    if not isinstance(name, str) or name not in tensors:
        raise Misfit(where, "names a tensor that is not there")
    tensor = tensors[name]
    if tag == "tensor":
        return _like(tensor, like, where)
    if tag == "array":
        import numpy as np

        if not isinstance(content[0], str) or not NUMPY.fullmatch(content[0]):
            raise Misfit(where, "is an array of an unknown type")
        array = tensor.numpy()
        if array.dtype.itemsize != np.dtype(content[0]).itemsize:
            raise Misfit(where, "is an array of another type than it claims")
        return _like(array.view(content[0]).copy(), like, where)
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.float64):
        raise Misfit(where, "is not a list of numbers")
    found = tensor.tolist()
    return _like(found if tag == "longlist" else tuple(found), like, where)


def _map(tag: str, pairs: list[Any], like: Any, where: str, tensors: Mapping[str, Tensor], depth: int) -> Any:
    found: dict[Any, Any] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Misfit(where, "is not a stored dict")
        key = decode(pair[0], _ANY, where, {}, depth + 1)
        try:
            if key in found:
                raise Misfit(where, f"has the key {key!r:.50} twice")
            live = like.get(key, _ANY) if isinstance(like, Mapping) else _ANY
        except TypeError as error:
            raise Misfit(where, "has a key that is not a plain value") from error
        found[key] = decode(pair[1], live, f"{where}.{key}", tensors, depth + 1)
    return MAPS[tag](found)


def _scalar(tag: str, content: Any, where: str) -> Any:
    try:
        match tag, content:
            case "int", str() if len(content) <= MOST_DIGITS and re.fullmatch(r"-?[0-9]+", content):
                return int(content)
            case "float", "inf" | "-inf" | "nan":
                return float(content)
            case "bytes", str():
                return base64.b64decode(content, validate=True)
            case "numpy", [str(name), str(digits)] if NUMPY.fullmatch(name):
                import numpy as np

                return np.frombuffer(bytes.fromhex(digits), dtype=name).reshape(())[()]
    except (ValueError, binascii.Error) as error:
        raise Misfit(where, "is not a stored value") from error
    raise Misfit(where, f"has an unknown form {tag!r:.50}")


class _Any:
    """Stands for a live value of which nothing is known."""


_ANY = _Any()
ANYTHING: Any = _ANY
"""`like` for a value that has no live counterpart."""


def _item(node: Any, like: Any, i: int, where: str, tensors: Mapping[str, Tensor], depth: int) -> Any:
    live = like[i] if isinstance(like, (list, tuple)) and i < len(like) else _ANY
    return decode(node, live, f"{where}.{i}", tensors, depth + 1)


def _like(value: Any, like: Any, where: str) -> Any:
    """The value, if it has the form of the live one. A number may be whole or not, numpy's, or a tensor without
    dimensions; None and a plain value may replace each other; an empty live dict takes any keys."""
    if like is _ANY or like is None or (value is None and not isinstance(like, (Mapping, list, tuple, Tensor))):
        return value
    if type(value) is not type(like) and not (
        (_is_number(value) and _is_number(like)) or (isinstance(value, Tensor) and isinstance(like, Tensor))
    ):
        raise Misfit(where, f"is {_named(value)}, and was {_named(like)} here")
    if isinstance(value, Tensor) and isinstance(like, Tensor) and form(value) != form(like):
        raise Misfit(where, f"is {form(value)}, and {form(like)} here")
    if type(value).__name__ == "ndarray" and (value.dtype, value.shape) != (like.dtype, like.shape):
        raise Misfit(where, "is an array of another shape or type here")
    if isinstance(value, (dict, OrderedDict)) and like and all(isinstance(key, str) for key in like):
        odd = sorted(str(key) for key in value.keys() ^ like.keys())
        if odd:
            raise Misfit(f"{where}.{odd[0]}", "is new here" if odd[0] in like else "is not here any more")
    return value


def _is_number(value: Any) -> bool:
    """The best loss so far may be infinity at first, later a loss as the script has computed it."""
    if isinstance(value, Tensor):
        return value.dim() == 0
    return type(value) in (int, float) or NUMBER.fullmatch(type(value).__name__) is not None


def form(tensor: Tensor) -> str:
    """Type and shape for people: F32 (2, 3)."""
    return f"{TYPES.get(tensor.dtype, str(tensor.dtype))} {tuple(tensor.shape)}"


def _named(value: Any) -> str:
    name = type(value).__qualname__
    return f"a callable object ({name})" if callable(value) and not isinstance(value, type) else f"a {name}"


def _digits(value: int, where: str) -> str:
    if value.bit_length() > 1200:
        raise Unstorable(where, "is an integer of more than 1,200 bits")
    return str(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
