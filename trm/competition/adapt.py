"""Adapts weights to tasks that their table does not know: trains on the demonstration pairs of the given tasks.

First the table alone, then everything, each with its own warm-up and fresh moments. The state is saved now and then, so
the same command goes on after a kill; for given numbers of steps the result is always the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from relay.torch.device import settle
from relay.torch.faults import TaskError
from relay.torch.statefile import check_tensors, read_tensors
from trm.competition.layout import Layout
from trm.competition.pace import Pace
from trm.competition.votestore import NoRoom
from trm.competition.weights import Trained
from trm.config import TrainConfig
from trm.data.arc.variants import VOCABULARY
from trm.interop import PUZZLES, load_named
from trm.model import Sizes
from trm.train import TrainState
from trm.workload import strategy_for

MANY = 10_000
"""Steps that repay compiling, where the time decides how many they are."""
SAVE_S = 600.0
"""Seconds between two savings of the state."""
TABLE, ALL, DONE = 0, 1, 2
"""Phases."""


@dataclass(frozen=True)
class Recipe:
    """How to adapt. Either the seconds decide how long, or the steps."""

    seconds: float = math.inf
    steps: int | None = None
    share: float = 0.25
    """Of the time or the steps, for the table alone."""
    batch: int = 128
    lr: float = 1e-4
    table_lr: float = 1e-2
    warmup: int = 200
    threads: int = 2

    def config(self, trained: Trained, phase: int) -> TrainConfig:
        """Of a phase: in the first the network does not move."""
        return TrainConfig(
            task="adaptation",
            seed=phase,
            batch_size=self.batch,
            arch=trained.arch,
            lr=self.lr if phase == ALL else 0.0,
            lr_warmup_steps=self.warmup,
            puzzle_emb_lr=self.table_lr,
            threads=self.threads,
        )

    def binding(self, trained: Trained, tasks: str) -> str:
        """What a saved state belongs to."""
        return json.dumps([trained.hash, tasks, asdict(replace(self, seconds=0.0, threads=0))])


@dataclass(frozen=True)
class Adapted:
    """The result."""

    trained: Trained
    layout: Layout
    steps: tuple[int, int]
    """With the table alone, and with everything."""
    seconds: float
    complete: bool
    """False: the time of the solve ended before all steps of a recipe with a number of them; they are saved."""

    def about(self, recipe: Recipe) -> dict[str, Any]:
        """For the report, as plain JSON values."""
        kept = {"batch": recipe.batch, "lr": recipe.lr, "table_lr": recipe.table_lr, "warmup": recipe.warmup}
        pairs = sum(len(task.demonstrations) for task in self.layout.tasks)
        made = {"steps_table": self.steps[0], "steps_all": self.steps[1], "seconds": round(self.seconds, 1)}
        return made | {"pairs": pairs, "share": recipe.share} | kept


class Adaptation:
    """One process of an adaptation."""

    def __init__(
        self, trained: Trained, layout: Layout, recipe: Recipe, device: torch.device, path: Path, tasks: str
    ) -> None:
        """path: of the saved state. tasks: their hash. Raises ValueError if the weights do not fit."""
        settle(recipe.threads)
        self._trained, self._layout, self._recipe, self._path = trained, layout, recipe, path
        self._binding = recipe.binding(trained, tasks)
        self._sizes = Sizes(trained.side**2, VOCABULARY, len(layout.table))
        self._data = layout.demonstrations.to(device)
        self._state = TrainState(recipe.config(trained, TABLE), self._sizes, device)
        load_named(self._state.model, {**trained.trunk, PUZZLES: layout.table})
        self._state.reset_ema()
        self._phase, self._steps, self._spent = TABLE, [0, 0], 0.0
        self._load()

    def run(self, pace: Pace, votes: Callable[[], float], report: Callable[[int, float], None]) -> Adapted:
        """Train until the steps or the time are over. votes: measures the seconds that they need afterwards, for which
        at most half of all time is kept. Raises NoRoom, TaskError if the loss is not finite."""
        votes_s = votes() if self._phase < DONE and self._recipe.steps is None else 0.0
        began, saved = pace.now() - self._spent, pace.now()
        recipe = self._recipe
        while self._phase < DONE:
            self._begin()
            step = strategy_for(self._state.device, self._state.config, self._sizes, recipe.steps or MANY)[1].step
            took = 0.0
            while not self._over(pace, began, votes_s, took):
                if recipe.steps is not None and pace.left <= took:
                    self._save(pace.now() - began)
                    return self._result(pace.now() - began)
                started = pace.now()
                batch = self._data.batch_at(self._phase, self._state.step, self._recipe.batch)
                loss = float(step(self._state, batch)[-2:].sum())  # waits for the device
                if not math.isfinite(loss):
                    raise TaskError("The loss of the adaptation is not finite. Give a smaller --adapt-lr.")
                took = pace.now() - started
                self._steps[self._phase] += 1
                report(sum(self._steps), loss / self._recipe.batch)
                if pace.now() - saved > SAVE_S:
                    self._save(pace.now() - began)
                    saved = pace.now()
            self._phase += 1
            self._state.step = 0
        self._save(pace.now() - began)
        return self._result(pace.now() - began)

    def _begin(self) -> None:
        """Fresh moments and sequences, unless this phase was under way already."""
        state, config = self._state, self._recipe.config(self._trained, self._phase)
        state.config = config
        if state.step == 0:
            state.m.buffer.zero_()
            state.v.buffer.zero_()
            state.carry = state.model.initial_carry(config.batch_size)

    def _over(self, pace: Pace, began: float, votes_s: float, took: float) -> bool:
        """Whether the phase has had its share."""
        recipe, share = self._recipe, self._recipe.share if self._phase == TABLE else 1.0
        if recipe.steps is not None:
            return sum(self._steps) >= round(share * recipe.steps)
        spent = pace.now() - began
        return spent + took > share * pace.training(recipe.seconds, spent, votes_s)

    def _result(self, seconds: float) -> Adapted:
        every = {**self._state.model.state_dict(), **self._state.eval_weights()}
        tensors = {name: value.detach().cpu().clone() for name, value in every.items()}
        table = tensors.pop(PUZZLES)
        trained = replace(self._trained, trunk=tensors, table=table, names=None)
        steps = self._steps[0], self._steps[1]
        return Adapted(trained, replace(self._layout, table=table), steps, seconds, self._phase == DONE)

    def _save(self, seconds: float) -> None:
        about = {"phase": self._phase, "step": self._state.step, "steps": self._steps, "seconds": seconds}
        part = self._path.with_name(f".{self._path.name}.part")
        tensors = {name: value.detach().cpu().contiguous() for name, value in self._state.tensors().items()}
        try:
            save_file(tensors, part, {"binding": self._binding, "about": json.dumps(about)})
            part.replace(self._path)
        except (OSError, SafetensorError) as error:
            part.unlink(missing_ok=True)
            raise NoRoom(self._path, error if isinstance(error, OSError) else OSError(str(error))) from error

    def _load(self) -> None:
        """Go on with a saved state of the same weights, tasks and recipe; another one is begun anew."""
        try:
            with safe_open(self._path, "pt") as file:
                about: dict[str, Any] = file.metadata() or {}
            if about.get("binding") != self._binding:
                return
            at, live = json.loads(about["about"]), self._state.tensors()
            check_tensors(self._path, live)
        except (FileNotFoundError, SafetensorError, ValueError):
            return
        except OSError as error:
            raise NoRoom(self._path, error) from error
        found: dict[str, Tensor] = dict(read_tensors(self._path))
        for name, value in found.items():
            live[name].copy_(value)
        self._phase, self._state.step, self._spent = at["phase"], at["step"], at["seconds"]
        self._steps = list(at["steps"])
