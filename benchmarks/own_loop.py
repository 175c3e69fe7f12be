"""What a session costs a user's loop, and whether a GPT of 100 million parameters is exact over three processes.

    python benchmarks/own_loop.py cost                      # a boundary and a commit, on this machine's CPU or GPU
    python benchmarks/own_loop.py exact --steps 150         # torch.compile and mixed precision; three sessions
    python benchmarks/own_loop.py share --steps 1500        # time of training with commits every 500 steps, and without

`exact` trains without a relay, then in three sessions, each in a process of its own, and compares the bytes of the
model. If they differ it names the first part that a restart changes. Prints one JSON line; exit 1 if not exact.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parent.parent))

import relay

CONTEXT, LETTERS = 512, 8192
SMALL = {"width": 64, "layers": 2, "heads": 2, "batch": 4}
LARGE = {"width": 768, "layers": 12, "heads": 12, "batch": 16}
"""97 million parameters."""


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Training:
    """The loop of `examples/gpt_amp.py`, larger."""

    def __init__(self, of: dict[str, int], steps: int) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(1)
        width, layers = of["width"], of["layers"]
        blocks = [Block(width, of["heads"]) for _ in range(layers)]
        self.model = nn.Sequential(nn.Embedding(LETTERS, width), *blocks, nn.Linear(width, LETTERS)).to(self.device)
        self.net = torch.compile(self.model) if self.device == "cuda" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.device == "cuda")
        codes = torch.randint(LETTERS, (1000, CONTEXT + 1))
        self.loader = DataLoader(TensorDataset(codes), of["batch"], shuffle=True, drop_last=True)

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.net, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler
        }  # fmt: skip

    def step(self, codes: Tensor) -> Tensor:
        codes = codes.to(self.device, non_blocking=True)
        with torch.autocast(self.device, torch.float16 if self.device == "cuda" else torch.bfloat16):
            loss = F.cross_entropy(self.net(codes[:, :-1]).flatten(0, 1).float(), codes[:, 1:].flatten())
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss

    def digest(self) -> str:
        state = self.model.state_dict().values()
        return hashlib.sha256(b"".join(each.cpu().numpy().tobytes() for each in state)).hexdigest()

    def endless(self) -> Iterator[Tensor]:
        while True:
            for (codes,) in self.loader:
                yield codes


def synchronized() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def size(args: argparse.Namespace) -> dict[str, int]:
    return LARGE if torch.cuda.is_available() and not args.small else SMALL


def plain(args: argparse.Namespace) -> None:
    """The loop without a relay, after `--warm` steps that are not timed."""
    torch.use_deterministic_algorithms(args.deterministic)
    training, began, seconds = Training(size(args), args.steps), 0.0, []
    for number, codes in enumerate(training.endless()):
        if number == args.warm:
            began = synchronized()
        if number == args.steps:
            break
        training.step(codes)
        seconds.append(time.perf_counter())
    print(json.dumps({"digest": training.digest(), "seconds": synchronized() - began}))


def session(args: argparse.Namespace) -> None:
    """One session. Also the script that `check-loop` runs."""
    training, began, ends, seconds = Training(size(args), args.steps), 0.0, [], 0.0
    with relay.session(
        "bench/gpt",
        target_steps=args.steps,
        store=args.store,
        account=args.account,
        every_steps=args.every,
        create=True,
        deterministic=args.deterministic,
    ) as run:
        run.track(**training.parts())
        first = run.step
        for (codes,) in run.batches(training.loader):
            if run.step == first + args.warm:
                began = synchronized()
            run.log(loss=training.step(codes))
            if run.step + 1 == args.until:
                run.stop()
            ends.append(time.perf_counter())
            if run.step + 1 == args.steps:  # before the last commit, which has to be waited for
                seconds = synchronized() - began
    gaps = [1000 * (b - a) for a, b in pairwise(ends)][args.warm :]
    print(json.dumps({
        "digest": training.digest(), "seconds": seconds, "certified": run.certified, "from": first, "to": run.step,
        "stall_ms": [round(1000 * each, 1) for each in run.outcome.stall_s], "longest_gap_ms": round(max(gaps), 1),
        "median_gap_ms": round(sorted(gaps)[len(gaps) // 2], 1),
    }))  # fmt: skip


def ran(mode: str, folder: str, args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """The result of this script in a process of its own."""
    words = [sys.executable, __file__, mode, "--steps", str(args.steps), "--warm", str(args.warm), *more]
    environ = os.environ | {"RELAY_EPHEMERAL": "1", "RELAY_SYNC_DIR": f"{folder}/sync"}
    words += [f"--{name}" for name in ("small", "deterministic") if getattr(args, name)]
    done = subprocess.run(words, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def exact(args: argparse.Namespace) -> int:
    """Three sessions against the loop without a relay."""
    args.warm = 0
    with tempfile.TemporaryDirectory() as folder:
        whole = ran("plain", folder, args)
        of = [
            ran("session", folder, args, "--store", f"{folder}/store", "--account", f"a{i}", "--until", str(until))
            for i, until in enumerate((args.steps // 3, 2 * args.steps // 3, args.steps))
        ]
        same = of[-1]["digest"] == whole["digest"]
        found = {"exact": same, "sessions": of, "device": _device(), "torch": torch.__version__}
        if not same:
            words = ["--steps", "12", __file__, "session", "--steps", "12", "--warm", "0"]
            words += [f"--{name}" for name in ("small", "deterministic") if getattr(args, name)]
            program = [sys.executable, str(Path(__file__).parent.parent / "rotate_accounts.py"), "check-loop", "--json"]
            check = subprocess.run([*program, *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
            found["check_loop"] = json.loads(check.stdout)
    print(json.dumps(found))
    return int(not same)


def share(args: argparse.Namespace) -> int:
    """Seconds of the same steps with commits every 500 steps, and without a relay."""
    with tempfile.TemporaryDirectory() as folder:
        alone = ran("plain", folder, args)
        relayed = ran("session", folder, args, "--store", f"{folder}/store", "--every", "500")
    more = relayed["seconds"] / alone["seconds"] - 1
    print(json.dumps({"plain_s": alone["seconds"], "share": round(more, 4), **relayed, "device": _device()}))
    return 0


def cost(args: argparse.Namespace) -> int:
    """CPU seconds of the training thread: a boundary without a commit, and a commit of `--megabytes` of weights."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RELAY_EPHEMERAL": "1", "RELAY_SYNC_DIR": f"{folder}/sync"}
        torch.set_num_threads(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        empty = nn.Linear(4, 4, device=device)
        with relay.session("bench/idle", target_steps=args.steps, store=f"{folder}/a", every_steps=10**9) as run:
            run.track(model=empty)
            took = [time.thread_time() for _ in run.steps()]
        gaps = sorted(b - a for a, b in pairwise(took[2:]))
        count = args.megabytes << 18
        weights = torch.zeros(count, device=device)
        spent = []
        with relay.session("bench/heavy", target_steps=6, store=f"{folder}/b", every_steps=2) as run:
            run.track(weights=weights)
            for _ in run.steps():
                spent.append(time.thread_time())
        parts = [b - a for a, b in pairwise(spent)]
    print(json.dumps({
        "boundary_us": {"median": round(1e6 * gaps[len(gaps) // 2], 1), "mean": round(1e6 * sum(gaps) / len(gaps), 1)},
        "commit_s_per_gb": {"snapshot": round(parts[1] * 1024 / args.megabytes, 2),
                            "digest of the next step": round(parts[2] * 1024 / args.megabytes, 2)},
        "steps": args.steps, "megabytes": args.megabytes, "device": _device(),
    }))  # fmt: skip
    return 0


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"


MODES = {"plain": plain, "session": session, "exact": exact, "share": share, "cost": cost}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warm", type=int, default=20, help="steps that are not timed")
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--every", type=int, default=10**9)
    parser.add_argument("--store")
    parser.add_argument("--account")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--deterministic", action="store_true", help="as deterministic=True of the session")
    parser.add_argument("--small", action="store_true", help="a tiny model on any device")
    given = parser.parse_args()
    sys.exit(MODES[given.mode](given))
