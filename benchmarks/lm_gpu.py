"""The language model on a GPU: exactness, step time, memory and its prediction, both phases, a link of two processes.

    python benchmarks/lm_gpu.py rows equal steps memory phases link --out results   (all: about 12 minutes on an H200)
    python benchmarks/lm_gpu.py reference --tasks lm --reference CHECKOUT --out results        (then --tasks lm_fast)

Each part prints JSON lines, also to OUT/lm_gpu.jsonl, and continues after a part that failed; exit 1 then. Batches are
random tokens, so no text and no tokenizer is needed; `link` trains lm_small on generated text in two processes that
share no compiled code. CHECKOUT is one of nanochat 4a87a0d; two compilations a task, one or two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import lm  # noqa: E402, F401
from lm.config import PRESETS as OBJECTIVES  # noqa: E402
from lm.config import LmConfig  # noqa: E402
from lm.cost import fit, need, step_flops, token_flops  # noqa: E402
from lm.objective import Objective  # noqa: E402
from lm.presets import preset  # noqa: E402
from lm.train import EAGER, Batch, RefiningStep, TrainState, compiled  # noqa: E402
from lm.workload import LmWorkload  # noqa: E402
from relay.torch import rng  # noqa: E402
from relay.torch.device import settle  # noqa: E402
from relay.torch.memory import free_bytes  # noqa: E402
from relay.torch.snapshot import state_hash  # noqa: E402
from tests.lm.small import small  # noqa: E402

DEVICE = torch.device("cuda")
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12}
"""Dense bfloat16 products a second, by the data sheets."""
Row = dict[str, Any]


def batch_of(config: LmConfig, step: int) -> Batch:
    """Random tokens by (seed, step)."""
    shape = config.batch_size, config.arch.context + 1
    tokens = rng.integers(0, step, 90, shape, 0, config.data.vocab_size, DEVICE)
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def of(task: str, *objective: str, batch: int | None = None) -> LmConfig:
    """A task with an objective of refine.preset; batch: rows a step."""
    values = preset(task).model_dump()
    for name in objective:
        for key, value in OBJECTIVES[name].items():
            values["refine"][key.partition(".")[2]] = value
    return LmConfig.model_validate(values | ({"batch_size": batch} if batch else {}))


def trained(config: LmConfig, steps: int, parts: int | None = None, name: str | None = None) -> tuple[TrainState, Row]:
    """Some steps; the median of their seconds without the first two, the peak of memory, the last metrics."""
    settle(config.threads)
    torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    found = parts or fit(config, free_bytes(DEVICE), False, 1, "cuda").parts
    state, step = TrainState(config, config.data.vocab_size, DEVICE), RefiningStep(name or compiled(config), found)
    seconds, metrics = [], torch.zeros(0)
    for number in range(steps):
        batch = batch_of(config, number)
        torch.cuda.synchronize()
        began = time.monotonic()
        metrics = step(state, batch)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    median = sorted(seconds[2:])[len(seconds[2:]) // 2]
    *losses, objective, norm = metrics.tolist()
    predicted = need(config).peak(-(-config.batch_size // found))
    peak = torch.cuda.max_memory_allocated()
    return state, {
        "parts": found, "first_s": round(seconds[0], 2), "step_ms": round(1000 * median, 2),
        "tokens_per_s": round(config.tokens / median), "peak_gb": round(peak / 1e9, 2),
        "predicted_gb": round(predicted / 1e9, 2), "predicted_over_peak": round(predicted / peak, 3),
        "share_of_peak": round(step_flops(config) / median / peak_flops(), 3),
        "losses": [round(loss, 4) for loss in losses], "objective": round(objective, 6), "grad_norm": round(norm, 4),
    }  # fmt: skip


def peak_flops() -> float:
    name = torch.cuda.get_device_name()
    return next((value for known, value in PEAK.items() if known in name), float("nan"))


def rows(out: Path) -> Iterator[Row]:
    """100 random (seed, step) rows are the same numbers on both devices, and so are the initial weights."""
    work, on_gpu = (LmWorkload(small(size_mb=1), out / "data", device) for device in ("cpu", DEVICE))
    same = 0
    for number in range(100):
        seed, step = number * 7919 % 1000, number * 104_729 % 50_000
        one = work.text.train.batch_at(seed, step, 8).inputs
        other = on_gpu.text.train.batch_at(seed, step, 8).inputs
        drawn = rng.integers(seed, step, 2, (64,), 0, 9999, DEVICE).cpu()
        same += bool(torch.equal(one, other) and torch.equal(drawn, rng.integers(seed, step, 2, (64,), 0, 9999)))
    weights = [TrainState(of("lm_small"), 256, device).params.buffer.cpu() for device in ("cpu", DEVICE)]
    yield {"part": "rows", "same": same, "initial_weights_equal": torch.equal(*weights), "ok": same == 100}


def equal(out: Path) -> Iterator[Row]:
    """Two trainings give the same bytes; parts agree within rounding; eager and compiled losses are close."""
    bytewise = [("lm_small", objective) for objective in ("plain", "final", "uniform", "extreme")]
    for task, objective in (*bytewise, ("lm", "plain"), ("lm", "extreme")):  # lm's head is compiled, too
        config = of(task, objective, batch=16)
        states = [trained(config, 4, parts) for parts in (1, 1)]
        hashes = [state_hash(state.canonical(), state.step, 0) for state, _ in states]
        _, eager = trained(config, 4, 1, EAGER)
        grads = [trained(config, 3, parts)[0].grads.buffer.double() for parts in (1, 4)]
        apart = float((grads[0] - grads[1]).norm() / grads[0].norm())
        near = max(abs(a - b) for a, b in zip(states[0][1]["losses"], eager["losses"], strict=True))
        yield {
            "part": "equal", "task": task, "preset": objective, "same_bytes": hashes[0] == hashes[1],
            "parts_differ_by": apart, "eager_differs_by": round(near, 5), "ok": hashes[0] == hashes[1] and near < 0.05,
        }  # fmt: skip


def steps(out: Path) -> Iterator[Row]:
    """Step time of the sizes, plain and looped."""
    for task, objectives in (("lm_small", ("plain", "final")), ("lm", ("plain", "final")), ("lm_fast", ("plain",))):
        for objective in objectives:
            config = of(task, objective)
            yield {"part": "steps", "task": task, "preset": objective,
                   "mflop_a_token": round(token_flops(config) / 1e6, 1), **trained(config, 8)[1]}  # fmt: skip


def memory(out: Path) -> Iterator[Row]:
    """The peak of a step against the prediction, in several splits."""
    for task, objective, parts in (
        ("lm_small", "plain", 1), ("lm_small", "extreme", 4), ("lm", "uniform", 4), ("lm_fast", "uniform", 32),
    ):  # fmt: skip
        row = trained(of(task, objective), 4, parts)[1]
        yield {"part": "memory", "task": task, "preset": objective, **row,
               "ok": abs(row["predicted_over_peak"] - 1) <= 0.15}  # fmt: skip


def phases(out: Path) -> Iterator[Row]:
    """Ten steps of each phase: time, memory, and the objective that its losses give by the closed form."""
    for task, length in (("lm_fast", 1000), ("lm_extreme", 5000)):
        config = of(task)
        row = trained(config, 10)[1]
        losses = torch.tensor(row["losses"], dtype=torch.float64)
        by_form = float(Objective.of(config.refine).value(losses))
        yield {"part": "phases", "task": task, **row, "objective_by_form": round(by_form, 6),
               "whole_hours": round(row["step_ms"] * length / 3.6e6, 2),
               "ok": abs(by_form - row["objective"]) < 1e-3}  # fmt: skip


def link(out: Path) -> Iterator[Row]:
    """lm_small in two sessions whose processes share no compiled code."""
    store, known = out / "store", {key: value for key, value in os.environ.items() if not key.startswith("RELAY_")}
    for number, until in enumerate(("40", "80")):
        folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        caches = {name: str(out / f"{folder}{number}") for name, folder in folders.items()}
        words = ["run", "--run", "small", "--account", "account_1", "--until-step", until, "--checkpoint-every", "20"]
        subprocess.run(
            [sys.executable, str(ROOT / "rotate_accounts.py"), *words, "task=lm_small", "evaluation.every_commits=0"],
            cwd=out, check=False, env=known | caches | {"RELAY_STORE": store.as_uri(), "RELAY_EPHEMERAL": "1"},
        )  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(ROOT / "rotate_accounts.py"), "status", "--run", "small", "--json"],
        cwd=out, check=True, capture_output=True, text=True, env=known | {"RELAY_STORE": store.as_uri()},
    )  # fmt: skip
    status = json.loads(done.stdout)
    links = [one["certified"] for one in status["links"]]
    yield {"part": "link", "step": status["step"], "links": links, "path": status["session"]["path"],
           "ok": status["step"] == 80 and links[1:] == ["exact"]}  # fmt: skip


COMPARED = {"lm": 128, "lm_fast": 32}
"""Rows of a step, in one part: the whole batch of `lm`, and the reference's usual rows for d12."""


