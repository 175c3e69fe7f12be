"""A user's loop that sessions share has the bytes of the same script without a relay; wrong use is a clear error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import relay
from relay.app.guard.notes import COMMIT, Note, first_commit, last_session
from relay.app.loops import BadCall, NotBegun
from relay.core.clock import RealRuntime
from relay.core.errors import BadConfig
from relay.core.events import Committed
from relay.core.ledger.ledger import RunLedger
from relay.core.runs.opening import ConfigDiffers
from relay.core.session.context import Listener
from relay.core.settings.origins import CHECK, GUARD, variable
from relay.torch.loading import BadLoader
from relay.torch.loop import BadMetric, DoesNotFit
from relay.torch.ownloop import Misused, Session
from relay.torch.ranks import NotConnected
from relay.torch.tracked import BadPart
from storage.local import LocalStore
from tests.torch.ownloops import ENDS, TARGET, Ending, Loop, at, child, fail, plain, relayed, stop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    Session._open = None


def state(here: Path) -> Any:
    return RunLedger(LocalStore(here / "relay_store"), "ada", "net", RealRuntime()).read().state


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_sessions_have_the_bytes_of_the_plain_script(here: Path, workers: int) -> None:
    """Loader's workers outlive a killed session for a moment: it does not look alive."""
    durable = 0
    for number, (end, (_, expected)) in enumerate(ENDS.items()):
        done = child(lambda: relayed(f"a{number % 3}", Ending(end, 4), workers, wait_minutes=1), here)  # noqa: B023
        found = done["code"] if isinstance(done, dict) else done
        assert found == expected or str(found).startswith(str(expected)), end
        assert state(here).step > durable, end
        durable = state(here).step
        if isinstance(done, dict):
            assert durable == done["durable"] == done["began"] + 5, end
            assert done["certified"] == ("unknown" if end == "stop" else "exact"), "sent late by the one before it"
    last = child(lambda: relayed("cem", workers=workers), here)
    assert (last["code"], last["began"], last["durable"], last["certified"]) == (0, durable, TARGET, "exact")
    assert last["digest"] == child(lambda: plain(workers), here)
    again = child(lambda: relayed("ana", workers=workers), here)
    assert (again["code"], again["digest"]) == (0, last["digest"]), "a reached target only loads the state"


def test_a_budget_and_break(here: Path) -> None:
    def leave() -> Any:
        loop = Loop()
        with relay.session("ada/net", target_steps=TARGET, every_steps=5) as run:
            run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)
            for (x,) in run.batches(loop.loader):
                loop.train(x)
                if run.step == 12:
                    break
        assert run.outcome is not None
        return int(run.outcome.exit_code), run.outcome.durable_step

    assert child(leave, here) == [75, 10], "what was committed stays, nothing is added"
    assert child(lambda: relayed("ana", budget_minutes=1e-4), here)["code"] == 75
    assert state(here).step == 10


def test_evaluation_sees_the_committed_state_and_changes_nothing(here: Path) -> None:
    def evaluated() -> Any:
        loop, seen = Loop(), []
        with relay.session("ada/net", target_steps=TARGET, every_steps=5, monitor="score", mode="max") as run:
            run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)

            def score() -> dict[str, float]:
                loop.net.eval()
                torch.rand(3)
                seen.append(run.step)
                return {"score": float(len(seen))}

            run.evaluate(score, every_commits=2)
            for (x,) in run.batches(loop.loader):
                assert loop.net.training
                loop.train(x)
        return seen, loop.digest()

    seen, digest = child(evaluated, here)
    assert digest == child(plain, here) and seen == [10, 20, 30, TARGET]
    assert state(here).metrics["eval/score"] == 4.0


def test_an_evaluation_that_changes_a_part_is_refused_and_a_tracked_generator_restored(here: Path) -> None:
    """A session evaluates at its own commits: the next one, which begins at one, would go on with other bytes."""
    net, dice, mean = nn.BatchNorm1d(2), torch.Generator(), torch.zeros(1)
    acts: dict[str, Any] = {
        "": lambda: torch.rand(3, generator=dice),
        "net": lambda: net(torch.rand(3, 2)).detach(),
        "mean": lambda: mean.add_(1),
    }
    for changed, act in acts.items():
        seen, end = list[Any](), pytest.raises(BadPart, match=changed) if changed else nullcontext()
        with end, relay.session(f"ada/net{changed}", target_steps=3, every_steps=1, monitor="score") as run:
            run.track(net=net, dice=dice, mean=mean)
            run.evaluate(lambda act=act: {"score": float(act().sum())}, every_commits=1)
            for _ in run.steps():
                seen.append(dice.get_state())
        Session._open = None
        assert all(torch.equal(one, seen[0]) for one in seen)


