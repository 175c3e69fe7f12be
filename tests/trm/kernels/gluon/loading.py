"""Kernels' modules as they are written, imported anew to run on threads. What that shows, and what not.

A program's partitions of warps are threads of which one runs at a time, in an order drawn from a seed; numbers are
computed by torch. A test that uses this sees: wrong numbers, from an index, a mask, a phase or a formula; barriers that
nobody ends (`Stuck`), or that are met too often; and (`Race`) memory that is written while a product, a bulk store or a
bulk load is not done with it, that is read before it was written or fenced, sums of products used before they were
waited for, and what is still under way at an end. All of it only in the orders that were drawn.

It does not see: layouts, whether anything compiles, registers, speed, what one warp of a partition does before another
(the compiler's barriers), programs that would disturb each other in memory, a proxy fence that is missing between a
thread's reading and a bulk load over it, rounding inside products, and the hardware's approximations. A GPU
(benchmarks/kernel_errors.py) and tests/trm/kernels/test_compiles.py are for those.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.trm.kernels.gluon.copies import Descriptor
from tests.trm.kernels.gluon.language import Kernel, hopper, language
from tests.trm.kernels.gluon.machine import Machine

PACKAGE = "trm.kernels.specialized"
Change = tuple[str, str, str]
"""(module, text, what takes its place), of a kernel's source."""
Changes = tuple[Change, ...]


def seed(number: int) -> None:
    """Everything that is drawn from here on follows from the number."""
    Machine.seed = number
    Machine.chance.seed(number)


def _stand_ins(half: torch.dtype) -> dict[str, ModuleType]:
    gluon, descriptors = ModuleType("triton.experimental.gluon"), ModuleType("triton.experimental.gluon.nvidia.hopper")
    nvidia = [ModuleType(f"triton.experimental.gluon.{name}nvidia") for name in ("", "language.")]
    vars(gluon).update(jit=Kernel, language=language(half))
    vars(descriptors).update(TensorDescriptor=Descriptor)
    return {x.__name__: x for x in (gluon, vars(gluon)["language"], *nvidia, hopper(), descriptors)}


def _put_in_place(modules: Mapping[str, ModuleType | None]) -> None:
    """Let imports find these, also those that ask the package that a module is in; None: not imported."""
    for name, module in modules.items():
        package, _, last = name.rpartition(".")
        if module is not None:
            sys.modules[name] = module
            setattr(importlib.import_module(package), last, module)
        else:
            sys.modules.pop(name, None)
            vars(importlib.import_module(package)).pop(last, None)


@contextmanager
def _instead(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in modules}
    _put_in_place(modules)
    try:
        yield
    finally:
        _put_in_place(before)


def _changed(name: str, old: str, new: str) -> None:
    """Import a module with another text."""
    spec: Any = importlib.util.find_spec(name)
    text = Path(spec.origin).read_text()
    assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
    module = importlib.util.module_from_spec(spec)
    _put_in_place({name: module})
    exec(compile(text.replace(old, new), spec.origin, "exec"), vars(module))  # noqa: S102 - our own source


@functools.cache
def kernels(changes: Changes = (), half: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    """The modules of `trm.kernels.specialized` by their last names. `half`: their bfloat16; float64 rounds nothing."""
    folder = Path(importlib.import_module(PACKAGE).__file__ or "").parent
    names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    importlib.import_module("trm.kernels.components")  # what they import beside their own must not meet what stands in
    with _instead({**_stand_ins(half), **{f"{PACKAGE}.{name}": None for name in names}}):
        for name, old, new in changes:
            _changed(f"{PACKAGE}.{name}", old, new)
        return {name: importlib.import_module(f"{PACKAGE}.{name}") for name in names}


def on_programs(
    monkeypatch: pytest.MonkeyPatch, count: int, changes: Changes = (), half: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    """`kernels` for a GPU of so many multiprocessors: of few, each takes up again what it used before."""
    found = kernels(changes, half)
    for module in found.values():
        if hasattr(module, "programs"):
            monkeypatch.setattr(module, "programs", lambda _device: count)
    return found
