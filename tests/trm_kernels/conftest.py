"""The kernels run in Triton's interpreter, chosen before they are imported; benchmarks/kernel_errors.py is for GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of tiny operations: more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
