"""Which implementation each component of the fast step uses; each can be switched alone."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from trm.kernels import plain
from trm.kernels.tried import admitted

Component = Any
"""A module of kernels or its plain class: same functions, same layouts."""


@dataclass(frozen=True)
class Components:
    """Of the fused step. The names of these fields are in the paths of stored step digests, so they must not change."""

    mixer: Component
    attention: Component
    channel: Component
    norm: Component
    loss: Component
    optimizer: Component
    embedding: Component

    @property
    def name(self) -> str:
        """'fused', '-specialized-…' with the specialized, '-without-…' with the plain ones: for the digest's path."""
        special = [name for name, part in vars(self).items() if hasattr(part, "SPECIALIZED")]
        missing = [name for name, part in vars(self).items() if not isinstance(part, ModuleType) or part is plain]
        special_parts = (["specialized", *special] if special else []) + (["without", *missing] if missing else [])
        return "-".join(["fused", *special_parts])


def plain_components() -> Components:
    """Every component in plain PyTorch."""
    return Components(plain.PlainMixer, plain.PlainAttention, plain.PlainChannel, plain.PlainNorm, plain, plain, plain)


def specializes() -> bool:
    """Whether the specialized kernels were tried with this Triton on such a GPU. ImportError without triton."""
    import triton

    if not torch.cuda.is_available() or triton.knobs.runtime.interpret:
        return False
    return admitted(torch.cuda.get_device_capability(), triton.__version__)


def fused_components() -> Components:
    """Every component as a Triton kernel. Raises ImportError without triton."""
    from trm.kernels import attention, channel_mlp, embedding, loss, norm, optimizer, token_mixer

    if not specializes():
        return Components(token_mixer, attention, channel_mlp, norm, loss, optimizer, embedding)
    from trm.kernels.specialized import attention as hopper_attention
    from trm.kernels.specialized import channel, mixer

    return Components(mixer, hopper_attention, channel, norm, loss, optimizer, embedding)
