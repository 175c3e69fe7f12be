"""A loop that adds up gradients over its iterations is refused; one that only leaves them behind is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from relay.torch.carried import Carried
from relay.torch.tracked import BadPart, parts_of

Body = Callable[[int, nn.Module, torch.optim.Optimizer], Any]


def backward(net: nn.Module) -> None:
    net(torch.ones(1, dtype=torch.int64)).square().sum().backward()


def adds(every: int, none: bool) -> Body:
    """Steps in each n-th iteration."""

    def body(step: int, net: nn.Module, opt: torch.optim.Optimizer) -> None:
        backward(net)
        if (step + 1) % every == 0:
            opt.step()
            opt.zero_grad(none)

    return body


def inside(none: bool, first: bool) -> Body:
    """Adds up in one iteration, and clears before it or after it."""

    def body(step: int, net: nn.Module, opt: torch.optim.Optimizer) -> None:
        if first:
            opt.zero_grad(none)
        for _ in range(3):
            backward(net)
        opt.step()
        if not first:
            opt.zero_grad(none)

    return body


def played(step: int, net: nn.Module, opt: torch.optim.Optimizer) -> None:
    """As a generator that another optimizer's loss reaches, and that steps in each third iteration."""
    backward(net)
    if step % 3 == 2:
        opt.zero_grad()
        backward(net)
        opt.step()


def closed(step: int, net: nn.Module, opt: torch.optim.Optimizer) -> None:
    def closure() -> float:
        opt.zero_grad()
        backward(net)
        return 0.0

    opt.step(closure)


def assigned(step: int, net: nn.Module, opt: torch.optim.Optimizer) -> None:
    for one in net.parameters():
        one.grad = torch.ones_like(one)
    opt.step()


GOOD = {
    "none before": inside(True, True),
    "zero before": inside(False, True),
    "none after": inside(True, False),
    "zero after": inside(False, False),
    "another loss": played,
    "closure": closed,
    "assigned": assigned,
}


def looped(body: Body, net: nn.Module) -> None:
    opt: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    carried, parts = Carried(), parts_of({"model": net, "optimizer": opt})
    for step in range(8):
        body(step, net, opt)
        carried.refuse()
        if step in (0, 4):
            carried.watch(parts)
    assert not any(one._backward_hooks for one in net.parameters()) and len(opt._optimizer_step_pre_hooks) == 0


def nets() -> list[nn.Module]:
    return [nn.Embedding(3, 2), nn.Embedding(3, 2, sparse=True)]


@pytest.mark.parametrize("how", GOOD)
@pytest.mark.parametrize("net", nets(), ids=["dense", "sparse"])
def test_gradients_that_are_cleared_are_not_carried(how: str, net: nn.Module) -> None:
    looped(GOOD[how], net)


@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("net", nets(), ids=["dense", "sparse"])
def test_gradients_of_several_iterations_are_refused_at_their_first_step(
    net: nn.Module, every: int, none: bool
) -> None:
    steps: list[int] = []

    def body(step: int, *others: Any) -> None:
        steps.append(step)
        adds(every, none)(step, *others)

    with pytest.raises(BadPart, match="optimizer"):
        looped(body, net)
    assert len(steps) == every
