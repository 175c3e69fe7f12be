"""Many named float32 tensors in one contiguous buffer, so that one operation updates them all."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

_ALIGN = 64
"""Alignment, elements. Every tensor starts at 256 bytes, so matrix products take the same path in every process."""


class Flat:
    """`buffer` float32 (total,), and `views` of it by name. The gaps between tensors are zero and stay zero."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device | str = "cpu") -> None:
        self._shapes = shapes
        self._offsets: dict[str, int] = {}
        total = 0
        for name, shape in shapes.items():
            self._offsets[name] = total
            total += -(-math.prod(shape) // _ALIGN) * _ALIGN
        self.buffer = torch.zeros(total, device=device)
        self.views: dict[str, Tensor] = self.views_of(self.buffer)

    def views_of(self, buffer: Tensor) -> dict[str, Tensor]:
        """The tensors by name in another buffer of the same layout."""
        return {
            name: buffer[start : start + math.prod(self._shapes[name])].view(self._shapes[name])
            for name, start in self._offsets.items()
        }
