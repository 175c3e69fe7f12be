"""The token and halting heads as one matrix product, with their gradients. Knows no loss."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trm.kernels.layout import add_product

_TILE = 16


class Heads:
    """Columns of the joint logits: vocabulary, halt, continue, zeros up to a multiple of 16."""

    def __init__(self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        names = ["inner.lm_head.weight", "inner.q_head.weight", "inner.q_head.bias"]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.vocab, width = self.source[0].shape
        columns = -(-(self.vocab + 2) // _TILE) * _TILE
        device = self.source[0].device
        self.weight = torch.zeros(columns, width, dtype=dtype, device=device)
        self.bias = torch.zeros(columns, dtype=dtype, device=device)
        self.total = torch.zeros(columns, width, device=device)

    def pack(self) -> None:
        """Cast the parameters."""
        self.weight[: self.vocab].copy_(self.source[0])
        self.weight[self.vocab : self.vocab + 2].copy_(self.source[1])
        self.bias[self.vocab : self.vocab + 2].copy_(self.source[2])

    def forward(self, z_H: Tensor) -> Tensor:
        """(B, L, D) -> logits (B, L, columns)."""
        return torch.nn.functional.linear(z_H, self.weight, self.bias)

    def backward(self, z_H: Tensor, grad: Tensor) -> Tensor:
        """Gradient of z_H from that of the logits (B, L, columns); writes the flat gradients."""
        self.total.zero_()
        add_product(self.total, grad.flatten(0, 1), z_H.flatten(0, 1))
        self.target[0].copy_(self.total[: self.vocab])
        self.target[1].copy_(self.total[self.vocab : self.vocab + 2])
        self.target[2].copy_(grad[:, 0, self.vocab : self.vocab + 2].float().sum(0))
        return grad @ self.weight
