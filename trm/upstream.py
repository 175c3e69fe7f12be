"""Translates the reference's command line: its keys, its defaults, epochs to steps. Needs no torch and no data.

reference/trm.md 8 and 13. A command with `arch=trm` or `data_paths` is one of the reference's, with its defaults.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relay.torch.faults import TaskError
from storage.wording import counted
from trm.config import Arch, Data, TrainConfig

RENAMED = {"run_name": "run", "project_name": "project", "global_batch_size": "batch_size"}
MARKS = ("arch", "data_paths")
"""Keys that mark a command of the reference."""
FIXED = {
    "evaluators": ("[]", "only ARC's data has an evaluator, arc@ARC"),
    "freeze_weights": ("False", "weights and puzzle embeddings are always trained together"),
    "eval_save_outputs": ("[]", "use `evaluate` and `export`"),
    "min_eval_interval": ("0", "set evaluation.every_commits"),
    "arch.name": ("recursive_reasoning.trm@TinyRecursiveReasoningModel_ACTV1", "only this model is built"),
    "arch.loss.name": ("losses@ACTLossHead", "only this loss is built"),
    "arch.loss.loss_type": ("stablemax_cross_entropy", "only this loss is built"),
    "arch.no_ACT_continue": ("True", "the reference itself fails without it"),
}
"""Keys that must keep their value: (value, why)."""
ARC_EVALUATORS = re.compile(r"\[\{?(name: ?)?arc@ARC\}?\]")
"""The other value that `evaluators` may have, with ARC's data: our `evaluate` does what it asks."""
IGNORED = ("arch.H_layers",)
"""The reference reads it and ignores it."""
LENGTH = ("epochs", "eval_interval", "checkpoint_every_eval")
OWN = (*MARKS, *RENAMED, *FIXED, *IGNORED, *LENGTH, "data_paths_test")
"""Every key of the reference that we spell differently."""
ARC_VOCABULARY = 12
ARCHITECTURES = ("trm", "trm_singlez", "trm_hier6", "hrm", "transformers_baseline")


@dataclass(frozen=True)
class Metadata:
    """The training puzzles, by dataset.json."""

    vocab_size: int
    seq_len: int
    groups: int
    mean_examples: float


