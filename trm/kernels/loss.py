# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Stablemax and halting loss with their analytic gradient, one program a sequence.

The float64 definition is trm/losses.py; reference/trm.md 4 gives the gradient. float32 changes the 8th digit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 16
"""Width of the joint head: the vocabulary, halt, continue, zeros up to the matrix units' smallest tile."""
_POSITIONS = 128


@triton.jit
def _stablemax(x, real):
    """s(x) and its derivative; zero outside `real`."""
    below = 1.0 / (1.0 - tl.minimum(x, 0.0))
    s = tl.where(x >= 0, x + 1.0, below)
    slope = tl.where(x >= 0, 1.0, below * below)
    return tl.where(real, s, 0.0), tl.where(real, slope, 0.0)


@triton.jit
def _loss(logits_ptr, labels_ptr, grad_ptr, rows_ptr, scale, IGNORE: tl.constexpr, L: tl.constexpr, P: tl.constexpr,
          V: tl.constexpr, W: tl.constexpr, LB: tl.constexpr):  # fmt: skip
    """Writes grad (B, L, W) of `scale` * (lm + halting loss / 2) and rows (B, 4): lm, halting loss, right, scored."""
    b = tl.program_id(0)
    col = tl.arange(0, W)
    loss, right, scored = 0.0, 0.0, 0.0
    for l0 in range(0, L, LB):
        pos = l0 + tl.arange(0, LB)
        label = tl.load(labels_ptr + b * (L - P) + pos - P, mask=(pos >= P) & (pos < L), other=IGNORE)
        at = (b * L + pos).to(tl.int64)[:, None] * W + col[None, :]
        vocab = (col < V)[None, :]
        x = tl.load(logits_ptr + at, mask=(pos < L)[:, None] & vocab, other=0.0).to(tl.float32)
        s, _ = _stablemax(x, vocab)
        hit = tl.sum(tl.where(col[None, :] == label[:, None], s, 0.0), axis=1)
        best = tl.argmax(tl.where(vocab, x, float("-inf")), axis=1, tie_break_left=True)
        counts = label != IGNORE
        loss += tl.sum(tl.where(counts, tl.log(tl.sum(s, axis=1)) - tl.log(tl.where(counts, hit, 1.0)), 0.0))
        right += tl.sum(((best == label) & counts).to(tl.float32))
        scored += tl.sum(counts.to(tl.float32))
    share = 1.0 / tl.maximum(scored, 1.0)
    q = tl.load(logits_ptr + (b * L).to(tl.int64) * W + V).to(tl.float32)
    exact = tl.where(right == scored, 1.0, 0.0)
    e = tl.exp(-tl.abs(q))
    q_loss = tl.maximum(q, 0.0) - q * exact + tl.log(1.0 + e)
    q_grad = (tl.where(q >= 0, 1.0, e) / (1.0 + e) - exact) * (0.5 * scale)
    for l0 in range(0, L, LB):
        pos = l0 + tl.arange(0, LB)
        label = tl.load(labels_ptr + b * (L - P) + pos - P, mask=(pos >= P) & (pos < L), other=IGNORE)
        at = (b * L + pos).to(tl.int64)[:, None] * W + col[None, :]
        vocab = (col < V)[None, :]
        x = tl.load(logits_ptr + at, mask=(pos < L)[:, None] & vocab, other=0.0).to(tl.float32)
        s, slope = _stablemax(x, vocab)
        mine = col[None, :] == label[:, None]
        grad = slope * (1.0 / tl.sum(s, axis=1)[:, None] - tl.where(mine, 1.0 / tl.where(mine, s, 1.0), 0.0))
        grad = tl.where((label != IGNORE)[:, None], grad * (share * scale), 0.0)
        grad = tl.where((pos == 0)[:, None] & (col == V)[None, :], q_grad, grad)
        tl.store(grad_ptr + at, grad.to(grad_ptr.dtype.element_ty), mask=(pos < L)[:, None])
    out = rows_ptr + b * 4
    tl.store(out, loss * share)
    tl.store(out + 1, q_loss)
    tl.store(out + 2, right)
    tl.store(out + 3, scored)


def loss_and_grad(
    logits: Tensor, labels: Tensor, prefix: int, vocab: int, ignore: int, whole: int | None = None
) -> tuple[Tensor, Tensor]:
    """Gradient of total loss / B with respect to logits (B, L, COLUMNS), and float32 rows (B, 4).

    whole: the number of rows to divide by instead, where these are a part of the batch.
    Columns of logits: vocabulary (positions from `prefix` on count), then the halt logit (position 0 counts).
    rows: lm loss, halting loss, labels met, labels.
    """
    batch, length, columns = logits.shape
    scale = 1.0 / (whole or batch)
    grad, rows = torch.empty_like(logits), logits.new_empty(batch, 4, dtype=torch.float32)
    _loss[(batch,)](logits, labels, grad, rows, scale, ignore, length, prefix, vocab, columns, _POSITIONS)
    return grad, rows
