"""Products of tiles, computed when they are waited for: until then what they read must stay, and no sum is there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tests.trm.kernels.gluon.machine import Machine, Race
from tests.trm.kernels.gluon.shared import Shared
from tests.trm.kernels.gluon.values import Values


class Product(Values):
    """a @ b, plus what was there before if `use_acc`."""

    def __init__(self, a: Values | Shared, b: Shared, before: Values, use_acc: bool) -> None:
        self.parts, self.done, self.sum = (a, b, before if use_acc else None), False, torch.empty(0)
        self.shape, self.type = before.shape, SimpleNamespace(layout=None)
        assert self.shape == (a.shape[0], b.shape[1])
        assert a.shape[1] == b.shape[0]

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        raise Race("a product's sum is used, and not as warpgroup_mma_wait returned it")

    def factors(self) -> list[Shared]:
        return [part for part in self.parts[:2] if isinstance(part, Shared)]

    def finish(self) -> None:
        a, b, before = self.parts
        product = a.data.float() @ b.data.float()
        if before is not None:
            product += before.sum if isinstance(before, Product) else before.data
        self.done, self.sum = True, product
        for factor in self.factors():
            factor.let_go()


def warpgroup_mma(a: Any, b: Shared, acc: Values, *, use_acc: bool = True, is_async: bool = False) -> Values:
    Machine.present.pause()
    product = Product(a, b, acc, use_acc)
    for factor in product.factors():
        factor.hold()
    Machine.present.current.products.append(product)
    return product if is_async else warpgroup_mma_wait(0, (product,))


def warpgroup_mma_wait(outstanding: int, deps: Sequence[Any]) -> Any:
    """All products but those begun last are done."""
    Machine.present.pause()
    products = Machine.present.current.products
    while len(products) > outstanding:
        products.pop(0).finish()
    found = tuple(Values(x.sum) if isinstance(x, Product) and x.done else x for x in deps)
    return found if len(found) > 1 else found[0]