def reference(checkout: Path, tasks: list[str]) -> Iterator[Row]:
    """Tokens a second of plain `lm` and d12 next to the reference's compiled step: same shapes, card and call.

    Theirs are measured first: `settle` makes the process deterministic, and inductor stays so after a compilation.
    """
    configs = {task: of(task, "plain", batch=COMPARED[task]) for task in tasks}
    theirs = dict[str, float]()
    for task, config in configs.items():
        first, theirs[task] = their_step(config, checkout)
        yield {"part": "reference", "task": task, "rows": config.batch_size, "theirs_first_s": round(first, 2),
               "theirs_tokens_per_s": round(theirs[task])}  # fmt: skip
    for task, config in configs.items():
        row = trained(config, 12, 1)[1]
        ratio = row["tokens_per_s"] / theirs[task]
        yield {"part": "reference", "task": task, "rows": config.batch_size, **row,
               "ours_over_theirs": round(ratio, 3), "ok": ratio >= 0.9}  # fmt: skip


def their_step(config: LmConfig, checkout: Path) -> tuple[float, float]:
    """Seconds of the first step, which compiles, and tokens a second."""
    sys.path.insert(0, str(checkout))
    from nanochat.gpt import GPT, GPTConfig  # type: ignore[import-not-found]

    torch.compiler.reset()
    torch.cuda.empty_cache()
    arch = config.arch
    sizes = {"n_layer": arch.depth, "n_head": arch.h, "n_kv_head": arch.h, "n_embd": arch.d}
    model = GPT(GPTConfig(sequence_len=arch.context, vocab_size=config.data.vocab_size, **sizes))
    model.to(DEVICE)
    model.init_weights()
    optimizers = model.setup_optimizers()
    whole: Callable[..., Any] = torch.compile(model, dynamic=False)
    seconds = []
    for number in range(12):
        batch = batch_of(config, number)
        torch.cuda.synchronize()
        began = time.monotonic()
        with torch.amp.autocast("cuda", torch.bfloat16):
            loss = whole(batch.inputs, batch.targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    return seconds[0], config.tokens / sorted(seconds[4:])[4]


PARTS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "rows": rows, "equal": equal, "steps": steps, "memory": memory, "phases": phases, "link": link,
}  # fmt: skip


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all of these), or reference")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reference", type=Path, help="a checkout of the reference implementation")
    parser.add_argument("--tasks", nargs="+", default=list(COMPARED), choices=COMPARED, help="of the part reference")
    args = parser.parse_args()
    if unknown := set(args.parts) - {*PARTS, "reference"}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if "reference" in args.parts and not (args.reference and (args.reference / "nanochat" / "gpt.py").is_file()):
        parser.error("the part reference needs --reference CHECKOUT, a folder with nanochat/gpt.py")
    if not torch.cuda.is_available():
        parser.exit(69, "torch sees no GPU here\n")
    args.out.mkdir(parents=True, exist_ok=True)
    failed = False
    with (args.out / "lm_gpu.jsonl").open("a") as file:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
        file.write(json.dumps(about) + "\n")
        for name in args.parts or PARTS:
            try:
                for row in reference(args.reference, args.tasks) if name == "reference" else PARTS[name](args.out):
                    print(json.dumps(row), flush=True)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    failed |= row.get("ok") is False
            except Exception:  # noqa: BLE001 - the next parts are worth their minutes
                failed = True
                traceback.print_exc()
    sys.exit(failed)


if __name__ == "__main__":
    main()
