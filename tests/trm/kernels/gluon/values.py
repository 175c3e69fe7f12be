"""What a thread has in registers: numbers, tensors, pointers. Layouts are not looked at."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch


class Number(int):
    """A whole number, also of those that kernels know when they are compiled."""

    value = property(int)
    __hash__ = int.__hash__

    def to(self, _dtype: Any) -> Number:
        return self


class Truth(Number):
    """0 or 1; not as bool, whose ~ is not its negation."""

    def __invert__(self) -> Truth:  # type: ignore[override]
        return Truth(not self)


def constant(x: Any) -> Any:
    """As kernels see an argument or a constant."""
    return Number(x) if type(x) is int else x


def plain(x: Any) -> Any:
    return x.data if isinstance(x, Values) else x


class Values:
    """A tensor in registers."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape = data, data.shape
        self.type = SimpleNamespace(layout=None)

    def to(self, dtype: torch.dtype) -> Values:
        return Values(self.data.to(dtype))

    def __getitem__(self, at: Any) -> Values:
        return Values(self.data[at])

    def __neg__(self) -> Values:
        return Values(-self.data)

    def __invert__(self) -> Values:
        return Values(~self.data)

    def __bool__(self) -> bool:
        return bool(self.data)


class Pointer:
    """Into a contiguous tensor, by elements."""

    def __init__(self, data: torch.Tensor, at: Any = 0) -> None:
        self.data, self.at = data, at
        self.dtype = SimpleNamespace(element_ty=data.dtype)

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.data, self.at + plain(more))

    def places(self, mask: torch.Tensor) -> torch.Tensor:
        """Where the mask is set; 0 elsewhere."""
        at = torch.where(mask, torch.as_tensor(self.at), 0)
        assert 0 <= int(at.min()) <= int(at.max()) < len(self.data), f"outside of {len(self.data)} elements"
        return at


def _number(name: str, kind: type[Number]) -> Callable[[int, Any], Any]:
    """An operation on numbers; left to the other operand where that is not one."""
    own = getattr(int, name)

    def apply(self: int, other: Any) -> Any:
        found = own(self, other)
        return found if found is NotImplemented else kind(found)

    return apply


def _tensor(name: str) -> Callable[[Values, Any], Values]:
    return lambda self, other: Values(getattr(self.data, name)(plain(other)))


CALCULATED = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
for _name in CALCULATED:
    for _way in ("", "r"):
        setattr(Number, f"__{_way}{_name}__", _number(f"__{_way}{_name}__", Number))
        setattr(Values, f"__{_way}{_name}__", _tensor(f"__{_way}{_name}__"))
for _name in ("truediv", "rtruediv"):
    setattr(Values, f"__{_name}__", _tensor(f"__{_name}__"))
for _name in COMPARED:
    setattr(Number, f"__{_name}__", _number(f"__{_name}__", Truth))
    setattr(Values, f"__{_name}__", _tensor(f"__{_name}__"))
