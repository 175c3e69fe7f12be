"""The reference's own training step, from the user's checkout of TinyRecursiveModels (not part of this project).

Model, loss, puzzle optimizer and EMA are the checkout's. Two parts are stand-ins: the adam-atan2 package, which has no
build for torch 2.11, is its formula over lists of tensors; the loader is replaced by batches on the GPU.
"""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.optim import lr_scale
from trm.train import TrainState

METRICS = ("count", "accuracy", "exact_accuracy", "q_halt_accuracy", "steps", "lm_loss", "q_halt_loss")
"""In the order of our metrics."""


class AdamAtan2:
    """reference/trm.md 5.1, one operation over all parameters at a time."""

    def __init__(self, params: list[Tensor], config: TrainConfig) -> None:
        self.params, self.config, self.t = params, config, 0
        self.m, self.v = ([torch.zeros_like(p) for p in params] for _ in range(2))

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the parameters' gradients, which are then released."""
        self.t += 1
        beta1, beta2 = self.config.beta1, self.config.beta2
        grads = [p.grad for p in self.params]
        torch._foreach_mul_(self.params, 1 - lr * self.config.weight_decay)
        torch._foreach_lerp_(self.m, grads, 1 - beta1)
        torch._foreach_lerp_(self.v, torch._foreach_mul(grads, grads), 1 - beta2)
        below = torch._foreach_sqrt(self.v)
        torch._foreach_mul_(below, 1 / math.sqrt(1 - beta2**self.t))
        angles = [torch.atan2(m, d) for m, d in zip(self.m, below, strict=True)]
        torch._foreach_add_(self.params, angles, alpha=-lr / (1 - beta1**self.t))
        for p in self.params:
            p.grad = None


def settings(config: TrainConfig, sizes: Sizes) -> dict[str, Any]:
    """The configuration of the checkout's model."""
    arch = config.arch.model_dump(exclude={"L_layers"})
    return arch | {
        "batch_size": config.batch_size, "seq_len": sizes.seq_len, "vocab_size": sizes.vocab_size,
        "num_puzzle_identifiers": sizes.num_identifiers, "H_layers": 0, "L_layers": config.arch.L_layers,
        "causal": False,
    }  # fmt: skip


class UpstreamStep:
    """A training step in the order of the checkout's train_batch, with its copy of the metrics to the host."""

    def __init__(self, checkout: Path, state: TrainState, compiled: bool, device: str = "cuda") -> None:
        """The network starts with the state's weights. Raises ImportError if `checkout` is not a checkout."""
        if not (checkout / "models" / "recursive_reasoning" / "trm.py").is_file():
            raise ImportError(f"{checkout} is not a checkout of TinyRecursiveModels: no models/recursive_reasoning")
        sys.path.insert(0, str(checkout))
        network = importlib.import_module("models.recursive_reasoning.trm")
        sparse = importlib.import_module("models.sparse_embedding")
        self.config, self.device, self.number = state.config, device, 0
        with torch.device(device):
            model = network.TinyRecursiveReasoningModel_ACTV1(settings(state.config, state.sizes))
            head = importlib.import_module("models.losses").ACTLossHead(model, loss_type="stablemax_cross_entropy")
        head.load_state_dict({f"model.{name}": value for name, value in state.model.state_dict().items()})
        self.model = torch.compile(head) if compiled else head
        self.table = sparse.CastedSparseEmbeddingSignSGD_Distributed(
            model.puzzle_emb.buffers(), world_size=1, lr=0, weight_decay=state.config.puzzle_emb_weight_decay
        )
        self.adam = AdamAtan2(list(self.model.parameters()), state.config)
        self.ema = importlib.import_module("models.ema").EMAHelper(state.config.ema_rate)
        self.ema.register(self.model)
        self.carry: Any = None

    def __call__(self, batch: Batch) -> Tensor:
        """One step; the METRICS, float64 on the host."""
        inputs = vars(batch)
        if self.carry is None:
            with torch.device(self.device):
                self.carry = self.model.initial_carry(inputs)
        self.carry, loss, metrics, _, _ = self.model(carry=self.carry, batch=inputs, return_keys=[])
        ((1 / self.config.batch_size) * loss).backward()
        self.number += 1
        scale = lr_scale(self.config, self.number)
        for group in self.table.param_groups:
            group["lr"] = self.config.puzzle_emb_lr * scale
        self.table.step()
        self.table.zero_grad()
        self.adam.step(self.config.lr * scale)
        self.ema.update(self.model)
        return torch.stack([metrics[name].double() for name in METRICS]).cpu()
