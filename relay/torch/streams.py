"""The random streams of a process: Python, numpy, torch on the CPU and on devices, and generators of loaders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch

from relay.torch.plain import Misfit

Streams = dict[str, Any]
"""The state of each stream by name, as plain values and tensors."""
_MT19937 = 624


def capture(devices: Iterable[torch.device] = (), generators: Mapping[str, torch.Generator] | None = None) -> Streams:
    """The state of every stream now. Draws nothing."""
    found: Streams = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if find_spec("numpy") is not None:
        import numpy as np

        found["numpy"] = np.random.get_state(legacy=False)  # the stream that user code draws from
    for device in devices:
        if device.type == "cuda":
            found[str(device.index or 0)] = torch.cuda.get_rng_state(device)
    for name, generator in (generators or {}).items():
        found[f"generator {name}"] = generator.get_state()
    return found


def restore(streams: Streams, generators: Mapping[str, torch.Generator] | None = None) -> None:
    """Set every stream that `capture` saved."""
    for name, state in streams.items():
        if name == "python":
            random.setstate(state)
        elif name == "torch":
            torch.set_rng_state(state)
        elif name == "numpy":
            import numpy as np

            np.random.set_state(state)
        elif name.startswith("generator "):
            (generators or {})[name.removeprefix("generator ")].set_state(state)
        else:
            torch.cuda.set_rng_state(state, int(name))


def check(streams: Streams) -> None:
    """Raises Misfit for a state that a library would take without looking. The form was compared with a live one."""
    kind, words, _ = streams["python"]
    if kind != 3 or len(words) != _MT19937 + 1 or not all(0 <= word < 2**32 for word in words):
        raise Misfit("random.python", "is not a state of Python's random numbers")
    if not 0 < words[-1] <= _MT19937:
        raise Misfit("random.python", "has a position outside its state")
    found = streams.get("numpy", {})
    if found.get("bit_generator") == "MT19937" and not 0 <= found["state"]["pos"] <= _MT19937:
        raise Misfit("random.numpy", "has a position outside its state")
