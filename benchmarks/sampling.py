"""What sampling of the machine costs a training step: `python benchmarks/sampling.py [--steps 2000] [--rounds 4]`.

Trains a small network in rounds without the sampler, with it, and with one that samples a hundred times as often, whose
cost is large enough to be measured. Prints one JSON line: milliseconds of one sample, of a step in each kind of round,
and the share of a step that sampling takes at its usual interval: by the rounds, and by the time of one sample as if it
stopped training. Without a GPU a fake driver answers after a millisecond, and only the thread's own cost is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

import torch

sys.path[:0] = [str(Path(__file__).parent.parent)]

from relay.app.machine.sampling import EVERY_S, HEAT, POWER, Reader, Sampler, gpu_reader  # noqa: E402
from relay.core.clock import RealRuntime  # noqa: E402

OFTEN = 100
"""How much more often the third kind of round samples."""


def fake_reader() -> Reader:
    """A driver that takes a millisecond."""

    def read() -> dict[str, float]:
        time.sleep(0.001)
        return {POWER: 100.0, HEAT: 50.0}

    return read


def round_of(steps: int, step: torch.nn.Module, device: str, sampler: Sampler | None) -> float:
    """Milliseconds a step."""
    x = torch.randn(256, 1024, device=device)
    optimizer = torch.optim.AdamW(step.parameters(), 1e-4)
    if sampler:
        sampler.start()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        step(x).square().mean().backward()
        optimizer.step()
    wait()
    took = time.perf_counter() - began
    if sampler:
        sampler.stop()
    return 1000 * took / steps


def main() -> None:
    """Interleave the kinds, so that a warm card and other load meet all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wide = 4096 if device == "cuda" else 512
    step = torch.nn.Sequential(torch.nn.Linear(1024, wide), torch.nn.GELU(), torch.nn.Linear(wide, 1024)).to(device)
    step(torch.randn(1, 1024, device=device))
    read = gpu_reader() or fake_reader()
    times = []
    for _ in range(100):
        began = time.perf_counter()
        found = read()
        times.append(1000 * (time.perf_counter() - began))
    kinds: dict[str, float | None] = {"without": None, "usual": EVERY_S, "often": EVERY_S / OFTEN}
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    round_of(given.steps // 10, step, device, None)
    for _ in range(given.rounds):
        for kind, every in kinds.items():
            sampler = Sampler(RealRuntime(), lambda: read, every) if every else None
            took[kind].append(round_of(given.steps, step, device, sampler))
    ms = {kind: median(values) for kind, values in took.items()}
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                "driver": "nvidia-ml-py" if gpu_reader() else "fake",
                "sampled": sorted(found),
                "sample_ms": {"median": round(median(times), 3), "longest": round(max(times), 3)},
                "step_ms": {kind: round(value, 4) for kind, value in ms.items()},
                "rounds": given.rounds,
                "share_by_rounds": round((ms["often"] / ms["without"] - 1) / OFTEN, 7),
                "share_if_it_stopped_training": round(median(times) / 1000 / EVERY_S, 7),
            }
        )
    )


if __name__ == "__main__":
    main()
