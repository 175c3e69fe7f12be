"""Sessions of Transformers' and Lightning's trainers, ended in every way, have the bytes of the script without a relay;
wrong use is a clear error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from relay.core.clock import RealRuntime
from relay.core.ledger.ledger import RunLedger
from relay.torch import trainers as shared
from relay.torch.loop import DoesNotFit
from relay.torch.trainers import Unsupported, refuse_unsupported
from storage.local import LocalStore
from tests.torch.ownloops import ENDS, Ending, at, child, pair, use_up
from tests.torch.trainers import TARGET, WHOLE, Tied, lightning_run, preload_trainers, transformers_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Run = Callable[..., Any]
CAUSES = ("SIGKILL", "SIGTERM", "budget", "Ctrl-C", "lost lease", "stop", "crash") if WHOLE else ("SIGTERM", "SIGKILL")
CASES: list[tuple[str, Run, dict[str, Any]]] = [
    (f"{name} accumulation {accumulation} workers {workers}", run, {of: accumulation, count: workers})
    for name, run, of, count in (
        ("transformers", transformers_run, "gradient_accumulation_steps", "dataloader_num_workers"),
        ("lightning", lightning_run, "accumulate_grad_batches", "workers"),
    )
    for accumulation in (1, 4)
    for workers in (0, 2)
    if WHOLE or (accumulation, workers) == (4, 0)
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    preload_trainers()
    yield tmp_path


def durable(here: Path) -> int:
    return RunLedger(LocalStore(here / "relay_store"), "ada", "net", RealRuntime()).read().state.step


@pytest.mark.parametrize(("run", "settings"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_sessions_have_the_bytes_of_the_plain_trainer(here: Path, run: Run, settings: dict[str, Any]) -> None:
    """An epoch has 11 batches, so that some sessions end in the middle of one, and some at its end."""
    gaps, step = random.Random(1), 0
    for number, end in enumerate(islice(cycle(CAUSES), len(CAUSES))):
        act = Ending(end, gaps.choice((3, 4)))
        done = child(partial(run, f"a{number % 3}", act, **settings, options={"wait_minutes": 1}), here)
        code, expected = done["code"] if isinstance(done, dict) else done, ENDS[end][1]
        assert code == expected or str(code).startswith(str(expected)), (end, done)
        assert durable(here) > step, end
        step = durable(here)
    last = child(partial(run, "cem", **settings), here)
    assert (last["code"], last["began"], last["durable"]) == (0, step, TARGET)
    assert last["certified"] == "exact"
    assert last["digest"] == child(partial(run, None, **settings), here)
    again = child(partial(run, "ana", **settings), here)
    assert (again["code"], again["digest"]) == (0, last["digest"]), "a reached target only loads the state"


def lightning_epochs(account: str | None, act: Any = lambda run: None, **more: Any) -> Any:
    """Three epochs with callbacks that act at the start and at the end of each."""
    import lightning.pytorch as pl

    class Nudge(pl.Callback):  # type: ignore[misc]
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            module.net.first.bias.data += 0.01

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            module.net.first.bias.data *= 0.9

    callbacks = [Nudge(), pl.callbacks.EarlyStopping("val", patience=99), pl.callbacks.Timer("00:01:00:00")]
    options = {"target_steps": 33, "wait_minutes": 1}
    return lightning_run(account, act, callbacks=callbacks, options=options, max_steps=-1, max_epochs=3, **more)


@pytest.mark.parametrize("loader", [{}, {"stateful": False}, {"workers": 2}], ids=["stateful", "ordinary", "workers"])
def test_lightning_goes_on_at_an_epochs_end(here: Path, loader: dict[str, Any]) -> None:
    """Whatever its hooks did there is not done twice, and `max_epochs` counts no epoch twice."""
    for account, step in (("ana", 11), ("ben", 22)):
        done = child(partial(lightning_epochs, account, at(step, use_up), **loader), here)
        assert isinstance(done, dict) and (done["code"], done["durable"]) == (75, step), done
    last = child(partial(lightning_epochs, "cem", **loader), here)
    assert (last["code"], last["durable"], last["certified"]) == (0, 33, "exact")
    assert last["digest"] == child(partial(lightning_epochs, None, **loader), here)


def test_lightning_that_is_at_its_own_end_leaves_the_rest_to_a_longer_one(here: Path) -> None:
    """It trains nothing then, also at the second call."""
    options = {"target_steps": 22, "wait_minutes": 1}
    for account, epochs, step in (("ana", 1, 11), ("ben", 1, 11), ("cem", 2, 22)):
        done = child(partial(lightning_run, account, options=options, max_steps=-1, max_epochs=epochs), here)
        assert (done["code"], done["durable"]) == (75 if step < 22 else 0, step)
    assert done["digest"] == child(partial(lightning_run, None, max_steps=-1, max_epochs=2), here)


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        (transformers_run, {"model": Tied}),
        (transformers_run, {"save_strategy": "steps", "save_steps": 3}),
        (lightning_run, {"precision": "bf16-true"}),
        (lightning_run, {"limit_train_batches": 4}),
    ],
    ids=["tied weights", "the trainer's own saves", "bf16 weights", "short epochs"],
)
def test_unusual_trainings_go_on(here: Path, run: Run, settings: dict[str, Any]) -> None:
    assert child(partial(run, "ana", Ending("stop", 3), **settings), here)["durable"] == 4
    last = child(partial(run, "ben", **settings), here)
    assert (last["code"], last["began"], last["certified"]) == (0, 4, "exact")
    assert last["digest"] == child(partial(run, None, **settings), here)


PAIRS: dict[str, tuple[Run, dict[str, Any]]] = {
    "transformers": (transformers_run, {"ddp_backend": "gloo"}),
    "lightning": (lightning_run, {"strategy": "ddp", "devices": 2}),
}


@pytest.mark.skipif(not WHOLE, reason="two processes of each trainer: `make accept`")
@pytest.mark.parametrize("kind", PAIRS)
def test_two_processes_have_the_bytes_of_the_plain_trainer(here: Path, kind: str) -> None:
    """DistributedDataParallel over gloo; the first process has the session."""
    run, settings = PAIRS[kind]
    step = 0
    for number, end in enumerate(("stop", "SIGTERM", "SIGKILL")):
        pair(partial(run, f"a{number}", Ending(end, 3), **settings, options={"wait_minutes": 1}), here)
        assert durable(here) > step, end
        step = durable(here)
    last = pair(partial(run, "cem", **settings, options={"wait_minutes": 1}), here)
    assert [(one["code"], one["durable"], one["certified"]) for one in last] == [(0, TARGET, "exact")] * 2
    assert [one["digest"] for one in last] == pair(partial(run, None, **settings), here)


def refused(here: Path, run: Run, **more: Any) -> str:
    """The error of a session that must not train."""
    found = child(partial(run, "ben", **more), here)
    assert isinstance(found, str), found
    return found


class Odd(torch.optim.SGD):
    """Its state holds what cannot be stored."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["odd"] = len
        return super().step(closure)


