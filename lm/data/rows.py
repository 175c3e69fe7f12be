"""Rows of tokens as a function of (seed, step), from one long array; no cursor and no worker."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor

from lm.data.generate import ANSWER
from lm.data.tokenizer import Tokens
from lm.model import IGNORE
from lm.train import Batch
from relay.torch import rng
from relay.torch.rng import Stream

_HASHED = 1 << 26
"""Tokens hashed in one pass."""


class Rows:
    """An array of tokens as rows of T inputs and the T tokens behind them.

    An epoch shows each window of T + 1 tokens once, in an order of its own, from an offset of its own; the last token
    of a window is the first of the next. answers: only what follows `=` is scored, if its document began in the row.
    """

    def __init__(self, tokens: Tokens, context: int, bos: int, answers: bool = False) -> None:
        self.tokens, self.context, self.bos, self.answers = tokens, context, bos, answers
        self._orders: OrderedDict[tuple[int, int], tuple[int, Tensor]] = OrderedDict()

    @property
    def windows(self) -> int:
        """Rows of an epoch."""
        return max(0, len(self.tokens) // self.context - 1)

    @property
    def size(self) -> int:
        """Rows one after another from the first token on, as evaluation takes them."""
        return max(0, (len(self.tokens) - 1) // self.context)

    def batch_at(self, seed: int, step: int, batch_size: int) -> Batch:
        """The rows of a step, on the CPU."""
        starts, start, left = list[int](), step * batch_size, batch_size
        while left:
            epoch, first = divmod(start, self.windows)
            offset, order = self._order(seed, epoch)
            some = order[first : first + left]
            starts += (offset + some * self.context).tolist()
            start, left = start + len(some), left - len(some)
        return self._batch(starts)

    def rows(self, first: int, count: int) -> Batch:
        """Rows `first` to `first + count - 1` one after another; fewer at the end."""
        return self._batch([row * self.context for row in range(first, min(first + count, self.size))])

    def counts(self, vocab_size: int) -> Tensor:
        """int64 (vocabulary,): how often each token is there, the first of a document aside."""
        found = np.zeros(vocab_size, dtype=np.int64)
        for start in range(0, len(self.tokens), _HASHED):
            found += np.bincount(self.tokens[start : start + _HASHED], minlength=vocab_size)
        found[self.bos] = 0
        return torch.from_numpy(found)

    def _batch(self, starts: list[int]) -> Batch:
        chosen = np.stack([self.tokens[at : at + self.context + 1] for at in starts]).astype(np.int64)
        inputs, targets = torch.from_numpy(chosen[:, :-1].copy()), torch.from_numpy(chosen[:, 1:].copy())
        if self.answers:
            whole = (inputs == self.bos).cumsum(1) > 0
            targets = targets.masked_fill(~(whole & (inputs == ord(ANSWER))), IGNORE)
        return Batch(inputs, targets)

    def _order(self, seed: int, epoch: int) -> tuple[int, Tensor]:
        """(offset, order of the windows) of an epoch. The newest two are kept."""
        key = seed, epoch
        if key not in self._orders:
            offset = int(rng.integers(seed, epoch, Stream.OFFSET, (1,), 0, self.context))
            self._orders[key] = offset, rng.permutations(seed, epoch, Stream.EPOCH_ORDER, 1, self.windows)[0]
            if len(self._orders) > 2:
                self._orders.popitem(last=False)
        return self._orders[key]


def content_hash(parts: list[Tokens], vocab_size: int) -> str:
    """SHA-256 (hexadecimal) over vocabulary and tokens."""
    digest = hashlib.sha256(f"{vocab_size} {[len(part) for part in parts]}\n".encode())
    for part in parts:
        for start in range(0, len(part), _HASHED):
            digest.update(np.ascontiguousarray(part[start : start + _HASHED]).astype("<u2").data)
    return digest.hexdigest()
