"""Cost of checkpoints of ARC's puzzle table: the base once, the journal with each commit, and restoring.

    python benchmarks/puzzle_table.py                       # a GPU: 876,406 puzzles, a batch of 192
    python benchmarks/puzzle_table.py --rows 60000 --batch 32   # a CPU
    python benchmarks/puzzle_table.py --whole --steps 20    # a Hopper GPU: by the captured step

The state of `step_time.py --task arc` is copied, digested, saved and loaded as in a session. Between two commits only
its table is trained, on made-up gradients; with `--whole` everything is trained, as in a session. Exit 1 if the loaded
table differs from the live one in a single bit.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from cases import canvases, case

from relay.core.workload import Saved
from trm.checkpoint import TABLE, Document, TrmSnapshot, load_document, load_state
from trm.kernels.fast_step import FastStep
from trm.optim import lr_scale, sign_sgd_
from trm.sharedtable import SharedTable
from trm.train import TrainState


def wait(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(name: str, device: torch.device, run: Callable[[], object]) -> None:
    """Print the seconds of a call, the device's work included."""
    wait(device)
    began = time.perf_counter()
    run()
    wait(device)
    print(f"{name:48} {1e3 * (time.perf_counter() - began):10.1f} ms", flush=True)


Train = Callable[[TrainState, SharedTable, int], None]
"""So many steps."""


def whole(step: FastStep, state: TrainState, shared: SharedTable, steps: int) -> None:
    """Steps as a session takes them."""
    for _ in range(steps):
        shared.before_step(state.step + 1)
        step(state, canvases(state.config.batch_size, state.sizes, state.step))


def table_alone(state: TrainState, shared: SharedTable, steps: int) -> None:
    """Steps on the table alone: signs and journal as `update_weights` does them."""
    config, device = state.config, state.device
    g = torch.Generator(device).manual_seed(state.step)
    table, batch = state.model.inner.puzzle_emb.weights, config.batch_size
    for _ in range(steps):
        ids = torch.randint(1, len(table), (batch,), generator=g, device=device, dtype=torch.int32)
        ids[: batch // 4] = ids[batch // 4 : 2 * (batch // 4)]  # puzzles that occur twice
        grads = torch.randn(batch, table.shape[1], generator=g, device=device) * 1e-3
        grads[:, :5] = 0
        shared.before_step(state.step + 1)
        rate = config.puzzle_emb_lr * lr_scale(config, state.step + 1)
        lr = torch.tensor(rate, dtype=torch.float64, device=device)  # where the fused step keeps it
        assert state.journal is not None, "the table is shared"
        state.journal.note(ids, sign_sgd_(table, ids, grads, lr, config.puzzle_emb_weight_decay))
        state.step += 1


def note_ms(state: TrainState, shared: SharedTable, calls: int = 200) -> float:
    """Milliseconds that a step spends on its journal, with separate launches; in a graph it is less."""
    table, batch, device = state.model.inner.puzzle_emb.weights, state.config.batch_size, state.device
    ids = torch.arange(batch, device=device, dtype=torch.int32) % len(table)
    sign = torch.randn(batch, table.shape[1], device=device).sign()
    journal = state.journal
    assert journal is not None, "the table is shared"
    wait(device)
    began = time.perf_counter()
    for _ in range(calls):
        journal.note(ids, sign)
    wait(device)
    return 1e3 * (time.perf_counter() - began) / calls


def commit(state: TrainState, shared: SharedTable, folder: Path, lent: dict[str, Path]) -> Saved:
    """A snapshot, saved; its sizes."""
    document = Document(step=state.step, seed=0, config={}, code="0", fingerprint={})
    loss = torch.zeros((), dtype=torch.float64, device=state.device)
    shared.lend(frozenset(lent), False)
    taken: list[TrmSnapshot] = []
    timed(
        "snapshot, all that training waits for",
        state.device,
        lambda: taken.append(TrmSnapshot(state, document, loss, shared.plan(state.step))),
    )
    saved: list[Saved] = []
    folder.mkdir()
    timed("saved beside training", state.device, lambda: saved.append(taken[0].save(folder)))
    sizes = {name: (folder / name).stat().st_size for name in saved[0].files}
    for name in saved[0].borrows:
        shutil.copy(lent[name], folder / name)
    lent |= {name: folder / name for name in saved[0].lends}
    print(f"{'sent':48} {sum(sizes.values()) / 1e6:10.1f} MB", {name: f"{n / 1e6:.1f}" for name, n in sizes.items()})
    return saved[0]


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="between two commits")
    parser.add_argument("--commits", type=int, default=3, help="after the base")
    parser.add_argument("--rows", type=int, help="puzzles; ARC's number")
    parser.add_argument("--batch", type=int, help="rows a step; 192")
    parser.add_argument("--whole", action="store_true", help="train everything, by the captured step")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    arc = case("arc")
    config = arc.config.model_copy(update={"batch_size": args.batch or arc.config.batch_size})
    sizes = replace(arc.sizes, num_identifiers=args.rows or arc.sizes.num_identifiers)
    state = TrainState(config, sizes, device)
    state.tensors()[TABLE].normal_()
    shared, lent = SharedTable(state), dict[str, Path]()
    table = state.tensors()[TABLE]
    print(f"{device.type}: table of {table.numel() * 4 / 1e6:.1f} MB, batch {config.batch_size}, {args.steps} steps")
    print(f"{'journal, a step':48} {note_ms(state, shared):10.3f} ms")
    train: Train = partial(whole, FastStep()) if args.whole else table_alone
    with tempfile.TemporaryDirectory() as name:
        for number in range(args.commits + 1):
            train(state, shared, args.steps)
            commit(state, shared, Path(name) / str(number), lent)
        newest = Path(name) / str(args.commits)
        back = TrainState(config, sizes, device)
        timed("loaded and replayed", device, lambda: load_state(newest, load_document(newest), back))
        same = torch.equal(back.tensors()[TABLE], table)
    print(f"the loaded table is the live one, bit for bit: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
