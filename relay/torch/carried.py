"""Gradients that one iteration leaves to the next ones: no checkpoint has them.

A session that begins without them may look exact, because its first iteration may not step the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from relay.torch.tracked import BadPart, OptimizerPart, Part


class Carried:
    """Watches each optimizer from the end of an iteration to its next step: does it use gradients from before?

    A loop that sets them to None or to zero before it computes others does not.
    """

    def __init__(self) -> None:
        self._hooks: dict[str, list[Any]] = {}
        self._found: list[str] = []

    def watch(self, parts: Iterable[Part]) -> None:
        """An iteration is over."""
        for part in parts:
            if isinstance(part, OptimizerPart):
                self._forget(part.name)
                self._watch(part.name, part.optimizer)

    def refuse(self) -> None:
        """Raises BadPart for an optimizer that has used gradients from before."""
        for name in self._found:
            raise BadPart(
                name, "it adds up gradients over iterations, which no checkpoint has: accumulate them inside the body"
            )

    def _watch(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        added = set[int]()
        """Parameters to whose old gradient a backward pass has added."""
        left = {one for group in optimizer.param_groups for one in group["params"] if one.grad is not None}
        hooks = [one.register_hook(_adding(one, added)) for one in left if one.requires_grad]

        def step(*_: Any) -> None:
            if added:
                self._found.append(name)
            self._forget(name)

        self._hooks[name] = [*hooks, *([optimizer.register_step_pre_hook(step)] if hooks else [])]

    def _forget(self, name: str) -> None:
        for hook in self._hooks.pop(name, ()):
            hook.remove()


def _adding(parameter: Tensor, added: set[int]) -> Callable[[Tensor], None]:
    """A hook that is called before a gradient is added to the parameter's."""
    clean = False

    def hook(_: Tensor) -> None:
        nonlocal clean
        old = parameter.grad
        if clean or (old is not None and old.is_cuda and torch.cuda.is_current_stream_capturing()):
            return  # nothing can be read while a graph is captured
        clean = old is None or not bool((old.coalesce().values() if old.is_sparse else old).any())
        (added.discard if clean else added.add)(id(parameter))

    return hook