@dataclass(frozen=True)
class ReferenceCommand:
    """A command of the reference."""

    overrides: tuple[str, ...]
    """In our spelling."""
    defaults: TrainConfig
    """In place of a preset."""
    epochs: int
    eval_interval: int
    keep: bool
    """Whether the checkpoint of each evaluation is kept."""
    about: Metadata

    def base(self, task: str) -> TrainConfig:
        """The reference's defaults."""
        return self.defaults.model_copy(update={"task": task})

    def implied(self, config: TrainConfig) -> dict[str, str]:
        """Settings that follow from epochs and the batch: the target, and commits at the reference's evaluations.

        total = int(epochs * groups * mean examples / batch); each of epochs / eval_interval rounds drops the last batch
        that is not full. Raises TaskError if no step is left.
        """
        about = self.about
        total = int(self.epochs * about.groups * about.mean_examples / config.batch_size)
        each = int(self.eval_interval * about.groups * about.mean_examples) // config.batch_size
        steps = min(total, self.epochs // self.eval_interval * each)
        if not steps:
            raise TaskError(
                f"{counted(self.eval_interval, 'epoch')} (eval_interval) of {counted(about.groups, 'group')} fill no "
                f"batch of {config.batch_size}. Raise epochs and eval_interval, or lower global_batch_size."
            )
        found = {"target_steps": steps, "checkpoint.every_steps": each, "evaluation.every_commits": 1}
        kept = {"checkpoint.keep_every": each} if self.keep else {}
        length = {"total_steps": total} if config.lr_min_ratio < 1 else {}
        return {key: str(value) for key, value in {**found, **kept, **length}.items()}


def translated(overrides: Sequence[str], settings: Sequence[str], folder: Path) -> ReferenceCommand | list[str]:
    """A command of the reference, or the same overrides with single keys renamed. Raises TaskError, DataError.

    settings: every key of our own; folder: where relative paths begin.
    """
    pairs = [text.lstrip("+").partition("=") for text in overrides if not text.startswith("~")]
    given = {key: value for key, _, value in pairs}
    if not any(mark in given for mark in MARKS):
        return [renamed(text) for text in overrides]
    spoken = translate(given, read_metadata(folder / folder_of(given)), settings)
    dropped = [text for text in overrides if text.startswith("~") and text[1:].partition("=")[0] not in OWN]
    return replace(spoken, overrides=(*dropped, *spoken.overrides))


def renamed(text: str) -> str:
    """An override in our spelling, if only the reference spells its key so; any other as it is.

    Raises TaskError for a key that needs the rest of such a command.
    """
    key, equals, value = text.lstrip("+").partition("=")
    if key in LENGTH:
        raise TaskError(f"{key} counts epochs of a data set. Name it too, data_paths=[FOLDER], or set target_steps.")
    return RENAMED[key] + equals + value if key in RENAMED else text


def translate(given: Mapping[str, str], about: Metadata, settings: Sequence[str]) -> ReferenceCommand:
    """A command of the reference. given: texts by key, signs removed; settings: every key of our own.

    Raises TaskError naming the key, the nearest one for a typo, and the setting to use instead.
    """
    known = [*OWN, *settings]
    arc = about.vocab_size == ARC_VOCABULARY
    for key, value in given.items():
        if not (key == "evaluators" and arc and ARC_EVALUATORS.fullmatch(value)):
            _check(key, value, known)
    epochs, interval = _whole(given, "epochs", 100_000), _whole(given, "eval_interval", 10_000)
    if given.get("eval_interval") in ("null", "None"):
        interval = epochs
    _check_division(epochs, interval)
    folder, test = folder_of(given), _one(given, "data_paths_test") or folder_of(given)
    kept = {k: v for k, v in given.items() if k not in OWN}
    ours = {RENAMED[k]: v for k, v in given.items() if k in RENAMED}
    data = {"data.train": folder, "data.test": test, "data.augment": "false"}
    if arc:
        data |= {"data.canvas": str(math.isqrt(about.seq_len))}
        task = {"task": "arc2" if "arc2" in Path(folder).name.lower() else "arc1"}
    else:
        data |= {"data.train_rows": str(about.groups)}
        task = {"task": _task(about, truth(given.get("arch.mlp_t", "False"), "arch.mlp_t"))}
    width = {"arch.puzzle_emb_ndim": given["arch.hidden_size"]} if "arch.hidden_size" in given else {}
    return ReferenceCommand(
        overrides=tuple(f"{key}={value}" for key, value in {**task, **data, **width, **ours, **kept}.items()),
        defaults=TrainConfig(task="", arch=Arch(), data=Data(augment=False), ema=False, puzzle_emb_lr=1e-2),
        epochs=epochs,
        eval_interval=interval,
        keep=truth(given.get("checkpoint_every_eval", "True"), "checkpoint_every_eval"),
        about=about,
    )


def folder_of(given: Mapping[str, str]) -> str:
    """The one folder that data_paths names. Raises TaskError."""
    found = _one(given, "data_paths")
    if not found:
        raise TaskError('data_paths is missing. Name a dataset folder: data_paths="[data/sudoku-extreme-1k-aug-1000]".')
    return found


def _one(given: Mapping[str, str], key: str) -> str:
    names = [name.strip().strip("'\"") for name in given.get(key, "").strip().strip("[]").split(",")]
    names = [name for name in names if name]
    if len(names) > 1:
        raise TaskError(f"{key} names {len(names)} folders. Name only one.")
    return names[0] if names else ""


def _check(key: str, value: str, known: Sequence[str]) -> None:
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
        raise TaskError(f"Unknown setting {key}. Did you mean {near}?")
    if key == "arch" and value != "trm":
        what = "is not built here" if value in ARCHITECTURES else "is unknown"
        raise TaskError(f"The architecture {value} {what}. Did you mean arch=trm?")
    if key in FIXED and value.lower() != FIXED[key][0].lower():
        raise TaskError(f"{key}={value} is not possible: {FIXED[key][1]}. Leave it at {FIXED[key][0]}.")


def _whole(given: Mapping[str, str], key: str, default: int) -> int:
    text = given.get(key, str(default))
    if text in ("null", "None"):
        return default
    if not text.isdecimal() or not int(text):
        raise TaskError(f"{key} must be a whole number above 0, not {text!r}.")
    return int(text)


def truth(text: str, key: str) -> bool:
    """True or False as the reference reads them. Raises TaskError."""
    if text.lower() not in ("true", "false"):
        raise TaskError(f"{key} must be True or False, not {text!r}.")
    return text.lower() == "true"


def _check_division(epochs: int, interval: int) -> None:
    """Checks the division of epochs; the reference only asserts it. The error names the nearest divisors."""
    if epochs % interval == 0:
        return
    divisors = [n for n in range(1, epochs + 1) if epochs % n == 0]
    near = [
        max((n for n in divisors if n < interval), default=1),
        min((n for n in divisors if n > interval), default=0),
    ]
    nearest = " and ".join(str(n) for n in near if n)
    raise TaskError(f"eval_interval={interval} does not divide epochs={epochs}. The nearest that do: {nearest}.")


def _task(about: Metadata, mlp: bool) -> str:
    sudoku = {(81, 11): "sudoku", (16, 6): "sudoku4"}.get((about.seq_len, about.vocab_size))
    if sudoku:
        return sudoku if mlp else f"{sudoku}_att"
    if about.vocab_size == 6:
        return "maze"
    raise TaskError(
        f"The folder's puzzles have {counted(about.seq_len, 'cell')} and {counted(about.vocab_size, 'token')}. Sudoku "
        f"(81 and 11), mazes (6 tokens) and ARC ({ARC_VOCABULARY} tokens) are supported."
    )


def read_metadata(folder: Path) -> Metadata:
    """FOLDER/train/dataset.json, validated. Raises DataError."""
    from relay.torch.files import whole_path
    from trm.data.folders import read_about  # imports torch, which only commands with a folder need

    about = read_about(whole_path(str(folder)), "train")
    return Metadata(about.vocab_size, about.seq_len, about.total_groups, about.mean_puzzle_examples)