def test_a_guard_learns_of_the_first_commit_also_through_a_listener_of_one_s_own(here: Path) -> None:
    def guarded() -> Any:
        seen: list[int] = []
        listener = Listener(lambda event: seen.append(event.step) if isinstance(event, Committed) else None)
        os.environ[GUARD] = str(here)
        relayed("ana", at(8, stop), listener=listener)
        return seen, first_commit(here) is not None, json.loads((here / COMMIT).read_text())["step"]

    assert child(guarded, here) == [[5, 8], True, 5]
    assert last_session(here) == Note("ada", "net", "ana", str(here))


def test_crashes_before_a_commit_never_halt_a_run(here: Path) -> None:
    for _ in range(3):
        assert child(lambda: relayed("ana", at(3, fail)), here) == "ZeroDivisionError: "
    found = state(here)
    assert found.halted is None and [one.cause for one in found.incidents] == ["crash"] * 3 and not found.failures


def test_a_forked_process_that_ends_takes_no_lease_with_it(here: Path) -> None:
    def fork(run: Any) -> None:
        if (pid := os.fork()) == 0:
            raise SystemExit
        os.waitpid(pid, 0)

    assert child(lambda: relayed("ana", at(3, fork), target_steps=8), here)["code"] == 0
    assert not state(here).incidents


def test_a_check_leaves_the_run_s_own_stores_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("storage.url", "storage.ledger_url", "storage.checkpoint_url"):
        monkeypatch.setenv(variable(key), str(here / key))
    told = {"trace": str(here / "trace"), "store": str(here / "checked"), "steps": 3, "stop": 0}
    monkeypatch.setenv(CHECK, json.dumps(told))
    assert child(lambda: relayed("ana"), here)["code"] == 0
    assert (here / "checked").exists() and not list(here.glob("storage.*"))


def test_a_state_that_is_not_finite_is_not_committed(here: Path) -> None:
    def poisoned() -> Any:
        loop = Loop()
        with relay.session("ada/net", target_steps=TARGET, every_steps=5) as run:
            run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)
            for (x,) in run.batches(loop.loader):
                loop.train(x * float("nan") if run.step == 7 else x)

    assert "model/0.bias is not finite at step 10" in child(poisoned, here)
    assert state(here).step == 5


@pytest.mark.parametrize("name", ["größe", "", 'a"b', "a\\b", "a\nb"])
def test_a_metric_whose_name_no_commit_can_have_is_refused_when_it_is_logged(here: Path, name: str) -> None:
    with pytest.raises(BadMetric), relay.session("ada/net", target_steps=3) as run:
        run.log(**{name: 1.0})
    with pytest.raises(BadCall):
        relay.session("ada/net", target_steps=3, monitor=name)


@pytest.mark.parametrize(
    "config",
    [
        {"a": {1, 2}},
        {"a": float("nan")},
        {"a": "x" * 300_000},
        {"a": [1] * 80_000},
        {"a": json.loads("[" * 40 + "]" * 40)},
        {"a": 10**30},
        {"a": "\ud800"},
        {1: "a", "1": "b"},
    ],
    ids=["type", "nan", "long", "long with spaces", "deep", "digits", "surrogate", "twice"],
)
def test_a_configuration_that_could_not_be_read_again_begins_no_run(here: Path, config: dict[Any, Any]) -> None:
    with pytest.raises(BadCall) as caught:
        relay.session("ada/net", target_steps=3, config=config)
    assert caught.value.argument == "config" and not (here / "relay_store").exists()


@pytest.mark.parametrize("found", [None, 0.5, {"ä": 1.0}, {"score": 10**400}, {"score": "good"}])
def test_what_is_no_metric_is_named(here: Path, found: Any) -> None:
    with pytest.raises(BadMetric):
        evaluating(found)


def test_a_metric_that_is_not_finite_costs_no_commit(here: Path) -> None:
    evaluating({"score": float("nan"), "other": 2.0})
    assert state(here).step == 2 and state(here).metrics["eval/other"] == 2.0 and state(here).head.metric is None