def test_wrong_use_of_transformers_is_named(here: Path) -> None:
    assert refused(here, transformers_run, optimizer=Odd).startswith("BadPart")
    child(partial(transformers_run, "ana", Ending("stop", 3)), here)
    assert refused(here, transformers_run, resume=False).startswith("NotResumed")
    child(partial(transformers_run, None, max_steps=3, save_strategy="steps", save_steps=3), here)
    assert (here / "out/checkpoint-3").is_dir()
    assert refused(here, transformers_run, resume="out/checkpoint-3").startswith("NotResumed")
    assert refused(here, transformers_run, max_steps=2).startswith("StopsEarly")
    changed = refused(here, transformers_run, per_device_train_batch_size=4)
    assert changed.startswith("ConfigDiffers") and "trainer.train_batch_size" in changed
    for setting in ("ignore_data_skip", "dataloader_persistent_workers", "restore_callback_states_from_checkpoint"):
        assert refused(here, transformers_run, **{setting: True}).startswith("NotForTrainer"), setting
    assert durable(here) == 4


def test_wrong_use_of_lightning_is_named(here: Path) -> None:
    from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, StochasticWeightAveraging

    class Saving(Callback):  # type: ignore[misc]
        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None: ...

    for callback in (StochasticWeightAveraging(0.01), GradientAccumulationScheduler({1: 2}), Saving()):
        assert refused(here, lightning_run, callbacks=[callback]).startswith("NotForTrainer")
    assert refused(here, lightning_run, optimizer=Odd).startswith("BadPart")
    child(partial(lightning_run, "ana", Ending("stop", 3)), here)
    assert refused(here, lightning_run, resume=False).startswith("NotResumed")
    assert refused(here, lightning_run, max_steps=2).startswith("StopsEarly")
    assert refused(here, lightning_run, batch=4).startswith("BatchDiffers")
    changed = refused(here, lightning_run, accumulate_grad_batches=2)
    assert changed.startswith("ConfigDiffers") and "trainer.accumulate_grad_batches" in changed
    assert durable(here) == 4


