"""What a checkpoint of ARC's puzzle table costs on this GPU, and whether its steps can be replayed from their signs.

    python benchmarks/puzzle_table.py

The state of `step_time.py --task arc` (876,406 puzzles) is copied, digested and saved as in a session. Then the table
is trained for some steps on made-up gradients while a journal keeps rows and signs only; replayed on the CPU from the
table as it was, it must give the live one, bit for bit. Exit 1 if it does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from step_time import case
from torch import Tensor

from trm.model import Sizes
from trm.optim import sign_sgd_
from trm.snapshot import Snapshot
from trm.statefile import StateDocument
from trm.train import TrainState

LR, DECAY = 1e-2, 0.1


@dataclass
class Journal:
    """Rows touched and two bits an element (0, 1, -1 as 3), step by step, on the CPU."""

    steps: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def note(self, ids: Tensor, grads: Tensor) -> None:
        """Each row once, with the sign of its gradients' sum, added up as sign_sgd_ does."""
        same = ids[:, None] == ids[None, :]
        total = same.to(grads.dtype) @ grads
        first = same.to(torch.uint8).argmax(dim=1) == torch.arange(len(ids), device=ids.device)
        rows = ids[first]
        code = (total[first].sign().to(torch.int8) & 3).view(torch.uint8).view(len(rows), -1, 4)
        packed = code[..., 0] | code[..., 1] << 2 | code[..., 2] << 4 | code[..., 3] << 6
        self.steps.append((rows.cpu(), packed.cpu()))

    @property
    def bytes(self) -> int:
        """Of all steps."""
        return sum(rows.numel() * 4 + packed.numel() for rows, packed in self.steps)

    def replay(self, table: Tensor, lr: float, decay: float) -> None:
        """The same steps on a table as it was before the first."""
        for rows, packed in self.steps:
            code = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], dim=-1).flatten(1)
            sign = code.float() - 4 * (code == 3).float()
            index = rows.long()
            table[index] = table[index] * (1 - lr * decay) - lr * sign


def timed(name: str, run: Callable[[], object], repeats: int = 1) -> None:
    """Print the seconds of the last of some calls, the device's work included."""
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    print(f"{name:44} {1e3 * seconds:10.1f} ms", flush=True)


def checkpoint(state: TrainState) -> None:
    """A snapshot's parts, the second of two each: the first has cold caches."""
    document = StateDocument(step=0, seed=0, config={}, code="0", fingerprint={})
    loss = torch.zeros((), dtype=torch.float64, device="cuda")
    timed("snapshot, all that training waits for", lambda: Snapshot(state, document, loss).finite, 3)
    began = time.perf_counter()
    snapshot = Snapshot(state, document, loss)
    print(f"{'of it, to queue':44} {1e3 * (time.perf_counter() - began):10.1f} ms")
    with tempfile.TemporaryDirectory() as name:
        for number in range(2):
            folder = Path(name) / str(number)
            folder.mkdir()
            timed("saved beside training", lambda folder=folder: snapshot.save(folder))  # type: ignore[misc]
        size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{'files':44} {size / 1e6:10.1f} MB")


def journal(sizes: Sizes, batch: int, width: int, steps: int) -> bool:
    """Train, replay, compare."""
    g = torch.Generator("cuda").manual_seed(0)
    table = torch.randn(sizes.num_identifiers, width, generator=g, device="cuda")
    before, kept, seconds = table.clone(), Journal(), 0.0
    lr = torch.tensor(LR, dtype=torch.float64, device="cuda")  # where the fused step keeps it
    for _ in range(steps):
        ids = torch.randint(1, sizes.num_identifiers, (batch,), generator=g, device="cuda", dtype=torch.int32)
        ids[: batch // 4] = ids[batch // 4 : batch // 2]  # puzzles that come twice
        grads = torch.randn(batch, width, generator=g, device="cuda") * 1e-3
        grads[:, :5] = 0
        sign_sgd_(table, ids, grads, lr, DECAY)
        began = time.perf_counter()
        kept.note(ids, grads)
        seconds += time.perf_counter() - began
    print(f"journal of {steps} steps: {kept.bytes / 1e6:.2f} MB, {1e3 * seconds / steps:.2f} ms a step to keep")
    replayed = before.cpu()
    began = time.perf_counter()
    kept.replay(replayed, LR, DECAY)
    print(f"replay on the CPU: {time.perf_counter() - began:.2f} s")
    touched = torch.cat([rows for rows, _ in kept.steps]).unique().long()
    same = torch.equal(replayed, table.cpu())
    print(
        f"{len(touched):,} rows touched ({len(touched) * width * 4 / 1e6:.1f} MB); replay gives the same bits: {same}"
    )
    return same


def main() -> None:
    """Both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "puzzle_table measures GPUs, and torch sees none here\n")
    timed_case = case("arc")
    config, sizes = timed_case.config, timed_case.sizes
    checkpoint(TrainState(config, sizes, "cuda"))
    torch.cuda.empty_cache()
    sys.exit(not journal(sizes, config.batch_size, config.arch.puzzle_emb_ndim, args.steps))


if __name__ == "__main__":
    main()
