"""The token table's gradient equals a scatter-add."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm_kernels.support import CLOSE, error, random
from trm.kernels import embedding, plain


@pytest.mark.parametrize("part", [embedding, plain], ids=["kernel", "plain"])
def test_token_grad(part: Any) -> None:
    calls, batch, prefix, cells, width, vocab = 2, 5, 3, 70, 64, 11
    ids = torch.randint(0, vocab, (batch, cells), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    d = random(calls, batch, prefix + cells, width)
    true = torch.zeros(vocab, width, dtype=torch.float64)
    true.index_add_(0, ids.flatten().long(), d[:, :, prefix:].double().sum(0).flatten(0, 1))
    assert error(part.token_grad(ids, d, prefix, vocab), true) < CLOSE
