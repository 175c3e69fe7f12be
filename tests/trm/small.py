"""The settings of small trainings on generated 4x4 Sudoku and on generated ARC tasks."""

from __future__ import annotations

from trm.config import TrainConfig
from trm.presets import preset


def small(**changes) -> TrainConfig:
    config = preset("sudoku4")
    arch = config.arch.model_copy(update={"hidden_size": 16, "expansion": 1.0, "L_layers": 1, "puzzle_emb_ndim": 16})
    data = config.data.model_copy(update={"train_rows": 100})
    settings = {"batch_size": 8, "threads": 1, "arch": arch, "data": data} | changes
    return config.model_copy(update=settings)


def small_arc(**changes) -> TrainConfig:
    """45 tasks and a variant of each."""
    config = preset("arc_small")
    arch = config.arch.model_copy(update={"hidden_size": 16, "num_heads": 2, "puzzle_emb_ndim": 16})
    return config.model_copy(update={"batch_size": 8, "threads": 1, "arch": arch} | changes)
