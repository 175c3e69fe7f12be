"""A callback that relays a run of Lightning's Trainer.

    cb = RelayCallback("ada/run", target_steps=10_000)
    trainer = Trainer(callbacks=[cb], plugins=[cb.checkpoint_io])
    trainer.fit(model, loader, ckpt_path=cb.path)
    raise SystemExit(cb.outcome.exit_code)

Lightning restarts its loops and the loader from where the last step ended (`_Position`). Everything else is the state
in which the next step begins: after the validation, the schedulers and the end of an epoch.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, Timer
from lightning.pytorch.core.hooks import CheckpointHooks
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.loops.progress import _BaseProgress
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.plugins.precision import HalfPrecision
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn

from relay.core.clock import in_main_thread
from relay.core.errors import BadConfig
from relay.torch.loop import Arrived, DoesNotFit
from relay.torch.plain import Book, Misfit, decode, encode
from relay.torch.streams import Streams
from relay.torch.trainers import NotForTrainer, Steered, TrainerSession, TrainerStopped, refuse_unsupported

OLDEST, BELOW = "2.5", "3.0"
"""Of the supported releases (docs/how-to/lightning.md)."""
STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy")
REFUSED = {
    "StochasticWeightAveraging": "its average is in no checkpoint",
    "BaseFinetuning": "it changes the optimizer before a checkpoint can be loaded",
    "GradientAccumulationScheduler": "it changes the accumulation, which is part of the run",
}
"""Callbacks that cannot be continued, and why."""


class BatchDiffers(BadConfig):
    """The run's loader had other batches. `was`, `now`: sizes of its batches, and batches of an epoch."""

    def __init__(self, was: list[Any], now: list[Any]) -> None:
        super().__init__(f"The run was trained with batches of {was[0]} ({was[1]} an epoch), not {now[0]} ({now[1]}).")
        self.was, self.now = was, now


