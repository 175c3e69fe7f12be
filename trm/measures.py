"""What a TRM measures in training and on its splits, by the names under which it is stored. Needs no torch."""

from __future__ import annotations

from relay.core.workload import Headline, Measures, Splits

SPLITS = Splits(choosing="valid", reported="test")
MEASURES = Measures(
    SPLITS,
    Headline("exact_accuracy", "exactly right", form=".1%"),
    first=("lm_loss", "exact_accuracy", "accuracy", "lr", "q_halt_loss", "q_halt_accuracy"),
    short={"lm_loss": "loss", "exact_accuracy": "exact", "accuracy": "acc"},
    titles={
        "lm_loss": "loss",
        "q_halt_loss": "halting loss",
        "exact_accuracy": "training, exactly right",
        "accuracy": "training, cells right",
        "q_halt_accuracy": "halting right",
        f"{SPLITS.choosing}/cell_accuracy": "validation, cells right",
        "lr": "learning rate",
    },
    unseen=("steps",),
)
