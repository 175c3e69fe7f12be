"""The kernels run in Triton's interpreter, which tests/conftest.py chooses; benchmarks/kernel_errors.py is for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def language_as_it_was() -> Iterator[None]:
    """The interpreter leaves parts of the language patched, and whatever is compiled later in the process fails."""
    import triton.language as tl

    places = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)
    before = [dict(vars(place)) for place in places]
    yield
    for place, names in zip(places, before, strict=True):
        for name, value in names.items():
            if vars(place).get(name) is not value:
                setattr(place, name, value)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of tiny operations: more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