class RelayCallback(Steered, Callback):  # type: ignore[misc]
    """Gives a Lightning Trainer's run lease, budget, exact resume and handoff."""

    def __init__(self, run: str, **options: Any) -> None:
        """options: of `relay.session`; target_steps counts batches after which an optimizer made a step.

        Raises Unsupported (78).
        """
        refuse_unsupported("lightning", OLDEST, BELOW)
        self._run, self.path = TrainerSession(run, options), f"relay:{run}"
        self.checkpoint_io = RelayCheckpointIO(self)
        """For the trainer's plugins: reads the run at `path`, and any other file as before."""
        self._trainer: pl.Trainer | None = None
        self._position: _Position | None = None
        self._global_step, self._handler, self._fetched = -1, signal.getsignal(signal.SIGTERM), False
        self._taken: Any = None

    def fetch(self) -> dict[str, Any]:
        """The newest checkpoint of the run as Lightning reads one, once the processes are connected. Takes the lease.

        Raises LeaseHeld, PolicyRefused, BadConfig, DoesNotFit, BadData, StorageUnreachable.
        """
        trainer, module = self._known(), self._known().lightning_module
        if isinstance(trainer.precision_plugin, HalfPrecision):
            trainer.precision_plugin.convert_module(module)  # as Lightning does after it has read the checkpoint
        weights = dict(module.state_dict())
        found = {"pytorch-lightning_version": pl.__version__, "optimizer_states": [], "lr_schedulers": []}
        arrived, self._fetched = self._open(trainer), True
        if arrived is None:
            return {**found, "global_step": 0, "epoch": 0, "state_dict": weights}
        try:
            weights |= arrived.weights("model", module)
            position = arrived.value("position")
            loops = _loops_of(position, "held", trainer)
            _loops_of(position, "now", trainer)
        except DoesNotFit as error:
            self._run.close(error)
            raise
        epoch = loops["epoch_progress"]["current"]["completed"]
        found |= {"global_step": arrived.document.step, "epoch": epoch, "state_dict": weights}
        return {**found, "loops": {"fit_loop": loops}}

    def _open(self, trainer: pl.Trainer) -> Arrived | None:
        if type(trainer.strategy).__name__ not in STRATEGIES:
            raise NotForTrainer("strategy", f"{', '.join(STRATEGIES)} are supported")
        for one in (*trainer.callbacks, trainer.lightning_module, trainer.datamodule):
            for kind in type(one).__mro__:
                if kind.__name__ in REFUSED:
                    raise NotForTrainer(kind.__name__, REFUSED[kind.__name__])
            unused = (None, Callback.on_save_checkpoint, CheckpointHooks.on_save_checkpoint)
            if not isinstance(one, Checkpoint) and getattr(type(one), hook := "on_save_checkpoint", None) not in unused:
                why = "the relay does not call it; use a buffer, get_extra_state or a callback's state_dict"
                raise NotForTrainer(f"{hook} of {type(one).__name__}", why)
        settings = {
            name: getattr(trainer, name)
            for name in ("accumulate_grad_batches", "gradient_clip_val", "precision", "limit_train_batches")
        }
        arrived = self._run.open(settings, trainer.strategy.root_device)
        self._handler = signal.getsignal(signal.SIGTERM)
        return arrived

    def _known(self) -> pl.Trainer:
        assert self._trainer is not None, "Lightning calls `setup` first"
        return self._trainer

    # --- Events of the trainer ---

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The processes are connected; checkpoints are read next."""
        if stage == "fit":
            self._trainer, self._global_step, self._fetched = trainer, -1, False

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Optimizers exist: load the checkpoint. Raises as `fetch`, NotResumed, StopsEarly, BadPart (78)."""
        self._open(trainer)
        self._position = _Position(trainer)
        last = trainer.max_steps if trainer.max_steps != -1 else 2**53
        begins, asked = self.step if self._fetched else trainer.global_step, "ckpt_path=cb.path to fit"
        self._run.attach(begins, last, "max_steps", asked, _parts(trainer, pl_module, self._position))
        self._position.replay()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The loader exists, and Lightning handles signals: SIGTERM is the session's again."""
        position = self._position
        assert position is not None
        if in_main_thread():
            signal.signal(signal.SIGTERM, self._handler)
        try:
            if position.settle() and self._run.session is not None:
                self._run.session.tell("LOADER: it has no state, so this epoch goes on with other batches than before.")
        except BatchDiffers as error:
            self._run.close(error)
            raise
        if self._run.ended:
            self._stop(trainer)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The step before is complete. If the session is over, Lightning still makes this one."""
        if trainer.global_step == self._global_step:
            return
        drawn = self._position.begin() if self._global_step == -1 and self._position is not None else None
        self._global_step = trainer.global_step
        if not self._run.step():
            self._stop(trainer)
        if drawn is not None:
            Streams([trainer.strategy.root_device]).restore(drawn)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the position, and stop at the run's target, which may come before the trainer's own end."""
        if trainer.global_step == self._global_step:
            return
        if self._position is not None:
            self._position.hold()
        if self._run.reporting:  # reading them takes Lightning a tenth of a millisecond
            self._run.log(trainer.callback_metrics)
        if not self._run.ended and self._run.reached(self.step + 1):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the random streams from which the next epoch's order may follow."""
        if trainer.global_step != self._global_step and self._position is not None:
            self._position.hold_streams()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The last step is complete."""
        self._run.finish(complete=trainer.global_step != self._global_step)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Without a step, if the trainer had reached its own end (max_epochs) before."""
        self._run.finish(complete=False)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Training failed, or Lightning itself heeded a signal after a complete step."""
        if isinstance(exception, SIGTERMException) and trainer.global_step != self._global_step and self._run.step():
            self._run.close(TrainerStopped("Lightning ended training"))
        self._run.close(exception)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Give the trainer its settings back."""
        if self._taken is not None:
            (trainer.limit_val_batches, trainer.callbacks), self._taken = self._taken, None

    def _stop(self, trainer: pl.Trainer) -> None:
        """No further step, and nothing judges a state that is not the run's."""
        trainer.should_stop = True
        trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = 0, None
        if self._taken is None:
            self._taken, trainer.limit_val_batches = (trainer.limit_val_batches, trainer.callbacks), 0
            trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, Checkpoint | EarlyStopping)]


class RelayCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]
    """Reads a run of the relay at the callback's `path`; Lightning's own checkpoints as before."""

    def __init__(self, callback: RelayCallback) -> None:
        super().__init__()
        self._callback = callback

    def load_checkpoint(self, path: Any, *args: Any, **more: Any) -> dict[str, Any]:
        """See RelayCallback.fetch."""
        if str(path) == self._callback.path:
            return self._callback.fetch()
        found: dict[str, Any] = super().load_checkpoint(path, *args, **more)
        return found


class _Position:
    """Where Lightning restarts.

    `held`: its loops and stateful loaders when the last step ended, which is when Lightning can restart; `now`: the
    loops where the next step begins, as its restart counts otherwise; `drawn`: the random streams at an epoch's end.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer, self._began = trainer, False
        self._kept: dict[str, Any] = {"held": None, "now": None, "drawn": None, "batch": None}
        self._loops = _Loops(trainer.fit_loop)
        self._held: list[dict[str, Any]] | None = None
        """Copies of the loops' parts when the last step of this session ended."""

    def state_dict(self) -> dict[str, Any]:
        kept = dict(self._kept)
        if self._began:
            kept["now"] = _progress(self._trainer.fit_loop)
        if self._held is not None:
            kept |= {"held": self._loops.state(self._held), "batch": self._batch()}
            if kept["drawn"] is not None:
                kept["held"] = {**kept["now"], "state_dict": kept["held"]["state_dict"]}
        return kept

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        self._kept, self._held, self._began = dict(found), None, False

    def hold(self) -> None:
        """The last step ends now."""
        self._held, self._kept["drawn"] = self._loops.copy(), None

    def hold_streams(self) -> None:
        """An epoch ends now."""
        self._kept["drawn"] = Streams([self._trainer.strategy.root_device]).capture()

    def begin(self) -> Any:
        """The first step begins: set Lightning's counters. If the trainer was at its own end, an epoch begins with
        Lightning's counters, and the random streams are those after its order was drawn: returned, else None."""
        self._began = True
        loop, now = self._trainer.fit_loop, self._kept["now"] or {}
        if now and (epochs := now["epoch_progress"]["current"])["ready"] == epochs["completed"]:
            return Streams([self._trainer.strategy.root_device]).capture()
        for key, value in now.items():
            *path, name = key.split(".")
            owner = reduce(getattr, path, loop)
            if name == "state_dict":
                owner.on_load_checkpoint(value)
            else:
                getattr(owner, name).load_state_dict(value)
        return None

    def replay(self) -> None:
        """Before the loader is made: an epoch that begins draws its order. Raises DoesNotFit (78)."""
        drawn = self._kept["drawn"]
        if drawn is not None:
            streams = Streams([self._trainer.strategy.root_device])
            try:
                streams.check(drawn, "position.drawn")
            except Misfit as error:
                raise DoesNotFit(error.where, error.why) from error
            streams.restore(drawn)

    def settle(self) -> bool:
        """Once the loader is made: whether an epoch goes on with other batches. Raises BatchDiffers (78)."""
        loops, batch = self._kept["held"], self._kept["batch"]
        if batch is not None and repr(batch) != repr(self._batch()):  # as text: a forged one may hold tensors
            raise BatchDiffers(batch, self._batch())
        if loops is None:
            return False
        states = loops.get("state_dict", {}).get("combined_loader") or []
        if self._kept["drawn"] is None:
            self._set_epoch(states)
            return not states
        self.replay()
        loop = self._trainer.fit_loop  # an epoch begins: Lightning must not take up the one before
        loop.epoch_loop.restarting = loop._resuming_from_checkpoint = False
        return False

    def _set_epoch(self, states: list[Any]) -> None:
        """Lightning makes the loaders' iterators before it tells samplers such as DistributedSampler their epoch: make
        them again."""
        loop = self._trainer.fit_loop
        loaders = loop._combined_loader.flattened
        owners = [owner for one in loaders for owner in (one, getattr(one, "batch_sampler", None))]
        found: list[Any] = [getattr(each, "sampler", None) for each in owners]
        samplers = [one for one in found if hasattr(one, "set_epoch")]
        if not samplers:
            return
        for sampler in samplers:
            sampler.set_epoch(loop.epoch_progress.current.processed)
        if states:
            loop._combined_loader._load_state_dicts(states)
        iter(loop._data_fetcher)

    def _batch(self) -> list[Any]:
        loaders = self._trainer.train_dataloader
        several = loaders if isinstance(loaders, list | tuple) else [loaders]
        count = self._trainer.num_training_batches
        return [[getattr(one, "batch_size", None) for one in several], count if isinstance(count, int) else None]


