"""Weights in under the reference's names, as safetensors; knows no optimizer and never unpickles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from relay.torch.statefile import read_tensors
from trm.act import TRM
from trm.train import TrainState

COMPILED = "_orig_mod."
_WRAPPERS = (COMPILED, "model.")
"""Prefixes torch.compile and the reference's loss head put in front of a name."""


def plain_name(name: str) -> str:
    """The name without wrapper prefixes: `_orig_mod.model.inner.x` and `model.inner.x` are `inner.x`."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def load_named(model: TRM, tensors: Mapping[str, Tensor]) -> None:
    """Copy reference-named tensors into the model. Raises ValueError (one line) naming the first that does not fit.

    The initial states may come in another float type; every other type must match.
    """
    ours = model.state_dict()
    theirs = {plain_name(name): value for name, value in tensors.items()}
    if len(theirs) < len(tensors):
        raise ValueError("weights hold one tensor under two names, with and without a wrapper's prefix")
    odd = sorted(ours.keys() ^ theirs.keys())
    if odd:
        raise ValueError(f"weights {'lack' if odd[0] in ours else 'hold an unknown'} tensor {odd[0]!r:.200}")
    for name, value in theirs.items():
        if value.shape != ours[name].shape:
            raise ValueError(f"{name} is {tuple(value.shape)} where {tuple(ours[name].shape)} belongs")
    for name, value in theirs.items():
        ours[name].copy_(value)


def import_weights(state: TrainState, path: Path) -> None:
    """Start training from a reference-named safetensors file: weights and EMA are the file's, the rest stays fresh.

    Raises ValueError (one line) if the file is damaged or does not fit the model.
    """
    room = 2 * sum(value.numel() * value.element_size() for value in state.model.state_dict().values()) + 2**20
    if path.stat().st_size > room:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, far more than this model's weights")
    try:
        load_named(state.model, dict(read_tensors(path)))
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a safetensors file: {error}") from error
    state.reset_ema()
