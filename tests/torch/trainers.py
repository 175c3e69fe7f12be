"""A small training by each trainer, with and without a relay, for processes that are forked from the test's."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from relay.torch.trainers import TrainerSession

Act = Callable[[Any], None]
"""Called where each step begins, with the session."""
WHOLE = os.environ.get("TESTS_TRAINERS") == "whole"
"""`make accept` takes every end, accumulation and number of workers."""
TARGET = 40 if WHOLE else 23
"""In the middle of an epoch, for both accumulations."""


class Numbers(torch.utils.data.Dataset[Any]):
    """Rows of a map-style dataset, as each trainer likes them."""

    def __init__(self, count: int, wrap: Callable[[Tensor], Any]) -> None:
        self.rows, self.wrap = torch.randn(count, 6, generator=torch.Generator().manual_seed(1)), wrap

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return self.wrap(self.rows[i])


class Net(nn.Module):
    """Dropout, so that a wrong random stream shows in the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.last(self.drop(self.first(x).relu()))
        return {"loss": ((y - x) ** 2).mean(), "y": y}


class Tied(nn.Module):
    """Both layers have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.last(self.first(x).relu())
        return {"loss": ((y - x) ** 2).mean(), "y": y}


def digest(module: nn.Module) -> str:
    """Of the module's own state."""
    state = module.state_dict().values()
    return hashlib.sha256(b"".join(each.detach().view(torch.uint8).numpy().tobytes() for each in state)).hexdigest()


def session_of(callback: Any) -> Any:
    """The session that the callback drives."""
    run: TrainerSession = callback._run
    return run.session


def found(callback: Any, module: nn.Module) -> dict[str, Any]:
    """How a session ended."""
    outcome = callback.outcome
    return {
        "code": int(outcome.exit_code),
        "durable": outcome.durable_step,
        "began": outcome.from_step,
        "certified": callback.certified,
        "digest": digest(module),
    }


# --- Transformers ---


def transformers_run(account: str | None, act: Act = lambda run: None, **more: Any) -> Any:
    """One session of Transformers' trainer; without an account, the script without a relay."""
    quiet()
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    from relay.torch.transformers import RelayCallback

    options = {"target_steps": TARGET, "account": account, "every_steps": 5, **more.pop("options", {})}
    resume, steps = more.pop("resume", True), more.pop("max_steps", TARGET)  # resume: also another folder
    optimizer, kind_of_model = more.pop("optimizer", None), more.pop("model", Net)
    callback = RelayCallback("ada/net", **options) if account else None
    callbacks: list[Any] = []
    if callback is not None:

        class Acting(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                if not callback.outcome:
                    act(session_of(callback))

        callbacks = [callback, Acting()]
    set_seed(3)
    arguments = {
        "output_dir": "out", "max_steps": steps, "per_device_train_batch_size": 3, "save_strategy": "no",
        "eval_strategy": "steps", "eval_steps": 5, "logging_steps": 4, "learning_rate": 1e-2, "seed": 3,
        "report_to": [], "disable_tqdm": True, "use_cpu": True, "remove_unused_columns": False, "label_names": [],
        **more,
    }  # fmt: skip
    model = kind_of_model()
    trainer = Trainer(
        model=model,
        optimizers=(optimizer(model.parameters(), lr=1e-2) if optimizer else None, None),
        args=TrainingArguments(**arguments),
        train_dataset=Numbers(31, lambda row: {"x": row}),
        eval_dataset=Numbers(7, lambda row: {"x": row}),
        callbacks=callbacks,
    )
    if callback is None:
        trainer.train()
        return digest(trainer.model)
    trainer.train(resume_from_checkpoint=callback.folder if resume is True else resume)
    return found(callback, trainer.model)


# --- Lightning ---


def lightning_run(account: str | None, act: Act = lambda run: None, **more: Any) -> Any:
    """One session of Lightning's trainer; without an account, the script without a relay."""
    quiet()
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    from relay.torch.lightning import RelayCallback

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, x: Tensor, i: int) -> Tensor:
            loss = self.net(x)["loss"]
            self.log("loss", loss)
            return loss

        def validation_step(self, x: Tensor, i: int) -> None:
            self.log("val", self.net(x)["loss"])

        def configure_optimizers(self) -> Any:
            optimizer = kind_of_optimizer(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TARGET)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    options = {"target_steps": TARGET, "account": account, "every_steps": 5, **more.pop("options", {})}
    resume, steps, batch = more.pop("resume", True), more.pop("max_steps", TARGET), more.pop("batch", 3)
    kind_of_optimizer = more.pop("optimizer", torch.optim.AdamW)
    workers, stateful = more.pop("workers", 0), more.pop("stateful", True)
    callback = RelayCallback("ada/net", **options) if account else None
    callbacks: list[Any] = more.pop("callbacks", [])
    if callback is not None:

        class Acting(pl.Callback):  # type: ignore[misc]
            acted = -1

            def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
                """Once a step, which may take several batches."""
                session = session_of(callback)
                if not callback.outcome and trainer.global_step == session.step != self.acted:
                    self.acted = session.step
                    act(session)

        callbacks = [callback, Acting(), *callbacks]
    pl.seed_everything(3, verbose=False)
    module = Module()
    trainer = pl.Trainer(
        max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", devices=more.pop("devices", 1), callbacks=callbacks,
        plugins=[callback.checkpoint_io] if callback else [], **more,
    )  # fmt: skip
    kind = StatefulDataLoader if stateful else DataLoader
    data, several = Numbers(31, lambda row: row), trainer.world_size > 1
    sampler = DistributedSampler(data, trainer.world_size, trainer.global_rank, seed=3) if several else None
    loader = kind(data, batch, shuffle=None if several else True, sampler=sampler, num_workers=workers)
    test = DataLoader(Numbers(7, lambda row: row), 3)
    trainer.fit(module, loader, test, ckpt_path=callback.path if callback and resume else None)
    return found(callback, module.net) if callback else digest(module.net)


def quiet() -> None:
    """Warnings of the trainers' packages about a small training are no errors here."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@cache
def preload_trainers() -> None:
    """Import once, for all forked processes, what each of them would import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("transformers.trainer", "accelerate", "lightning.pytorch", "torchdata.stateful_dataloader"):
            import_module(name)