def evaluating(found: Any) -> None:
    with relay.session("ada/net", target_steps=2, monitor="score") as run:
        run.track(table=torch.zeros(1))
        run.evaluate(lambda: found, every_commits=1)
        for _ in run.steps():
            run.log(loss=float("inf"))


def track(net: nn.Module | None = None, **more: Any) -> None:
    """One session that tracks and trains nothing."""
    net = net or Loop().net
    with relay.session("ada/net", **{"target_steps": TARGET, **more}) as run:
        run.track(model=net)


def test_a_checkpoint_of_other_parts_is_refused_by_name(here: Path) -> None:
    child(lambda: relayed("ana", at(4, stop)), here)
    loop = Loop()
    with pytest.raises(DoesNotFit) as gone, relay.session("ada/net", target_steps=TARGET) as run:
        run.track(model=loop.net, optimizer=torch.optim.AdamW(loop.net.parameters()))
    assert gone.value.where == "scheduler" and gone.value.exit_code == 78
    wide = nn.Sequential(nn.Linear(6, 9), nn.Dropout(), nn.Linear(9, 6))
    with pytest.raises(DoesNotFit) as shape, relay.session("ada/net", target_steps=TARGET) as run:
        run.track(model=wide, optimizer=torch.optim.AdamW(wide.parameters()), scheduler=loop.schedule)
    assert shape.value.where.startswith("model/0.")
    loop.opt.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(BadPart, match="group 1"), relay.session("ada/net", target_steps=TARGET) as run:
        run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)
    with pytest.raises(ConfigDiffers) as config:
        track(config={"lr": 3})
    assert [(one.key, one.mine) for one in config.value.changed] == [("config.lr", "3")] or config.value.changed
    with pytest.raises(BadConfig):
        track(target_steps=2)
    again = child(lambda: relayed("ben"), here)
    assert again["digest"] == child(plain, here), "none of these changed the run"


def test_wrong_calls_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    for argument, value in (
        ("mode", "up"),
        ("target_steps", 0),
        ("wait_minutes", float("nan")),
        ("wait_minutes", -1),
        ("config", {"f": print}),
    ):
        with pytest.raises(BadCall) as caught:
            track(loop.net, **{argument: value})
        assert caught.value.argument == argument
    closed = relay.session("ada/net", target_steps=3)
    for call in (lambda: closed.track(model=loop.net), lambda: closed.steps(), closed.stop, closed.commit):
        with pytest.raises(Misused):
            call()
    with pytest.raises(Misused, match="another session"), relay.session("ada/a", target_steps=3):
        relay.session("ada/b", target_steps=3).__enter__()
    with relay.session("ada/net", target_steps=3) as run:
        with pytest.raises(Misused, match="nothing"):
            run.track()
        with pytest.raises(BadPart):
            run.track(model=lambda: 0)
        run.track(model=loop.net)
        with pytest.raises(Misused, match="already"):
            run.track(model=loop.net)
        with pytest.raises(BadLoader):
            run.batches([1, 2])
        steps = run.steps()
        with pytest.raises(Misused, match="started already"):
            run.steps()
        assert list(steps) == [0, 1, 2]
        with pytest.raises(Misused, match="begun"):
            run.evaluate(dict)
    assert run.outcome is not None and run.outcome.exit_code == 0
    monkeypatch.setattr("relay.app.loops.begins_by_itself", lambda store: False)
    with pytest.raises(NotBegun, match="create=True"):
        track(loop.net, store=str(here / "other"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NotConnected):
        track(loop.net)


def test_a_loop_has_no_test_whatever_the_settings_for_other_runs_say(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is noted of one, and no session takes a lease at the target."""
    monkeypatch.setenv(variable("evaluation.test_rows"), "10")
    one = child(lambda: relayed("ana"), here)
    assert (one["code"], one["durable"], state(here).epoch) == (0, TARGET, 1)
    assert not state(here).incidents
    again = child(lambda: relayed("ana"), here)
    assert (again["code"], again["digest"], state(here).epoch) == (0, one["digest"], 1)


def test_only_its_script_can_train_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child(lambda: relayed("ana", at(4, stop)), here)
    from relay.app.cli import app

    for word, code in (("run", 78), ("status", 0)):
        with pytest.raises(SystemExit) as ended:
            app([word, "--run", "net", "project=ada", "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert ended.value.code == code and ("trained by its own script" in answer.get("message", "")) == (code == 78)
