"""Training a TRM as a workload that a relay can start, stop, save, load and compare (relay.core.workload)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from relay.core.workload import ProcessLost, Reading, Share
from relay.torch.caches import KEYED, KernelCache, key_of, triton_home
from relay.torch.device import old_card, slow_bf16
from relay.torch.faults import TaskError
from relay.torch.files import Fetching, unseen
from relay.torch.launch import launched
from relay.torch.memory import Fit, free_bytes
from relay.torch.peers import meet
from relay.torch.workload import SteppedWorkload, Strategy, in_parts
from trm.checkpoint import Document, TrmSnapshot, load_document, load_state
from trm.choosing import Choice, choose, usable
from trm.config import LIST, TrainConfig
from trm.cost import EVALUATED, fit, parameter_count
from trm.data.arc.provenance import provenance
from trm.data.arc.rows import ArcData
from trm.data.arc.shown import ShownPairs, shown_pairs
from trm.data.arc.source import ArcDatasets
from trm.data.arc.submission import document, replace, text_of
from trm.data.arc.tasks import raw_task
from trm.data.arc.votes import Votes
from trm.evaluate import EvalProgress, evaluate
from trm.examples import Examples, examples
from trm.interop import UNKNOWN_LIST, begin_from, check_identity, publish_step
from trm.journal import Record
from trm.losses import Meter
from trm.model import Sizes
from trm.optim import lr_scale
from trm.presets import BOX, MEASURES, SPLITS
from trm.sharedtable import SharedTable, sharing
from trm.tasks import Datasets, game, load_data
from trm.together import LeadingStep
from trm.train import Step, TrainState


class TrmWorkload(SteppedWorkload[TrainState]):
    """One run's training: `config` decides every bit of the state at step n, on one path."""

    measures = MEASURES

    def __init__(
        self,
        config: TrainConfig,
        root: Path,
        device: torch.device | str | None = None,
        step: Step | None = None,
        shared_from: int | None = None,
        fetching: Fetching | None = unseen,
        steps: int = 0,
    ) -> None:
        """Reads the data (kept below `root` if generated or downloaded). Raises ValueError for an invalid config or
        invalid data; `check_memory` tells whether the device has enough memory.

        device: None takes the GPU if there is one; "xla" computes the steps on XLA's device, and ignores `step`. step:
        how to compute a training step; None is the fastest.
        shared_from: size from which checkpoints share a puzzle table, bytes; None: see `sharedtable.sharing`.
        fetching: shows downloads; None: nothing is downloaded.
        steps: how many may be trained; many of them repay compiling.
        """
        on_xla, found = str(device) == "xla", device or ("cuda" if torch.cuda.is_available() else "cpu")
        super().__init__(config, torch.device("cpu" if on_xla else found), on_xla)
        self._config = config
        self.data: Datasets | ArcDatasets = load_data(config, root, fetching=fetching)
        train = self.data.train.to(self.device)
        self._sizes = Sizes(train.seq_len, train.vocab_size, train.num_identifiers)
        self.choice: Choice | None = None
        """Why this step was chosen; None for one that was given, and on XLA."""
        if on_xla:
            chosen = xla_strategy()
        elif step:
            chosen = Strategy(step)
        else:
            self.choice, chosen = strategy_for(self.device, config, self._sizes, steps)
        table = 4 * self._sizes.num_identifiers * config.arch.puzzle_emb_ndim
        self._shares, remarks = (False, ()) if on_xla else sharing(table, self.device, shared_from)
        self._use(chosen, tuple(remarks))
        self._table: SharedTable | None = None
        self.votes: Votes | None = None
        """Answers of the last evaluation on ARC's test pairs."""
        self.reading = Reading()
        """How an evaluation reads the state."""
        self.published: Path | None = None
        """Folder for the reference's files of each evaluation."""
        self.foreign_table = ""
        """Why nothing can be scored with the loaded weights; '' if it can."""
        self._meter = Meter(self.device)

    def start(self) -> None:
        """Fresh state at step 0."""
        self._prepare()
        self._begin(TrainState(self._config, self._sizes, self.device))

    def _begin(self, state: TrainState, base: int | None = None, journal: Record | None = None) -> None:
        """Train from here on. base, journal: the source of a shared table."""
        self._table = SharedTable(state, base, journal) if self._shares else None
        self._state = state
        self._loaded, self.foreign_table = (-1, 0), ""
        self._reset_meters()

    def start_from(self, path: Path) -> list[str]:
        """Fresh state at step 0 with the weights of a file; returns lines to print. Raises ValueError; TaskError if the
        file's puzzle table belongs to another list of identifiers, or its network to another architecture.
        """
        self.start()
        if not isinstance(self.data, ArcDatasets):
            return begin_from(self.state, path)
        own = f"sha256:{self.data.made.names.hash}"
        known = check_identity(path, own, self._config.arch)
        notes = begin_from(self.state, path, by_rows=known)
        if not known:
            self.foreign_table = UNKNOWN_LIST.format(name=path.name, own=own)
            notes.append("its rows are not known to be those of this data: each row starts as the mean of them all")
        return notes

    def load(self, folder: Path) -> None:
        """Restore the files of `TrmSnapshot.save`; the state stays if they do not fit. Raises ValueError."""
        self._prepare()
        document = load_document(folder)
        state = TrainState(self._config, self._sizes, self.device)
        journal = load_state(folder, document, state)
        state.check_carry()
        self._begin(state, None if document.table is None else document.table.base, journal)
        self._loaded = document.step, document.seed

    def lend(self, names: frozenset[str], last: bool) -> None:
        """Before a snapshot: files of earlier checkpoints that it may borrow. last: prefer a small snapshot."""
        if self._table is not None:
            self._table.lend(names, last)

    def snapshot(self) -> TrmSnapshot:
        """A copy of the state now."""
        document = self.about_run.model_copy(update={"step": self.step})
        plan = None if self._table is None else self._table.plan(self.step)
        taken = TrmSnapshot(self.state, document, self._loss_since_snapshot, plan)
        self._loss_since_snapshot.zero_()
        return taken

    @cached_property
    def about_run(self) -> Document:
        """Of a TRM."""
        return Document.model_validate(vars(super().about_run))

    def kernels(self) -> KernelCache | None:
        """The compiled kernels of this training on this machine, not yet in use; None if there are none."""
        if self.device.type != "cuda" or importlib.util.find_spec("triton") is None:
            return None
        if torch.cuda.get_device_capability(self.device) < (8, 0):
            return None
        known = self.fingerprint()
        own = {"path": self.path, "arch": self._config.arch.model_dump(mode="json"), "sizes": vars(self._sizes)}
        key = key_of({name: known[name] for name in KEYED} | own, Path(__file__).parent / "kernels")
        return KernelCache(key, triton_home(os.environ))

    @property
    def parameters(self) -> int:
        """Trained numbers of the network, with its puzzle table."""
        return parameter_count(self._config.arch, self._sizes)

    @property
    def dtype_name(self) -> str:
        """Of the configuration, or how a device computes it that has no bfloat16."""
        dtype: str = self._config.arch.forward_dtype
        return "bfloat16-as-float32" if dtype == "bfloat16" and slow_bf16(self.device) else dtype

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[EvalProgress], None] = lambda _: None
    ) -> dict[str, float]:
        """exact_accuracy, cell_accuracy and n of the EMA weights (or as `reading` says) on a split; {} without rows.

        For mazes also optimal_path: answers that are a shortest path, the label's or another one. For ARC's test pairs
        also pass@K and the official score; without labels only coverage.
        """
        dataset = self.data.split(split)
        if dataset is None:
            return {}
        self._prepare()
        chunk = EVALUATED[self.device.type]
        weights, judge = None if self.reading.raw else self.state.eval_weights(), dataset.judge
        votes = Votes(dataset) if isinstance(dataset, ArcData) and split == MEASURES.splits.reported else None
        seen = None if votes is None else votes.see
        found = evaluate(
            self.state.model.inner, dataset, rows, weights, chunk, progress, judge, self.reading.recursions, seen
        )
        self.votes = votes
        if votes is not None and isinstance(dataset, ArcData) and not dataset.split.labelled:
            return votes.extent()
        accuracy = {"exact_accuracy": found.exact_accuracy, "cell_accuracy": found.cell_accuracy, "n": float(found.n)}
        if votes is not None:
            return votes.metrics() | accuracy
        return accuracy if found.judged is None else accuracy | {"optimal_path": found.judged}

    def publish(self, progress: Callable[[Share], None]) -> None:
        """`step_N` with the evaluated weights, then, on ARC, its list and the submission of all test rows.

        Raises OSError.
        """
        if self.published is None:
            return
        state, path = self.state, self.published / f"step_{self.step}"
        weights = {**state.model.state_dict(), **state.eval_weights()}
        publish_step(path, weights, self.config(), self.step, state.ema is not None)
        if not isinstance(self.data, ArcDatasets):
            return
        replace(path.with_name(LIST), self.data.made.names.text.encode())
        if self.data.split(SPLITS.reported) is not None:
            self.evaluate(SPLITS.reported, None, progress)
            made, place = self.submission(), self.published / f"evaluator_ARC_step_{self.step}"
            assert made is not None, "an evaluation of ARC's test rows has votes"
            place.mkdir(exist_ok=True)
            replace(place / "submission.json", made)

    @property
    def depth(self) -> int:
        """Steps of recursion of an evaluation, as trained."""
        return self._config.arch.halt_max_steps

    def provenance(self) -> dict[str, Any] | None:
        """What the last evaluation's score stands on; None if it was not on ARC's test pairs."""
        if self.votes is None or not isinstance(self.data, ArcDatasets):
            return None
        return provenance(self.data, self.votes, self.reading.recursions or self.depth)

    def about_votes(self) -> dict[str, Any]:
        """The last evaluation's scores and votes as relay.arc/1."""
        votes, score = self.votes, None if self.votes is None else self.votes.score()
        assert votes is not None, "provenance is asked first"
        found: dict[str, Any] = {"provenance": self.provenance(), "votes": votes.rows, **votes.extent()}
        if score is not None:
            pass_at = {str(k): value for k, value in score.by_task.items()}
            found |= {"score_outputs": score.official, "score_tasks": score.by_task[2], "pass_at": pass_at}
        return document("evaluate", valid=True, complete=votes.rows == votes.data.size, **found)

    def submission(self) -> bytes | None:
        """submission.json of the last evaluation; None if it was not on ARC's test pairs."""
        if self.votes is None or not isinstance(self.data, ArcDatasets):
            return None
        tasks = {name: raw_task(task) for name, task in self.data.made.tested.items()}
        return text_of(self.votes.submission(tasks), tasks)

    def examples(self, split: str, rows: Sequence[int], raw: bool = False) -> Examples | ShownPairs:
        """Answers of the averaged (or raw) weights to those rows (from 1) of a split, step by step; for ARC the votes
        of a pair's variants.

        Raises ValueError for a row that does not exist.
        """
        dataset = self.data.split(split)
        if dataset is None:
            raise ValueError(f"there are no {split} rows")
        self._prepare()
        weights = None if raw else self.state.eval_weights()
        if isinstance(dataset, ArcData):
            pairs = shown_pairs(self.state.model.inner, dataset, rows, weights)
            return ShownPairs("raw" if raw or self.state.ema is None else "averaged", tuple(pairs))
        kind, box = game(self._config.task), BOX.get(self._config.task, 0)
        puzzles = examples(self.state.model.inner, dataset, rows, kind.characters, box, weights)
        return Examples("raw" if raw or self.state.ema is None else "averaged", tuple(puzzles))

    def config(self) -> dict[str, Any]:
        """The configuration to pin, as plain JSON values."""
        return self._config.pinned(self.data.pinned(self._config))

    def _train_once(self) -> None:
        config, state = self._config, self.state
        if self._table is not None:
            self._table.before_step(state.step + 1)
        batch = self.data.train.batch_at(config.seed, state.step, config.batch_size)
        try:
            metrics = self._step(state, batch)
        except ProcessLost as lost:  # an open journal has no place for the changes of this step
            raise ProcessLost(str(lost), whole=lost.whole and self._table is None) from lost
        self._meter.add(metrics)
        self._loss_since_snapshot += metrics[-2:].sum()  # both losses

    def _report_metrics(self) -> dict[str, float]:
        """Means since the last report; waits for the device."""
        means = self._meter.means(self._config.batch_size)
        self._meter = Meter(self.device)
        return means | {"lr": self._config.lr * lr_scale(self._config, self.step)}

    def _reset_meters(self) -> None:
        self._meter = Meter(self.device)
        self._loss_since_snapshot.zero_()


