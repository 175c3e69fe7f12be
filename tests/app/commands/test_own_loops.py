"""Every command knows a run of a user's own loop: it shows its own metrics, or names the script's way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import relay
from relay.app.loops import BadCall
from relay.app.models.trm import Trm
from relay.core.runs.opening import NewerSettings
from relay.core.runs.ownloop import LONGEST_NAME, OwnLoop
from tests.app.cli import Desk

pytestmark = pytest.mark.slow


def session(account: str, until: int, **more: Any) -> None:
    """Its loss is called nats, and perplexity chooses the best checkpoint."""
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    known = {"run": "ada/net", "target_steps": 12, "every_steps": 2, "config": {"lr": 0.1}, "monitor": "perplexity"}
    with relay.session(account=account, **known | more) as run:
        run.track(model=net, optimizer=optimizer)
        run.evaluate(lambda: {"perplexity": 9.0 - run.step / 4}, every_commits=1)
        for step in run.steps():
            loss = net(torch.ones(1, 2)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(nats=loss, lr=0.1)
            if step + 1 == until:
                run.stop()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """After two sessions, as someone sees it whose program trains another model by default."""
    here, before = tmp_path_factory.mktemp("loops"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAY_EPHEMERAL", "1")
        patch.setenv("HOME", str(here))
        patch.chdir(here)
        session("ana", 6)
        session("ben", 10)
        store = (here / "relay_store").as_uri()
        yield Desk(here, {"RELAY_STORE": store, "RUN_NAME": "net", "RELAY_PROJECT": "ada"}, Trm())  # type: ignore[arg-type]
    os.chdir(before)


def test_the_run_is_shown_with_its_own_metrics(desk: Desk) -> None:
    report = desk("report", "--json").json
    assert (report["step"], report["target_steps"]) == (10, 12)
    assert [(one["id"], one["steps"]) for one in report["accounts"]] == [("ana", 6), ("ben", 4)]
    assert "perplexity" in desk("report").out
    elsewhere = {"RUN_NAME": "other", "RELAY_PROJECT": "others"}
    assert desk("status", "--run", "ada/net", "--json", **elsewhere).json["step"] == 10, "as the script calls it"
    desk("status", "--run", "/net", code=78)
    status = desk("status", "--json").json
    assert [one["certified"] for one in status["links"]] == ["unknown", "exact"]
    assert status["evaluation"]["best"] == {"step": 10, "score": -6.5, "rows": None}
    assert status["session"]["path"].startswith("loop cpu")
    assert "exec -- python train.py" in desk("next", "--json").json["command"]
    assert desk("plan", "--json").json["target_steps"] == 12
    page = Path(desk("dashboard", "--export", "page.html").out.split(": ")[0]).read_text()
    assert "nats" in page and "perplexity" in page and "q_halt" not in page
    drawn = desk("plot", "--json").json["files"]
    assert all(Path(one["path"]).stat().st_size for one in drawn) and len(drawn) == 2
    assert "step 10 (" in desk("track", "--to", "tensorboard").out


def test_its_files_are_verified_exported_forked_and_archived(desk: Desk) -> None:
    assert desk("verify", "--json").json["ok"]
    assert desk("doctor", "--json").json["ok"]
    assert [one["id"] for one in desk("accounts", "list", "--json").json["accounts"]] == ["ana", "ben"]
    files = [Path(one).name for one in desk("export", "--json").json["files"]]
    assert files == ["model.safetensors", "optimizer.safetensors"]
    assert desk("fork", "--to", "two", "--from-step", "8", "--json").json["step"] == 8
    assert desk("status", "--run", "two", "--json").json["target_steps"] == 0, "its script will name one"
    torch.manual_seed(1)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    pinned = {"config": {"lr": 0.1}, "monitor": "perplexity"}
    with relay.session("ada/two", account="ana", target_steps=8, **pinned) as run:  # type: ignore[arg-type]
        run.track(model=net, optimizer=optimizer)
        assert run.step == 8
    assert desk("runs", "archive", "two", "--json").code == 0
    assert desk("runs", "unarchive", "two", "--json").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "lr=3"),
        ("prepare",),
        ("evaluate",),
        ("examples",),
        ("push",),
        ("fork", "--to", "three", "lr=3"),
        ("export", "--format", "hub"),
        ("export", "--format", "reference"),
    ],
)
def test_only_its_script_can_do_the_rest(desk: Desk, words: tuple[str, ...]) -> None:
    done = desk(*words, code=78)
    assert done.raised(OwnLoop) and done.advised("exec")


def test_a_run_of_a_newer_version_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.app.loops.FORM", 2)
    session("ana", 2, run="ada/newer", target_steps=2)
    monkeypatch.undo()
    with pytest.raises(NewerSettings):
        session("ana", 4, run="ada/newer")
    desk("run", "--run", "newer", code=78).raised(NewerSettings)
    assert desk("status", "--run", "newer", "--json").json["step"] == 2


def test_a_long_name_of_a_metric_cannot_choose_the_best(desk: Desk) -> None:
    session_of = {"target_steps": 1, "monitor": "m" * (LONGEST_NAME + 1)}
    with pytest.raises(BadCall) as caught:
        relay.session("ada/net", **session_of)  # type: ignore[arg-type]
    assert caught.value.argument == "monitor"
    relay.session("ada/net", **session_of | {"monitor": "m" * LONGEST_NAME})  # type: ignore[arg-type]
