"""The configuration of a training run, as validated values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from relay.core.settings.pinned import Strict, without_defaults

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]


GENERATED, HUB = "generated", "hub"
"""Sources of data that every machine can make or fetch."""
LIST = "identifiers.json"
"""File in a dataset folder and next to weights: the names of the puzzle table's rows."""
FRESH = ("batch_size", "ema", "task", "arch", "data")
"""Settings, or groups of them, whose change needs a fresh carry (trm/refit.py)."""


class Arch(Strict):
    """The network, in the reference's spelling (T = H_cycles and n = L_cycles in the paper)."""

    hidden_size: Positive = 512
    """Width of a position."""
    num_heads: Positive = 8
    """Heads of attention."""
    expansion: Annotated[float, Field(gt=0)] = 4.0
    """Inner width of a SwiGLU: two thirds of this times its width, up to a multiple of 256."""
    L_layers: Positive = 2
    """Layers of the one network."""
    H_cycles: Positive = 3
    """T: times that the answer is improved in a step; only the last has a gradient."""
    L_cycles: Positive = 6
    """n: updates of the latent state for each of the answer."""
    puzzle_emb_ndim: Annotated[int, Field(ge=0)] = 512
    """Numbers of a puzzle's embedding; 0 is none."""
    puzzle_emb_len: Annotated[int, Field(ge=0)] = 16
    """Positions that hold it; 0 means ceil(puzzle_emb_ndim / hidden_size)."""
    pos_encodings: Literal["rope", "learned", "none"] = "rope"
    """Encoding of a position: rope, learned or none."""
    mlp_t: bool = False
    """Mix over the sequence with a SwiGLU instead of attention."""
    forward_dtype: Literal["bfloat16", "float32", "float64"] = "bfloat16"
    """Type of activations: bfloat16, float32, or float64 to measure rounding. Weights are float32 always."""
    halt_max_steps: Positive = 16
    """Steps of recursion that a puzzle gets at most in training, and always in evaluation."""
    halt_exploration_prob: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of puzzles that continue to a step drawn at random although the model would halt."""
    rms_norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added below the root of the RMS norm."""
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0
    """Base of the rotary frequencies."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Arch:
        if not self.mlp_t and self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}")
        return self

    @property
    def prefix_len(self) -> int:
        """P: positions in front of the tokens that hold the puzzle embedding."""
        return self.puzzle_emb_len or -(-self.puzzle_emb_ndim // self.hidden_size)


LOCAL = ("source", "subsets", "test_set", "num_aug", "max_tasks")
"""Settings of `Data` that lead to data on this machine; a run pins the content instead."""
KEPT = ("identifiers", "canvas", "held_out")
"""Settings of `Data` that belong to the run wherever its data is."""


class Data(Strict):
    """Source of the puzzles: 'generated', 'hub', or the path of a CSV file in the Sudoku-Extreme shape or of a folder
    in the reference's layout. ARC tasks come from `source` instead."""

    added = (*LOCAL, *KEPT)

    train: str = "generated"
    """Training puzzles: generated, hub (Sudoku-Extreme), a CSV file, or a folder in the reference's layout."""
    test: str = "generated"
    """Test puzzles, named in the same way."""
    train_rows: Positive = 1000
    """Number of training puzzles: generated, or drawn by the seed from a longer file (a folder: groups)."""
    augment: bool = True
    """Draw a fresh symmetry each time a puzzle is seen: digits, bands, rows, stacks, columns and transposition of a
    Sudoku, turns and reflections of a maze."""
    source: str = ""
    """ARC: task files. A folder of Kaggle's challenges and solutions, their common prefix, one of them, or a folder
    with a JSON file for each task."""
    subsets: tuple[str, ...] = ()
    """ARC: subsets to read, in this order; none: all of the source."""
    test_set: str = ""
    """ARC: the subset whose test pairs are never trained on."""
    num_aug: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """ARC: variants of each task, beyond the original."""
    max_tasks: Positive | None = None
    """ARC: only the first tasks of each subset."""
    canvas: Annotated[int, Field(ge=3, le=30)] = 30
    """ARC: cells in a line of the canvas that holds a grid."""
    held_out: Annotated[int, Field(ge=0)] = 0
    """ARC: training tasks whose last pair is not trained on; these pairs choose the best checkpoint."""
    identifiers: str = ""
    """ARC: hash of the list of identifiers, which a run pins; another list is refused."""


class TrainConfig(Strict):
    """Everything that decides the state at step n. Defaults are the published Sudoku settings (reference/trm.md 13)."""

    task: str
    """Preset, which puzzles and which network: sudoku4, sudoku4_att, sudoku, sudoku_att, maze, arc_small, arc1 or
    arc2."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the initial weights, the data and its order, and random choices in a step."""
    batch_size: Positive = 768
    """Puzzles a step."""
    arch: Arch = Arch()
    data: Data = Data()
    lr: Rate = 1e-4
    """Learning rate after the warm-up."""
    lr_min_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Where the cosine ends, as a share of lr; 1 keeps the rate."""
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 2000
    """Steps over which the rate rises from 0."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of Adam-atan2: decay of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Of Adam-atan2: decay of the second moment."""
    weight_decay: Rate = 0.1
    """Decoupled, of the network's weights."""
    puzzle_emb_lr: Rate = 1e-4
    """Learning rate of the puzzle embeddings (sign-SGD)."""
    puzzle_emb_weight_decay: Rate = 0.1
    """Decoupled, of the puzzle embeddings."""
    ema: bool = True
    """Average the weights; averaged ones are evaluated and exported."""
    ema_rate: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Share of the old average that stays at each step."""
    total_steps: Positive | None = None
    """Length of the cosine; matters (and is pinned) only if lr_min_ratio < 1."""
    threads: Positive = 2
    """CPU threads of every session: another number changes the order of sums."""

    def plain(self) -> dict[str, Any]:
        """Plain JSON values, for hashing and storing; added settings only where they differ from their default."""
        return without_defaults(self, self.model_dump(mode="json"))

    def pinned(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """What a run pins: every setting, but its data by `content`, and the length only if the schedule needs it."""
        plain = self.plain()
        plain["data"] = {key: value for key, value in (plain["data"] | dict(content)).items() if key not in LOCAL}
        if self.lr_min_ratio == 1:
            del plain["total_steps"]
        return plain


def needs_fresh_carry(keys: Iterable[str]) -> bool:
    """Whether a change of these dotted settings asks for a fresh carry."""
    return any(key.partition(".")[0] in FRESH for key in keys)
