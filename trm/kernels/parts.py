"""Which implementation each part of the fast step uses; every part can be switched alone. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from trm.kernels import plain

Part = Any
"""A module of kernels or its plain class: same functions, same layouts."""


@dataclass(frozen=True)
class Parts:
    """The fused parts."""

    mixer: Part
    attention: Part
    channel: Part
    norm: Part
    loss: Part
    optimizer: Part
    embedding: Part

    @property
    def name(self) -> str:
        """'fused', or 'fused-without-…' with what is plain: for the digest's path."""
        missing = [name for name, part in vars(self).items() if not isinstance(part, ModuleType) or part is plain]
        return "fused" if not missing else f"fused-without-{'-'.join(missing)}"


def plain_parts() -> Parts:
    """Every part in plain PyTorch."""
    return Parts(plain.PlainMixer, plain.PlainAttention, plain.PlainChannel, plain.PlainNorm, plain, plain, plain)


def fused_parts() -> Parts:
    """Every part as a Triton kernel. Raises ImportError without triton."""
    from trm.kernels import attention, channel_mlp, embedding, loss, norm, optimizer, token_mixer

    return Parts(token_mixer, attention, channel_mlp, norm, loss, optimizer, embedding)