def test_an_unsupported_release_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in ("4.45.2", "6.0.1", "6.0.0.dev1"):
        monkeypatch.setattr(shared, "version", lambda package, number=number: number)
        with pytest.raises(Unsupported) as caught:
            refuse_unsupported("transformers", "4.46", "6.0")
        assert (caught.value.package, caught.value.found) == ("transformers", number)
    monkeypatch.setattr(shared, "version", lambda package: "5.24.0")
    refuse_unsupported("transformers", "4.46", "6.0")


FAR = float("inf")


@pytest.mark.parametrize(
    "change", [{"tokens": FAR}, {"best": [1.0, FAR]}, {"best": 3}, {"epoch": "x"}, {"epoch": None}]
)
def test_counters_of_an_attacker_are_refused(change: dict[str, Any]) -> None:
    from transformers import TrainerState

    from relay.torch.transformers import _Counters

    counters = _Counters(TrainerState())
    with pytest.raises(DoesNotFit):
        counters.load_state_dict({**counters.state_dict(), **change})


@pytest.mark.parametrize("batch", [3, "x", [], [[4]], {"a": 1}])
def test_a_position_of_an_attacker_is_refused(batch: Any) -> None:
    from lightning.pytorch import Trainer

    from relay.torch.lightning import _loops_of

    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    held = trainer.fit_loop.state_dict()
    assert _loops_of({"held": held, "batch": [[4], 3]}, "held", trainer)
    with pytest.raises(DoesNotFit):
        _loops_of({"held": held, "batch": batch}, "held", trainer)


def test_metrics_are_not_read_when_they_are_logged() -> None:
    """Reading one waits for the GPU; a meta tensor cannot be read."""
    logged, session = dict[str, Any](), shared.TrainerSession("ada/net", {})
    session._session = cast(Any, SimpleNamespace(log=logged.update))
    loss = torch.empty((), device="meta")
    session.log({"loss": loss, "rate": 0.1, "logits": torch.empty(2, device="meta"), "name": "x", "on": True})
    assert logged == {"loss": loss, "rate": 0.1}


def test_loops_are_copied_as_lightning_copies_them(here: Path) -> None:
    """In the middle of an epoch, in a validation and at an epoch's end; what was copied stays as it was."""
    from lightning.pytorch import Callback

    from relay.torch.lightning import _Loops

    copies = list[tuple[list[dict[str, Any]], str]]()

    class Copies(Callback):  # type: ignore[misc]
        def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
            self.loops = _Loops(trainer.fit_loop)

        def copy(self, trainer: Any, *_: Any) -> None:
            copies.append((self.loops.copy(), repr(trainer.fit_loop.state_dict())))

        on_train_batch_start = on_train_batch_end = on_validation_start = on_train_epoch_end = copy

    watch = Copies()
    lightning_run(None, callbacks=[watch], accumulate_grad_batches=4)
    assert len(copies) > 100
    for copy, theirs in copies:
        assert repr(watch.loops.state(copy)) == repr(watch.loops.state(copy)) == theirs


def test_lightnings_metrics_are_read_where_they_are_reported(here: Path) -> None:
    """A commit has those of its own step; at the other steps, reading them would only take time."""
    losses, reads = dict[int, float](), list[int]()

    def watched() -> Any:
        from lightning.pytorch import Callback, Trainer

        theirs = Trainer.callback_metrics.fget

        def read(trainer: Any) -> Any:
            reads.append(trainer.global_step)
            return theirs(trainer)

        class Losses(Callback):  # type: ignore[misc]
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                losses[trainer.global_step] = float(theirs(trainer)["loss"])

        Trainer.callback_metrics = property(read)
        lightning_run("ana", callbacks=[Losses()])
        return losses, reads

    found, steps = child(watched, here)
    assert steps == [1, *range(5, TARGET, 5), TARGET]
    state = RunLedger(LocalStore(here / "relay_store"), "ada", "net", RealRuntime()).read().state
    assert (state.step, state.metrics["loss"]) == (TARGET, found[str(TARGET)])
