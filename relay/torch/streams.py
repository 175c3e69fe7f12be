"""The random streams of a process: Python, numpy, torch on the CPU and on devices, and generators of loaders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch

from relay.torch.plain import Book, Misfit, decode, encode

Drawn = dict[str, Any]
"""The state of each stream by name, as plain values and tensors."""


class Streams:
    """Every random stream that a loop may draw from."""

    def __init__(
        self, devices: Iterable[torch.device] = (), generators: Mapping[str, torch.Generator] | None = None
    ) -> None:
        self._devices = [device for device in devices if device.type == "cuda"]
        """In their order: another process may give them other numbers."""
        self._generators = dict(generators or {})

    def capture(self) -> Drawn:
        """The state of every stream now. Draws nothing."""
        found: Drawn = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if find_spec("numpy") is not None:
            import numpy as np

            found["numpy"] = np.random.get_state(legacy=False)  # the stream that user code draws from
        found |= {str(i): torch.cuda.get_rng_state(device) for i, device in enumerate(self._devices)}
        return found | {f"generator {name}": one.get_state() for name, one in self._generators.items()}

    def restore(self, drawn: Drawn) -> None:
        """Set every stream."""
        random.setstate(drawn["python"])
        torch.set_rng_state(drawn["torch"])
        if "numpy" in drawn:
            import numpy as np

            np.random.set_state(drawn["numpy"])
        for i, device in enumerate(self._devices):
            torch.cuda.set_rng_state(drawn[str(i)], device)
        for name, one in self._generators.items():
            one.set_state(drawn[f"generator {name}"])

    def check(self, drawn: Any, where: str) -> None:
        """Raises Misfit for a state that is not of these streams, or that a library refuses, or takes unseen."""
        book, now = Book(), self.capture()
        decode(encode(drawn, where, book), now, where, book.tensors)
        try:
            of_numpy = drawn.get("numpy", {})
            if of_numpy.get("bit_generator") == "MT19937" and not 0 <= of_numpy["state"]["pos"] <= 624:
                raise ValueError("numpy would take the position, and read beyond its state")
            self.restore(drawn)
        except (ValueError, TypeError, RuntimeError, OverflowError, KeyError, AttributeError) as error:
            raise Misfit(where, "is not a state of these random streams") from error
        finally:
            self.restore(now)
