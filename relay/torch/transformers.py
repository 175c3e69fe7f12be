"""A callback that relays a run of Transformers' Trainer.

    cb = RelayCallback("ada/run", target_steps=10_000)
    trainer = Trainer(..., callbacks=[cb])
    trainer.train(resume_from_checkpoint=cb.folder)
    raise SystemExit(cb.outcome.exit_code)

The trainer reads its counters from `cb.folder` and skips the data. The callback loads everything else. A step is
complete where the next one begins: after the logs, the evaluation and the end of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file
from torch import nn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from relay.torch.loop import Arrived, DoesNotFit
from relay.torch.ownloop import Misused
from relay.torch.trainers import NotForTrainer, Steered, TrainerSession, refuse_unsupported

OLDEST, BELOW = "4.46", "6.0"
"""Of the supported releases (docs/how-to/transformers.md)."""
PINNED = (
    "train_batch_size",
    "gradient_accumulation_steps",
    "dataloader_drop_last",
    "seed",
    "data_seed",
    "learning_rate",
    "lr_scheduler_type",
    "optim",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "label_smoothing_factor",
    "bf16",
    "fp16",
)
"""Arguments that decide the weights, and that every supported release has."""
REFUSED = {
    "fsdp": "a session has the whole model in each process",
    "deepspeed": "a session has the whole model in each process",
    "auto_find_batch_size": "the batch size is part of the run",
    "ignore_data_skip": "an exact resume skips the data that was seen",
    "load_best_model_at_end": "the best model of another session is not on this machine",
    "restore_callback_states_from_checkpoint": "pass the callbacks to track",
    "dataloader_persistent_workers": "the trainer cannot repeat their random numbers at a resume",
    "enable_jit_checkpoint": "the session commits at SIGTERM",
}
"""Arguments that must be off, and why."""


class RelayCallback(Steered, TrainerCallback):  # type: ignore[misc]
    """Gives a Trainer's run lease, budget, exact resume and handoff."""

    def __init__(self, run: str, *, track: Mapping[str, Any] | None = None, **options: Any) -> None:
        """options: of `relay.session`; target_steps counts optimizer steps. track: further objects with state_dict and
        load_state_dict, and stateful callbacks. Raises Unsupported (78)."""
        refuse_unsupported("transformers", OLDEST, BELOW)
        self._run, self._also = TrainerSession(run, options), dict(track or {})
        self._args: TrainingArguments | None = None
        self._model: nn.Module | None = None
        self._files: TemporaryDirectory[str] | None = None
        self._begun_at = -1
        """The trainer's step for which the session was asked last."""

    @property
    def folder(self) -> str | None:
        """For `resume_from_checkpoint`, after the Trainer was made. Takes the lease and fetches the newest checkpoint;
        None for a run without one.

        Raises LeaseHeld, PolicyRefused, BadConfig, DoesNotFit, BadData, StorageUnreachable.
        """
        if self._args is None:
            raise Misused("folder", "make the Trainer first, with this callback")
        found = self._open(self._args)
        if found is None:
            return None
        if self._files is None:
            self._files = TemporaryDirectory(prefix="relay-")
            try:
                self._write(Path(self._files.name), found, self._args)
            except DoesNotFit as error:
                self._run.close(error)
                raise
        return self._files.name

    def _open(self, args: TrainingArguments) -> Arrived | None:
        for setting, why in REFUSED.items():
            if getattr(args, setting, None):
                raise NotForTrainer(setting, why)
        return self._run.open({name: _plain(getattr(args, name)) for name in PINNED}, args.device)

    def _write(self, folder: Path, found: Arrived, args: TrainingArguments) -> None:
        """The folder that the trainer reads. Raises DoesNotFit (78)."""
        assert self._model is not None
        save_file(found.weights("model", self._model), folder / "model.safetensors", {"format": "pt"})
        state = TrainerState(global_step=found.document.step, train_batch_size=args.train_batch_size)
        _set_intervals(state, args)
        _Counters(state).load_state_dict(found.value("trainer"))
        state.save_to_json(str(folder / "trainer_state.json"))

    # --- Events of the trainer ---

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """The trainer exists."""
        self._args, self._model = args, known["model"]

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """Everything exists: load the checkpoint into it. Raises as `folder`, NotResumed, StopsEarly, BadPart (78)."""
        self._open(args)
        optimizer = known["optimizer"]
        parts = {"model": known["model"], "optimizer": getattr(optimizer, "optimizer", optimizer)}
        parts |= {"scheduler": known["lr_scheduler"], "trainer": _Counters(state)}
        if (scaler := getattr(optimizer, "scaler", None)) is not None:
            parts["scaler"] = scaler
        parts |= {name: _stateful(one) for name, one in self._also.items()}
        asked = "resume_from_checkpoint=cb.folder to train"
        self._run.attach(state.global_step, state.max_steps, "max_steps", asked, parts)
        self._begun_at = -1
        _set_intervals(state, args)
        state.stateful_callbacks = _OfCallbacks(state.stateful_callbacks or {})
        if self._files is not None:
            self._files.cleanup()
            self._files = None

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """The step before is complete. If the session is over, the trainer still makes this one."""
        if state.global_step == self._begun_at:
            return
        self._begun_at = state.global_step
        if not self._run.step():
            control.should_training_stop = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """Stop at the run's target, which may come before the trainer's own end."""
        if self._run.reached(state.global_step):
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """Report the trainer's metrics."""
        self._run.log(known.get("logs") or {})

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: Any, **known: Any) -> None:
        """The last step is complete."""
        self._run.finish(complete=self._begun_at != state.global_step)


def _set_intervals(state: TrainerState, args: TrainingArguments) -> None:
    """How often to log, evaluate and save: the trainer keeps what the file says, and the script may say otherwise."""
    for name in ("logging_steps", "eval_steps", "save_steps"):
        steps = getattr(args, name)
        if steps is not None:
            setattr(state, name, steps if steps >= 1 else math.ceil(state.max_steps * steps))


class _OfCallbacks(dict[str, Any]):
    """A save of the trainer asks for the former state of each callback, which is not in `folder`."""

    def __missing__(self, name: str) -> dict[str, Any]:
        return {}


class _Counters:
    """The trainer's counters, besides its step. Its log and its FLOPs are of each session: they depend on clocks and
    on where a session began."""

    def __init__(self, state: TrainerState) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        best = [getattr(self._state, "best_metric", None), getattr(self._state, "best_global_step", None)]
        tokens = self._state.num_input_tokens_seen
        return {"epoch": float(self._state.epoch or 0), "best": best, "tokens": tokens}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Raises DoesNotFit (78)."""
        try:
            best, step = found["best"]
            self._state.epoch, self._state.num_input_tokens_seen = float(found["epoch"]), int(found["tokens"])
            self._state.best_metric = None if best is None else float(best)
            self._state.best_global_step = None if step is None else int(step)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DoesNotFit("trainer/state", "does not hold a trainer's counters") from error


class _Exportable:
    """A stateful callback of the trainer as an object with state_dict."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        return dict(self._callback.state()["attributes"])

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            setattr(self._callback, name, value)


def _stateful(one: Any) -> Any:
    return one if callable(getattr(one, "state_dict", None)) or not hasattr(one, "state") else _Exportable(one)


def _plain(value: Any) -> Any:
    """A member of an enumeration as its value."""
    return getattr(value, "value", value)
