"""The plain step with its blocks under torch.compile, for cards without our kernels.

The blocks are compiled, not the whole network: the same code serves all calls of a step, so compiling takes seconds,
and the weights' gradients of several calls are added up in float32, as in the plain step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from relay.torch.caches import INDUCTOR, triton_home
from relay.torch.steps import Sharing
from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.model import Blocks
from trm.train import EagerStep, TrainState

LEAST = (7, 0)
"""Compute capability from which Triton compiles."""
FOR_BFLOAT16 = (8, 0)
"""torch leaves graphs with bfloat16 uncompiled below (_check_triton_bf16_support in inductor)."""
BACKEND = "inductor"
OPTIONS: dict[str, Any] = {
    "force_shape_pad": True,  # otherwise a clock decides which products get aligned shapes
    "fx_graph_cache": False,  # a pickle
}


def uncompilable(device: torch.device, config: TrainConfig) -> str | None:
    """Why torch.compile cannot serve this device, as half a sentence; None if it may. Imports no compiler."""
    if device.type != "cuda":
        return "there is no GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST:
        return "torch.compile needs compute capability 7.0"
    if config.arch.forward_dtype == "bfloat16" and capability < FOR_BFLOAT16:
        return "torch.compile takes no bfloat16 below compute capability 8.0"
    return None


def broken(device: torch.device) -> str | None:
    """Why torch.compile fails on this machine (no C compiler, no Triton), in one line; None if it works. Seconds."""
    _settle()
    try:
        found = torch.compile(lambda x: (x + 1).square().sum(), dynamic=False, fullgraph=True)(
            torch.ones(8, device=device)
        )
    except (RuntimeError, ImportError, OSError) as error:
        return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return None if float(found) == 32.0 else "it computed a wrong sum"


def deterministic() -> bool:
    """Whether this torch has inductor's deterministic mode, in which no clock decides how sums are ordered."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)


def name() -> str:
    """For the digest's path: another torch generates other code."""
    return f"compiled-torch{torch.__version__}{'-deterministic' if deterministic() else ''}"


class CompiledStep(EagerStep):
    """The plain step; equal to it but for rounding."""

    def __init__(self, parts: int = 1, peers: Sharing | None = None, backend: str = BACKEND) -> None:
        super().__init__(parts, peers)
        self.name = name()
        self._backend = backend
        self._forward: Callable[..., Any] | None = None

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        """The first call compiles."""
        began = time.monotonic()
        self._forward = self._forward or _compiled(self._backend)
        with _replaced(state.model.inner.L_level, self._forward):
            metrics = super().__call__(state, batch)
        if not self.timings:
            metrics.cpu()  # waits for the device
            self.timings = {"compile": time.monotonic() - began}
        return metrics


def _compiled(backend: str) -> Callable[..., Any]:
    """The blocks' forward function, which compiles when it is called.

    Options, not settings of the process: torch keeps those for each thread, and the backward pass has its own.
    """
    if backend != BACKEND:
        return torch.compile(Blocks.forward, backend=backend, dynamic=False, fullgraph=True)
    _settle()
    options = OPTIONS | ({"deterministic": True} if deterministic() else {})
    return torch.compile(Blocks.forward, options=options, dynamic=False, fullgraph=True)


def _settle() -> None:
    """Before the compiler is imported: no processes of its own, and no folder that other users can write to."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    home = triton_home(os.environ)
    os.environ.setdefault("TRITON_CACHE_DIR", str(home))  # otherwise inductor moves Triton's folder into its own
    if not os.environ.get(INDUCTOR):
        folder = home / "relay-inductor"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[INDUCTOR] = str(folder)


@contextmanager
def _replaced(blocks: Blocks, forward: Callable[..., Any]) -> Iterator[None]:
    """During a step alone: evaluations have other shapes, and would compile again."""
    blocks.forward = MethodType(forward, blocks)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del blocks.forward