def strategy(choice: Choice, device: torch.device, config: TrainConfig, sizes: Sizes) -> Strategy:
    """The chosen step, in the fewest parts that fit the device's free memory, or in single rows if none do."""
    peers = meet() if launched() > 1 else None
    processes = peers.size if peers else 1

    def fitted() -> Fit:
        return fit(config, sizes, choice.method, free_bytes(device), slow_bf16(device), processes, device.type)

    old = old_card(device) if config.arch.forward_dtype == "bfloat16" else None
    return in_parts(choice.step(peers), fitted, config.batch_size, LeadingStep, peers, (old, choice.warning))


def strategy_for(device: torch.device, config: TrainConfig, sizes: Sizes, steps: int) -> tuple[Choice, Strategy]:
    """The fastest step that this device can use for so many steps."""
    choice = usable(choose(device, config, sizes, steps, launched()), device)
    return choice, strategy(choice, device, config, sizes)


def xla_strategy() -> Strategy:
    """The step on PyTorch/XLA's device. Raises TaskError under torchrun."""
    from trm.xlastep import XlaStep

    if launched() > 1:
        raise TaskError("device=xla trains in one process; torchrun has started more.")
    step = XlaStep()
    remark = (
        f"XLA: {step.name} computes the steps, two graphs are compiled first. It was tried on XLA's CPU client only, "
        "never on a TPU; links with sessions on other devices are not bit-exact."
    )
    return Strategy(step, (remark,), lambda: {"xla_compilations": float(step.compilations)})
