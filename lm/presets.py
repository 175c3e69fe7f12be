"""The tasks by name: presets, lengths, and metrics. Needs no torch."""

from __future__ import annotations

import difflib

from lm.config import GENERATED, HUB, MOST_STEPS, Arch, Data, LmConfig, Refine
from relay.core.workload import Headline, Measures, Splits
from relay.torch.faults import TaskError

_LOOPED = Refine(steps=4, loops=0, weight_base="last", gradient="through")


def _phase(task: str, base: float, reward: float, rates: tuple[float, float], shards: int) -> LmConfig:
    """A phase of the guide: 12 passes, 524,288 tokens a step, its objective and its rates."""
    return LmConfig(
        task=task,
        batch_size=256,
        arch=Arch(depth=12, context=2048, forward_dtype="bfloat16"),
        refine=Refine(steps=4, loops=2, weight_base=base, reward=reward, gradient="through"),
        data=Data(train=HUB, shards=shards, tokenizer=GENERATED, vocab_size=32_768),
        lr_matrix=rates[0],
        lr_embedding=rates[1],
        decay_share=0.2,
    )


PRESETS: dict[str, LmConfig] = {
    "lm_tiny": LmConfig(task="lm_tiny", arch=Arch(depth=2, width=64, heads=2), refine=_LOOPED),
    "lm_small": LmConfig(
        task="lm_small",
        batch_size=64,
        arch=Arch(depth=4, context=512, forward_dtype="bfloat16"),
        refine=_LOOPED,
        decay_share=0.2,
    ),
    "lm": LmConfig(
        task="lm",
        batch_size=128,
        arch=Arch(depth=6, context=1024, forward_dtype="bfloat16"),
        refine=_LOOPED,
        data=Data(train=HUB, shards=4, tokenizer=GENERATED, vocab_size=4096),
        decay_share=0.2,
    ),
    "lm_fast": _phase("lm_fast", 5.0, 1.0, (0.001, 0.01), 12),
    "lm_extreme": _phase("lm_extreme", 10.0, 2.0, (0.0005, 0.005), 56),
}
"""`lm` takes 0.26, `lm_fast` 0.52 and `lm_extreme` 2.6 billion tokens; a shard of the hub has some 65 million of a
small vocabulary and 55 million of a large one. The generated text has too few words for so many tokens.
"""
_TARGETS = {"lm_tiny": 400, "lm_small": 3000, "lm": 2000, "lm_fast": 1000, "lm_extreme": 5000}
SMALL = ("lm_tiny",)
"""Tasks that a CPU learns in minutes."""
LARGE = ("lm_fast", "lm_extreme")
"""Tasks whose checkpoints are so large (1.3 GB) that commits go by minutes, not by steps; never on generated text."""


def preset(name: str) -> LmConfig:
    """The preset's configuration. Raises TaskError, with the nearest name, for an unknown one."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0)[0]
        raise TaskError(f"Unknown task {name!r}. Did you mean task={near}? Tasks are {', '.join(PRESETS)}.")
    return PRESETS[name]


def target_steps(name: str) -> int:
    """Default length of the preset's training, steps."""
    preset(name)
    return _TARGETS[name]


def at_step(name: str, step: int) -> str:
    """The name of a metric after one refinement step, from 1."""
    return f"{name}_{step}"


SPLITS = Splits(choosing="valid", reported="test")
LOSS = "token_loss"
MEASURES = Measures(
    SPLITS,
    Headline("bpb", "bits per byte", form=".4f", better="lower"),
    first=(LOSS, at_step(LOSS, 1), "objective", "grad_norm", "lr"),
    short={LOSS: "loss", "objective": "objective"},
    titles={
        LOSS: "loss of a token, last step",
        "objective": "objective",
        "grad_norm": "norm of the gradient",
        "lr": "rate of the matrices",
        f"{SPLITS.choosing}/unigram_bpb": "bits per byte of letter counts",
    }
    | {at_step(LOSS, step): f"loss of a token, step {step}" for step in range(1, MOST_STEPS)},
    unseen=("epochs", f"{SPLITS.choosing}/uniform_bpb"),
)
