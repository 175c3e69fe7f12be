"""The digest's kernel gives the sums of its definition, bit for bit."""

from __future__ import annotations

import pytest
import torch

from relay.torch import rng
from relay.torch.digest import LANES, plain_lanes
from relay.torch.kernels import digest


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # wrapping is meant; numpy tells of it
@pytest.mark.parametrize("count", [0, 1, 5, digest.BLOCK - 1, digest.BLOCK, 2 * digest.BLOCK + 17])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_kernel_equals_the_definition(count: int, seed: int) -> None:
    words = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(count))
    other = words.flip(0)[: count // 2]
    keys = torch.tensor([[rng.key(each, lane, 0) for lane in range(LANES)] for each in (seed, 7)])
    found = digest.lanes([words, other], keys, *rng.constants())
    assert torch.equal(found, torch.stack([plain_lanes(seed, words), plain_lanes(7, other)]))
