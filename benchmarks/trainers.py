"""What the callbacks cost a step of Transformers' and Lightning's trainers.

    python benchmarks/trainers.py transformers --steps 400
    python benchmarks/trainers.py lightning --steps 400

Trains the same model without and with the callback, in turns, each time in a process of its own, and prints one JSON
line: the median milliseconds of a step of each, and their quotient. On a GPU the model is a GPT of about 100 million
parameters in bfloat16, on a CPU a tiny one. Commits are every 200 steps; the median leaves them out, and `seconds` has
them: the time of all steps after `--warm` but the last. `callback_ms` is the median time of a step that passes in the
callback, a wait for the GPU included: it holds where processes differ more than the callback costs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(1, str(Path(__file__).parent))

from own_loop import CONTEXT, LARGE, LETTERS, SMALL, Block, synchronized

GPU = torch.cuda.is_available()


class GPT(nn.Module):
    """The model of benchmarks/own_loop.py, with the loss inside as trainers like it."""

    def __init__(self, of: dict[str, int]) -> None:
        super().__init__()
        blocks = [Block(of["width"], of["heads"]) for _ in range(of["layers"])]
        self.net = nn.Sequential(nn.Embedding(LETTERS, of["width"]), *blocks, nn.Linear(of["width"], LETTERS))

    def forward(self, codes: Tensor) -> dict[str, Tensor]:
        logits = self.net(codes[:, :-1])
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1).float(), codes[:, 1:].flatten())}


class Clock:
    """When each step began; the seconds end before the last one, whose commit the trainer waits for."""

    def __init__(self, warm: int, steps: int) -> None:
        self.warm, self.steps, self.began, self.seconds = warm, steps, list[float](), 0.0
        self._from, self._inside, self._before = 0.0, 0.0, list[float]()

    def watch(self, callback: Any) -> None:
        """Add up the time that passes in a callback's events."""

        def timed(event: Callable[..., Any]) -> Callable[..., Any]:
            def call(*words: Any, **named: Any) -> Any:
                began = time.perf_counter()
                try:
                    return event(*words, **named)
                finally:
                    self._inside += time.perf_counter() - began

            return call

        for name in dir(callback):
            if name.startswith("on_"):
                setattr(callback, name, timed(getattr(callback, name)))

    def step(self) -> None:
        if len(self.began) == self.warm:
            self._from = synchronized()
        if len(self.began) == self.steps - 1:
            self.seconds = synchronized() - self._from
        self.began.append(time.perf_counter())
        self._before.append(self._inside)

    def result(self) -> dict[str, float]:
        gaps = [1000 * (b - a) for a, b in pairwise(self.began)][self.warm :]
        return {
            "median_ms": round(median(gaps), 3),
            "seconds": round(self.seconds, 3),
            "longest_ms": round(max(gaps), 1),
            "callback_ms": round(median(1000 * (b - a) for a, b in list(pairwise(self._before))[self.warm :]), 4),
        }


def data(count: int) -> Tensor:
    return torch.randint(LETTERS, (count, CONTEXT + 1), generator=torch.Generator().manual_seed(1))


def transformers_run(args: argparse.Namespace, of: dict[str, int]) -> dict[str, Any]:
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    from relay.torch.transformers import RelayCallback

    clock = Clock(args.warm, args.steps)

    class Timing(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.step()

    set_seed(1)
    callback = _callback(RelayCallback, args, clock)
    trainer = Trainer(
        model=GPT(of),
        args=TrainingArguments(
            output_dir=f"{args.folder}/out", max_steps=args.steps, per_device_train_batch_size=of["batch"],
            save_strategy="no", report_to=[], logging_steps=50, bf16=GPU, use_cpu=not GPU, disable_tqdm=True,
            label_names=[], remove_unused_columns=False,
        ),
        train_dataset=[{"codes": row} for row in data(1000)],
        callbacks=[Timing(), *([callback] if callback else [])],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=callback.folder if callback else None)
    return clock.result()


def lightning_run(args: argparse.Namespace, of: dict[str, int]) -> dict[str, Any]:
    import lightning.pytorch as pl

    from relay.torch.lightning import RelayCallback

    clock = Clock(args.warm, args.steps)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = GPT(of)

        def training_step(self, batch: list[Tensor], i: int) -> Tensor:
            loss = self.gpt(batch[0])["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=3e-4)

    class Timing(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            clock.step()

    pl.seed_everything(1)
    callback = _callback(RelayCallback, args, clock)
    trainer = pl.Trainer(
        max_steps=args.steps, precision="bf16-mixed" if GPU else "32-true", logger=False, devices=1,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Timing(), *([callback] if callback else [])], plugins=[callback.checkpoint_io] if callback else [],
    )  # fmt: skip
    loader = DataLoader(TensorDataset(data(1000)), of["batch"], shuffle=True, drop_last=True)
    trainer.fit(Module(), loader, ckpt_path=callback.path if callback else None)
    return clock.result()


def _callback(kind: Any, args: argparse.Namespace, clock: Clock) -> Any:
    if not args.relayed:
        return None
    store = f"{args.folder}/store"
    callback = kind("bench/trainer", target_steps=args.steps, store=store, every_steps=200, create=True)
    clock.watch(callback)
    return callback


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """In turns, so that a machine that becomes slower does not count for one of them."""
    found: dict[str, list[dict[str, float]]] = {"plain": [], "relayed": []}
    for _ in range(args.repeat):
        for name, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                words = [sys.executable, __file__, args.trainer, "--steps", str(args.steps), "--warm", str(args.warm)]
                words += ["--folder", folder, *(["--small"] if args.small else [])]
                words += ["--relayed"] if name == "relayed" else []
                environ = os.environ | {"RELAY_EPHEMERAL": "1", "RELAY_SYNC_DIR": f"{folder}/sync"}
                done = subprocess.run(words, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
                runs.append(json.loads(done.stdout.splitlines()[-1]))
    best = {name: min(each["median_ms"] for each in runs) for name, runs in found.items()}
    inside = min(each["callback_ms"] for each in found["relayed"])
    whole = {name: min(each["seconds"] for each in runs) for name, runs in found.items()}
    device = torch.cuda.get_device_name() if GPU else f"CPU, {torch.get_num_threads()} threads"
    return {
        "trainer": args.trainer,
        "more_per_step": round(best["relayed"] / best["plain"] - 1, 4),
        "callback_share": round(inside / best["relayed"], 5),
        "more_with_commits": round(whole["relayed"] / whole["plain"] - 1, 4),
        "device": device,
        "torch": torch.__version__,
        **found,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer", choices=("transformers", "lightning"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warm", type=int, default=20, help="steps that are not timed")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each kind")
    parser.add_argument("--small", action="store_true", help="a tiny model on any device")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--relayed", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is None:
        print(json.dumps(compare(given)))
    else:
        size = LARGE if GPU and not given.small else SMALL
        print(json.dumps({"transformers": transformers_run, "lightning": lightning_run}[given.trainer](given, size)))
