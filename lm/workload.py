"""Training a looped language model as a workload that a relay can start, stop, save, load and compare."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lm.config import TOKENIZER_FILE, LmConfig
from lm.cost import EVALUATED, fit, parameter_count
from lm.data.text import Text, load_text
from lm.evaluate import Done, evaluate, marks
from lm.examples import Shown, shown
from lm.interop import weights_of
from lm.optim import lr_scale
from lm.presets import LOSS, MEASURES, at_step
from lm.refinement import OFTEN
from lm.together import LeadingStep
from lm.train import EAGER, Batch, RefiningStep, Step, TrainState, activations, compiled
from relay.core.workload import Reading
from relay.torch import statefile
from relay.torch.caches import KEYED, KernelCache, key_of, triton_home
from relay.torch.device import compiles, has_kernels, old_card, slow_bf16
from relay.torch.files import Fetching, readable, unseen
from relay.torch.launch import launched
from relay.torch.memory import free_bytes
from relay.torch.peers import meet
from relay.torch.snapshot import DeviceSnapshot
from relay.torch.statefile import StateDocument, load_tensors, plain_size
from relay.torch.workload import SteppedWorkload, Strategy, in_parts
from storage.regular import is_there
from storage.wording import counted

FILES: statefile.Files = {"weights.safetensors": ("raw/",), "optimizer.safetensors": ("m/", "v/")}


class LmWorkload(SteppedWorkload[TrainState]):
    """One run's training: `config` decides every bit of the state at step n, on one path."""

    measures = MEASURES

    def __init__(
        self,
        config: LmConfig,
        root: Path,
        device: torch.device | str | None = None,
        step: Step | None = None,
        fetching: Fetching | None = unseen,
    ) -> None:
        """Reads the text (kept as tokens below `root`). Raises ValueError for an invalid config or text.

        device: None takes the GPU if there is one. step: how to compute a training step; None is the fastest.
        fetching: as of `load_text`.
        """
        super().__init__(config, torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
        self._config = config
        self.text: Text = load_text(config, root, fetching=fetching)
        self._use(Strategy(step) if step else strategy(self.device, config))
        self._counts: torch.Tensor | None = None
        self.reading = Reading()
        """How an evaluation reads the state: by how many refinement steps. No weights are averaged."""
        self.evaluated: dict[str, float] = {}
        """Metrics of the last evaluation."""
        self._sums = torch.zeros(config.refine.steps + 2, dtype=torch.float64, device=self.device)
        self._steps = 0

    def start(self) -> None:
        """Fresh state at step 0."""
        self._prepare()
        self._begin(self._fresh())

    def start_from(self, path: Path) -> list[str]:
        """Fresh state at step 0 with exported weights; returns lines to print. Raises ValueError."""
        self.start()
        beside = path.with_name(TOKENIZER_FILE)
        weights = {f"raw/{name}": value for name, value in self.state.params.views.items()}
        with readable(beside):
            if is_there(beside) and beside.read_bytes() != self.text.tokenizer.text:
                raise ValueError(f"{beside} is another tokenizer than data.tokenizer; set data.tokenizer={beside}")
        with readable(path):
            for name, value in weights_of(path, weights):
                weights[name].copy_(value)
        return [counted(len(weights), "tensor")]

    def load(self, folder: Path) -> None:
        """Restore the files of a snapshot; the state stays if they do not fit. Raises ValueError."""
        self._prepare()
        document = statefile.load_document(folder, StateDocument)
        if self.text.tokenizer_hash and _hash(folder / TOKENIZER_FILE) != self.text.tokenizer_hash:
            raise ValueError(f"{TOKENIZER_FILE} is another tokenizer than this run's")
        state = self._fresh()
        load_tensors(folder, FILES, state.tensors())
        state.step = document.step
        self._begin(state)
        self._loaded = document.step, document.seed

    def snapshot(self) -> DeviceSnapshot:
        """A copy of the state now."""
        document = self.about_run.model_copy(update={"step": self.step})
        texts = {TOKENIZER_FILE: self.text.tokenizer.text} if self.text.tokenizer_hash else None
        taken = DeviceSnapshot(self.state.frozen(), document, FILES, self._loss_since_snapshot, texts=texts)
        self._loss_since_snapshot.zero_()
        return taken

    @property
    def dtype_name(self) -> str:
        """As computed here."""
        return str(activations(self._config, self.device)).removeprefix("torch.")

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return parameter_count(self._config)

    def kernels(self) -> KernelCache | None:
        """The compiled kernels of this training on this machine, not yet in use; None if there are none."""
        if self._step.name == EAGER:
            return None
        known = self.fingerprint()
        own = {"path": self.path, "arch": self._config.arch.model_dump(mode="json"), "model": "lm"}
        facts = {name: known[name] for name in KEYED} | own
        return KernelCache(key_of(facts, Path(__file__).parent), triton_home(os.environ))

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Done], None] = lambda _: None
    ) -> dict[str, float]:
        """bpb after each refinement step, of letter counts and of equal chances, right answers by hops, and n."""
        self._prepare()
        if self._counts is None:
            self._counts = self.text.train.counts(self.text.tokenizer.vocab_size)
        self.evaluated = evaluate(
            self.state,
            self.text.parts[split],
            self.text.tokenizer,
            self._counts,
            rows,
            self.reading.recursions or self._config.refine.steps,
            EVALUATED[self.device.type],
            progress,
        )
        return self.evaluated

    def statement(self) -> list[str]:
        """Sentences about the last evaluation: values that letter counts beat, a text that was read too often."""
        often = f"The training text was read {self._epochs:.1f} times; more than {OFTEN:.0f} is much."
        return [*marks(self.evaluated), *([often] if self._epochs > OFTEN else [])]

    def guided(self) -> list[float]:
        """bpb after each step of the last evaluation, if the objective rewards steps, as the guide's do; else empty."""
        refine, found = self._config.refine, self.evaluated
        steps = range(1, refine.steps)
        rewarded = refine.reward > 0 and refine.steps > 1 and self.reading.recursions in (None, refine.steps)
        return [*(found[at_step("bpb", step)] for step in steps), found["bpb"]] if rewarded and found else []

    @property
    def _epochs(self) -> float:
        """How often the training text was read."""
        return self.step * self._config.batch_size / self.text.train.windows

    def examples(self, split: str, rows: Sequence[int]) -> tuple[Shown, ...]:
        """Continuations of those rows (from 1), and the guesses of the next token after each step."""
        self._prepare()
        steps = self.reading.recursions or self._config.refine.steps
        return shown(self.state, self.text.parts[split], self.text.tokenizer, rows, steps)

    def config(self) -> dict[str, Any]:
        """The configuration to pin, as plain JSON values."""
        return self._config.pinned(self.text.pinned(self._config))

    def _fresh(self) -> TrainState:
        return TrainState(self._config, self.text.tokenizer.vocab_size, self.device)

    def _begin(self, state: TrainState) -> None:
        self._state, self._loaded = state, (-1, 0)
        self._reset_meters()

    def _train_once(self) -> None:
        config = self._config
        batch = self.text.train.batch_at(config.seed, self.step, config.batch_size)
        metrics = self._step(self.state, Batch(batch.inputs.to(self.device), batch.targets.to(self.device)))
        self._sums += metrics
        self._steps += 1
        self._loss_since_snapshot += metrics.sum()

    def _report_metrics(self) -> dict[str, float]:
        if not self._steps:
            return {}
        *losses, objective, norm = (self._sums / self._steps).tolist()
        self._sums, self._steps = torch.zeros_like(self._sums), 0
        found = {LOSS: losses[-1]} | {at_step(LOSS, i): loss for i, loss in enumerate(losses[:-1], 1)}
        rate = self._config.lr_matrix * lr_scale(self._config, self.step)
        return found | {"objective": objective, "grad_norm": norm, "lr": rate, "epochs": self._epochs}

    def _reset_meters(self) -> None:
        self._sums, self._steps = torch.zeros_like(self._sums), 0
        self._loss_since_snapshot.zero_()


def _hash(path: Path) -> str:
    """SHA-256 of a small file. Raises ValueError if it is missing."""
    plain_size(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def strategy(device: torch.device, config: LmConfig) -> Strategy:
    """The step for this device, in the fewest parts that fit its free memory, or in single rows if none do.

    It is compiled on GPUs with bfloat16 and Triton, unless DISABLE_COMPILE is set.
    """
    peers = meet() if launched() > 1 else None
    step = RefiningStep(compiled(config) if has_kernels(device) and compiles() else EAGER, peers=peers)
    wide, processes = slow_bf16(device), peers.size if peers else 1
    old = old_card(device) if config.arch.forward_dtype == "bfloat16" else None
    return in_parts(
        step,
        lambda: fit(config, free_bytes(device), wide, processes, device.type),
        config.batch_size,
        LeadingStep,
        peers,
        (old,),
    )
