"""What a fixture of the reference knows, and what we compute for it, under the same keys. Judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trm.act import TRM, Output
from trm.config import Arch, TrainConfig
from trm.data.dataset import Batch
from trm.interop import load_named
from trm.losses import METRICS, loss_and_metrics
from trm.model import Sizes
from trm.train import EagerStep, TrainState

Key = tuple[str, str, str]
"""(quantity, where, name), e.g. ("logits", "step 0", "q_halt_logits")."""
Values = dict[Key, Tensor]


@dataclass
class Fixture:
    """NAME.json and NAME.safetensors (tests/data/trm_parity/README.md)."""

    name: str
    about: dict[str, Any]
    tensors: dict[str, Tensor]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names start with prefix, without it."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def train_config(about: dict[str, Any], dtype: str) -> tuple[TrainConfig, Sizes]:
    """Our configuration for a fixture's, with activations of `dtype`.

    Raises ValueError if it asks for what the reference itself cannot do.
    """
    theirs, optimizer = about["config"], about["optimizer"]
    if theirs.get("causal") or not theirs.get("no_ACT_continue", True):
        raise ValueError("causal attention and the continue target are not part of the model")
    known = {key: theirs[key] for key in Arch.model_fields if key in theirs}
    arch = Arch(**known | {"forward_dtype": dtype})
    config = TrainConfig(
        task="parity",
        batch_size=theirs["batch_size"],
        arch=arch,
        lr=optimizer["lr"],
        lr_warmup_steps=0,
        beta1=optimizer["betas"][0],
        beta2=optimizer["betas"][1],
        weight_decay=optimizer["weight_decay"],
        puzzle_emb_lr=optimizer["puzzle_emb_lr"],
        puzzle_emb_weight_decay=optimizer["puzzle_emb_weight_decay"],
        ema_rate=optimizer["ema_rate"],
    )
    return config, Sizes(theirs["seq_len"], theirs["vocab_size"], theirs["num_puzzle_identifiers"])


class Recorder(TRM):
    """A TRM that remembers the output of its last forward."""

    last: Output

    def forward(self, *args: Any) -> Any:
        carry, self.last = super().forward(*args)
        return carry, self.last


def expected_values(fixture: Fixture) -> Values:
    """Everything the fixture knows, under our keys."""
    found: Values = {}
    for k, step in enumerate(fixture.about["steps"]):
        found |= _metric_values(f"step {k}", step["loss"], step["metrics"])
        norms = step["grad_norms"].items()
        found |= {("gradient norms", f"step {k}", name): _float64(norm) for name, norm in norms}
        found |= _output_values(f"step {k}", fixture.group(f"step{k}/"))
    found |= {("weights", "final", name): value for name, value in fixture.group("final/").items()}
    found |= {("ema", "final", name): value for name, value in fixture.group("ema/").items()}
    found |= _metric_values("evaluation", fixture.about["eval"]["loss"], fixture.about["eval"]["metrics"])
    return found | _output_values("evaluation", fixture.group("eval/"))


def computed_values(fixture: Fixture, dtype: str) -> Values:
    """Five training steps, and an evaluation with the fixture's final weights, in one type of activations."""
    config, sizes = train_config(fixture.about, dtype)
    state = TrainState(config, sizes)
    load_named(state.model, fixture.group("init/"))
    state.reset_ema()
    state.model.__class__ = Recorder
    assert isinstance(state.model, Recorder)
    found: Values = {}
    for k in range(len(fixture.about["steps"])):
        metrics = EagerStep()(state, Batch(**fixture.group(f"batch{k}/")))
        found |= _our_values(f"step {k}", state.model.last, metrics)
        norms = {name: grad.norm() for name, grad in state.grads.views.items()}
        found |= {("gradient norms", f"step {k}", name): norm for name, norm in norms.items()}
    found |= {("weights", "final", name): value.clone() for name, value in state.model.state_dict().items()}
    found |= {("ema", "final", name): value for name, value in state.eval_weights().items()}
    load_named(state.model, fixture.group("final/"))
    return found | _evaluate(fixture, state.model)


@torch.no_grad()
def _evaluate(fixture: Fixture, model: TRM) -> Values:
    """halt_max_steps steps in evaluation mode."""
    given = fixture.group("eval/")
    batch = Batch(given["inputs"], given["labels"], given["puzzle_identifiers"])
    carry = model.refill(model.initial_carry(len(batch.inputs)), batch)
    rows = model.inner.puzzle_rows(carry.puzzle_identifiers)
    for _ in range(model.arch.halt_max_steps):
        carry, output = model(carry, rows, None)
    return _our_values("evaluation", output, loss_and_metrics(output)[1])


def _our_values(where: str, output: Output, metrics: Tensor) -> Values:
    named = dict(zip(METRICS, metrics.tolist(), strict=True))
    tensors = {
        "logits": output.logits,
        "q_halt_logits": output.q[:, 0],
        "halted": output.halted,
        "steps": output.steps,
        "preds": output.logits.argmax(-1),
    }
    loss = named["lm_loss"] + 0.5 * named["q_halt_loss"]
    return _metric_values(where, loss, named) | _output_values(where, tensors)


def _output_values(where: str, tensors: dict[str, Tensor]) -> Values:
    integers = {name: tensors[name] for name in ("halted", "steps", "preds") if name in tensors}
    logits = {name: tensors[name].detach() for name in ("logits", "q_halt_logits")}
    return {("integers", where, name): value for name, value in integers.items()} | {
        ("logits", where, name): value for name, value in logits.items()
    }


def _metric_values(where: str, loss: float, metrics: dict[str, float]) -> Values:
    found = {("metrics", where, name): _float64(value) for name, value in metrics.items()}
    return found | {("loss", where, "loss"): _float64(loss)}


def _float64(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
