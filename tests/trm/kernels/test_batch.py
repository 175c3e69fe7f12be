"""A batch made by one kernel is the batch of the definition, bit for bit."""

from __future__ import annotations

import pytest
import torch

from trm.data import augment
from trm.data.dataset import IGNORE, Dataset
from trm.kernels.batch import batch


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # wrapping is meant; numpy tells of it
@pytest.mark.parametrize(
    ("cells", "symmetries", "seed", "step"),
    [(81, True, 2**31 - 1, 123_456), (16, True, 3, 7), (81, False, 0, 5), (900, False, 1, 5)],
)
def test_the_kernel_equals_the_definition(cells: int, symmetries: bool, seed: int, step: int) -> None:
    g = torch.Generator().manual_seed(step)
    inputs, labels = (torch.randint(0, 11 if cells == 81 else 6, (9, cells), generator=g) for _ in range(2))
    inputs = inputs.t().contiguous().t()  # a view of columns, as some readers of files give
    data = Dataset(inputs, labels, 11, augment.sudoku if symmetries else None)
    wanted = data.batch_at(seed, step, 6)
    rows = data._positions(seed, step * 6, 6)
    found = batch(data.inputs, data.labels, rows, seed, step, IGNORE, symmetries)
    assert torch.equal(found[0], wanted.inputs)
    assert torch.equal(found[1], wanted.labels)
    assert found[0].dtype == found[1].dtype == torch.int32
