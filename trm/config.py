"""What a training run is, as validated values; knows nothing of files, devices or the relay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]


FRESH = ("batch_size", "ema", "task", "arch", "data")
"""Settings, or groups of them, under which a carry cannot go on (trm/refit.py)."""


class Strict(BaseModel):
    """Immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Arch(Strict):
    """The network, in the reference's spelling (T = H_cycles and n = L_cycles in the paper)."""

    hidden_size: Positive = 512
    num_heads: Positive = 8
    expansion: Annotated[float, Field(gt=0)] = 4.0
    L_layers: Positive = 2
    H_cycles: Positive = 3
    L_cycles: Positive = 6
    puzzle_emb_ndim: Annotated[int, Field(ge=0)] = 512
    puzzle_emb_len: Annotated[int, Field(ge=0)] = 16
    """0 means ceil(puzzle_emb_ndim / hidden_size)."""
    pos_encodings: Literal["rope", "learned", "none"] = "rope"
    mlp_t: bool = False
    """Mix over the sequence with a SwiGLU instead of attention."""
    forward_dtype: Literal["bfloat16", "float32", "float64"] = "bfloat16"
    """Type of activations; weights are float32 always. float64 serves to measure rounding (trm/parity.py)."""
    halt_max_steps: Positive = 16
    halt_exploration_prob: Annotated[float, Field(ge=0, le=1)] = 0.1
    rms_norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0

    @model_validator(mode="after")
    def _heads_divide(self) -> Arch:
        if not self.mlp_t and self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}")
        return self

    @property
    def prefix_len(self) -> int:
        """P: positions in front of the tokens that hold the puzzle embedding."""
        return self.puzzle_emb_len or -(-self.puzzle_emb_ndim // self.hidden_size)


class Data(Strict):
    """Where puzzles come from: 'generated', 'hub', or the path of a CSV file in the Sudoku-Extreme shape or of a folder
    in the reference's layout."""

    train: str = "generated"
    test: str = "generated"
    train_rows: Positive = 1000
    """How many to train on: generated, or drawn by the seed from a file (a folder: groups) that holds more."""
    augment: bool = True
    """Draw a fresh symmetry each time a puzzle is seen: digits, bands, rows, stacks, columns and transposition of a
    Sudoku, turns and reflections of a maze."""


class TrainConfig(Strict):
    """Everything that decides the state at step n. Defaults are the published Sudoku settings (reference/trm.md 13)."""

    task: str
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    batch_size: Positive = 768
    arch: Arch = Arch()
    data: Data = Data()
    lr: Rate = 1e-4
    lr_min_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 2000
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: Rate = 0.1
    puzzle_emb_lr: Rate = 1e-4
    puzzle_emb_weight_decay: Rate = 0.1
    ema: bool = True
    ema_rate: Annotated[float, Field(ge=0, lt=1)] = 0.999
    total_steps: Positive | None = None
    """Length of the cosine; matters (and is pinned) only if lr_min_ratio < 1."""
    threads: Positive = 2
    """CPU threads of every session (I7): another number changes the order of sums."""

    def plain(self) -> dict[str, Any]:
        """Plain JSON values, for hashing and storing."""
        return self.model_dump(mode="json")


def needs_fresh_carry(keys: Iterable[str]) -> bool:
    """Whether a change of these dotted settings asks for a fresh carry."""
    return any(key.partition(".")[0] in FRESH for key in keys)
