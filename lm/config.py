"""The settings of a training run, as validated values. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from relay.core.settings.pinned import Strict, without_defaults

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]

GENERATED, HUB, BYTES = "generated", "hub", "bytes"
TOKENIZER_FILE = "tokenizer.json"
"""In checkpoints, next to weights, and for `data.tokenizer`."""
MOST_STEPS = 8
"""Refinement steps in training. A commit has room for as many losses and bits per byte (frozen.py: MAX_METRICS)."""
BYTE_VALUES = 256
MOST_TOKENS = 1 << 16


class Arch(Strict):
    """The network: a stack of decoder blocks."""

    depth: Positive = 2
    """Blocks of the one stack."""
    width: Positive | None = None
    """Numbers of a position; unset: 64 for each block."""
    heads: Positive | None = None
    """Heads of attention; unset: one for each 64 numbers of the width, or 128 from a width of 768 on."""
    context: Annotated[int, Field(ge=8, le=1 << 20)] = 64
    """Tokens of a row."""
    forward_dtype: Literal["bfloat16", "float32"] = "float32"
    """Type of activations; float32 on devices without bfloat16. Weights are float32 always."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Arch:
        if self.d % self.h or self.head_dim % 2:
            raise ValueError(f"width {self.d} in {self.h} heads does not give heads of an even width")
        if self.d % 8:
            raise ValueError(f"width {self.d} is not a multiple of 8")
        return self

    @property
    def d(self) -> int:
        """The width."""
        return self.width or 64 * self.depth

    @property
    def h(self) -> int:
        """Heads."""
        return self.heads or max(1, self.d // (128 if self.d >= 768 else 64))

    @property
    def head_dim(self) -> int:
        """Numbers of a head."""
        return self.d // self.h


LAST = "last"


def _weight_base(value: object) -> object:
    """A positive number, or `last`."""
    try:
        fits = value == LAST or 0 < float(str(value)) <= 1e6
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"must be a positive number or {LAST}")
    return value


class Refine(Strict):
    """How often the stack is applied, and what each refinement step counts in the objective."""

    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 1
    """Refinement steps: each gives an answer."""
    loops: Annotated[int, Field(ge=0, le=64)] = 0
    """Updates of the latent state in each refinement step, before the answer's."""
    weight_base: Annotated[float | Literal["last"], BeforeValidator(_weight_base)] = "last"
    """Step i counts as the i-th power of this, as a share of the sum; last: only the last step counts."""
    reward: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Weight of the share by which each step lowers the loss of the step before."""
    gradient: Literal["step", "through"] = "step"
    """Gradients stay within a refinement step, or go through all of them."""

    @property
    def passes(self) -> int:
        """Passes of a token through the stack."""
        return self.steps * (self.loops + 1)


_FLAGS = ("refine.weight_base", "refine.reward", "refine.gradient")
PRESETS: Mapping[str, Mapping[str, str]] = {
    "plain": {"refine.steps": "1", "refine.loops": "0"} | dict(zip(_FLAGS, ("last", "0", "step"), strict=True)),
    "final": dict(zip(_FLAGS, ("last", "0", "through"), strict=True)),
    "uniform": dict(zip(_FLAGS, ("1", "0", "step"), strict=True)),
    "moderate": dict(zip(_FLAGS, ("3", "0.5", "through"), strict=True)),
    "aggressive": dict(zip(_FLAGS, ("5", "1", "through"), strict=True)),
    "extreme": dict(zip(_FLAGS, ("10", "2", "through"), strict=True)),
}
SHORTHANDS = {"refine.preset": PRESETS}
"""Settings that stand for others: a run pins the others."""


class Data(Strict):
    """Source of the text, and its tokens."""

    train: str = GENERATED
    """Training text: generated, hub (FineWeb-Edu), or a file: .txt, .jsonl, .jsonl.xz or .parquet."""
    valid: str = ""
    """Validation text, a file; unset: documents of the training text, which are then not trained on."""
    test: str = ""
    """Test text, named in the same way."""
    text: Literal["stories", "hops"] = "stories"
    """Generated text: short stories, or p-hop induction, of which only the answers are learned."""
    size_mb: Annotated[int, Field(ge=1, le=1000)] = 4
    """Generated text: megabytes."""
    shards: Annotated[int, Field(ge=1, le=1800)] = 1
    """hub: files of some 250 million characters."""
    tokenizer: str = BYTES
    """bytes; generated: byte-level BPE, trained on the training text; or the path of a tokenizer.json."""
    vocab_size: Annotated[int, Field(ge=BYTE_VALUES, le=MOST_TOKENS)] = BYTE_VALUES
    """Tokens: 256 for bytes, at least 257 for BPE."""

    @model_validator(mode="after")
    def _vocabulary(self) -> Data:
        if self.tokenizer == BYTES and self.vocab_size != BYTE_VALUES:
            raise ValueError(f"vocab_size {self.vocab_size}: bytes are {BYTE_VALUES} tokens; set tokenizer=generated")
        if self.tokenizer != BYTES and self.vocab_size <= BYTE_VALUES:
            raise ValueError(f"vocab_size {self.vocab_size}: BPE needs at least {BYTE_VALUES + 1} tokens")
        if self.text == "hops" and (self.train != GENERATED or self.tokenizer != BYTES):
            raise ValueError("text=hops is generated and made of bytes; set train=generated tokenizer=bytes")
        return self


class LmConfig(Strict):
    """Everything that decides the state at step n."""

    task: str
    """Preset: lm_tiny, lm_small, lm, lm_fast or lm_extreme."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the initial weights and of the order of the rows."""
    batch_size: Positive = 16
    """Rows a step."""
    arch: Arch = Arch()
    refine: Refine = Refine()
    data: Data = Data()
    lr_matrix: Rate = 0.01
    """Rate of the blocks' matrices (Muon)."""
    lr_embedding: Rate = 0.2
    """Rate of the embedding (AdamW), times the root of 768 / width."""
    lr_head: Rate = 0.004
    """Rate of the head (AdamW), times the same."""
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which all rates rise from 0."""
    decay_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of total_steps at its end over which all rates fall to 0; 0 keeps them."""
    grad_clip: Annotated[float, Field(ge=0)] = 0.0
    """Largest norm of all gradients together; 0 clips nothing."""
    total_steps: Positive | None = None
    """Length of the schedule; matters (and is pinned) only if decay_share > 0."""
    threads: Positive = 2
    """CPU threads of every session: another number changes the order of sums."""

    def plain(self) -> dict[str, Any]:
        """Plain JSON values, for hashing and storing."""
        return without_defaults(self, self.model_dump(mode="json"))

    def pinned(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """What a run pins: every setting, but text and tokenizer by `content`, the length only for a falling rate."""
        plain = self.plain()
        plain["data"] |= content
        if not self.decay_share:
            del plain["total_steps"]
        return plain

    @property
    def tokens(self) -> int:
        """Tokens a step."""
        return self.batch_size * self.arch.context