class _Loops:
    """As `loop.state_dict()`, in two halves: a copy of its parts at each step, and the state at a snapshot."""

    def __init__(self, loop: Any) -> None:
        self._parts = list(_parts_of(loop))

    def copy(self) -> list[dict[str, Any]]:
        return [one.on_save_checkpoint() if isinstance(one, _Loop) else vars(one).copy() for _, one in self._parts]

    def state(self, copied: list[dict[str, Any]]) -> dict[str, Any]:
        found = dict[str, Any]()
        for ((*path, name), _), copy in zip(self._parts, copied, strict=True):
            reduce(getitem, path, found)[name] = copy
        return found


def _parts_of(owner: Any, path: tuple[str, ...] = (), prefix: str = "") -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each loop and group of counters, with its place in the state; a group comes before those in it."""
    yield (f"{prefix}state_dict",) if isinstance(owner, _Loop) else path, owner
    for name, value in vars(owner).items():
        if isinstance(value, _BaseProgress):
            yield from _parts_of(value, (*path, prefix + name))
        elif isinstance(value, _Loop):
            yield from _parts_of(value, prefix=f"{prefix}{name}.")


def _progress(loop: Any) -> dict[str, Any]:
    """The counters of the loops, without the state of the loaders."""
    return {name: value for name, value in loop.state_dict().items() if name != "state_dict"}


def _loops_of(position: Any, name: str, trainer: pl.Trainer) -> dict[str, Any]:
    """A state of the loops, of the same form as here except for the loaders' own. Raises DoesNotFit (78)."""
    where = f"position.{name}"
    try:
        if not isinstance(position, dict) or not isinstance(found := position.get(name), dict):
            raise Misfit(where, "is not a state of loops")
        book = Book()
        rest = encode({key: value for key, value in found.items() if key != "state_dict"}, where, book)
        decode(rest, _progress(trainer.fit_loop), where, book.tensors)
        loaders, batch = found.get("state_dict", {}), position.get("batch")
        if not isinstance(loaders, dict) or not (batch is None or (isinstance(batch, list) and len(batch) == 2)):
            raise Misfit(where, "is not a state of loops")
    except Misfit as error:
        raise DoesNotFit(error.where, error.why) from error
    return {"state_dict": {}, **found}


def _parts(trainer: pl.Trainer, module: nn.Module, position: _Position) -> dict[str, Any]:
    """The tracked parts. Other callbacks keep their state, except paths and the time of this machine."""
    parts: dict[str, Any] = {"model": module, "position": position}
    parts |= {_numbered("optimizer", i): one for i, one in enumerate(trainer.optimizers)}
    parts |= {_numbered("scheduler", i): one.scheduler for i, one in enumerate(trainer.lr_scheduler_configs)}
    if (scaler := getattr(trainer.precision_plugin, "scaler", None)) is not None:
        parts["scaler"] = scaler
    callbacks = [one for one in trainer.callbacks if not isinstance(one, Checkpoint | Timer) and one.state_dict()]
    if callbacks:
        parts["callbacks"] = _States({one.state_key: one for one in callbacks})
    if trainer.datamodule is not None and trainer.datamodule.state_dict():
        parts["datamodule"] = trainer.datamodule
    return parts


def _numbered(name: str, i: int) -> str:
    return f"{name}{i}" if i else name


class _States:
    """Several objects with state_dict as one."""

    def __init__(self, owners: Mapping[str, Any]) -> None:
        self._owners = owners

    def state_dict(self) -> dict[str, Any]:
        return {key: one.state_dict() for key, one in self._owners.items()}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        for key, one in self._owners.items():
            one.load_state_dict(found[key])
