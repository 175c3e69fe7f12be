"""One thread: these tensors are small, and threads that wait for each other cost more than they bring."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
