"""`track` and `run --track` as people type them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from relay.app.machine.secretchain import Chain
from relay.core.errors import Exit
from tests.app.cli import Desk
from tests.app.trackers.readback import of_tensorboard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the trackers' own packages


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk")
    assert desk("run", "--run", "r", "--target-steps", "30", "--checkpoint-every", "10").code == Exit.OK
    return desk


def steps(folder: Path) -> list[int]:
    return [step for step, _ in of_tensorboard(folder)]


def test_a_tracker_is_built_without_training_and_again_nothing_is_new(desk: Desk) -> None:
    first = desk("track", "--run", "r", "--to", "tensorboard", "--json").json
    again = desk("track", "--run", "r", "--to", "tensorboard", "--json").json
    assert first["schema"] == "relay.track/1" and (first["run"], first["step"]) == ("r", 30)
    assert first["trackers"][0]["points"] > 3 and again["trackers"][0]["points"] == 0
    (folder,) = (desk.folder / "tensorboard").glob("*/r")
    assert steps(folder)[-1] == 30
    assert "step 30" in desk("track", "--run", "r", "--to", "tensorboard", "--dir", "other").out
    assert list((desk.folder / "other").glob("*/r/events.out.tfevents.*"))


@pytest.mark.parametrize("how", ["option", "environment", "setting"])
def test_a_session_feeds_what_was_asked_for_however_that_was_said(desk: Desk, how: str) -> None:
    more = {"option": ("--track", "tensorboard"), "setting": ("trackers=[tensorboard]",)}.get(how, ())
    environ = {"RELAY_TRACKERS": "tensorboard"} if how == "environment" else {}
    done = desk("run", "--run", "r", "--target-steps", "50", *more, **environ)
    assert done.code == Exit.OK and "TensorBoard" in done.err
    (folder,) = (desk.folder / "tensorboard").glob("*/r")
    assert steps(folder)[-1] == 50


def test_what_is_typed_wrongly_is_said(desk: Desk) -> None:
    desk("track", "--run", "r", code=Exit.USAGE)
    assert "trackers" in desk("track", "--run", "r", "--to", "tensorbord", code=Exit.BAD_CONFIG).err
    off = desk("track", "--run", "r", "--to", "wandb", code=Exit.BAD_CONFIG, WANDB_DISABLED="false")
    assert "WANDB_DISABLED" in off.err
    desk("track", "--run", "nobody", "--to", "tensorboard", code=Exit.BAD_CONFIG)


def test_what_a_library_raises_is_one_paragraph_without_secrets(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("cannot\nconnect with hf_abcdefghijklmnop")

    monkeypatch.setattr("relay.app.trackers.tensorboard.TensorBoard.write", fail)
    found = desk("track", "--run", "r", "--to", "tensorboard", code=Exit.STORAGE_UNREACHABLE)
    assert found.advised("track") == [["track", "--run", "r", "--to", "tensorboard"]]
    assert "hf_abc" not in found.err and "Traceback" not in found.err


def test_follow_goes_on_until_it_is_interrupted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def wait(_: object) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        desk("run", "--run", "r", "--target-steps", str(30 + 10 * len(rounds)))

    monkeypatch.setattr("relay.app.commands.looking.trackers.Feeding.wait", wait)
    found = desk("track", "--run", "r", "--to", "tensorboard", "--follow", "--json")
    assert found.code == Exit.OK and found.json["step"] == 50
    (folder,) = (desk.folder / "tensorboard").glob("*/r")
    assert steps(folder)[-1] == 50


def test_doctor_says_which_are_on_and_where_they_write(desk: Desk) -> None:
    found = desk("doctor", "--run", "r", "trackers=[tensorboard,wandb]", WANDB_DISABLED="false")
    rows = json.loads(desk("doctor", "--run", "r", "trackers=[tensorboard]", "--json").out)["findings"]
    (row,) = [row for row in rows if row["subject"] == "trackers"]
    assert row["ok"] and str(desk.folder / "tensorboard") in row["text"]
    assert "WANDB_DISABLED" in found.out and found.code == Exit.OK


def test_what_hangs_in_a_tracker_s_library_does_not_keep_the_process(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_end: list[Callable[[], None]] = []
    monkeypatch.setattr(
        "relay.app.commands.sessions.running.atexit.register", lambda do, *words: at_the_end.append(partial(do, *words))
    )
    monkeypatch.setattr("relay.core.session.assembly.END_S", 0.05)
    forever = threading.Event()
    monkeypatch.setattr("relay.app.trackers.tensorboard.TensorBoard.begin", lambda *_: forever.wait())
    done = desk("run", "--run", "r", "--target-steps", "40", "--track", "tensorboard")
    assert "TensorBoard" in done.err and len(at_the_end) == 1
    ended: list[int] = []
    monkeypatch.setattr("relay.core.clock.os._exit", ended.append)
    at_the_end[0]()
    assert ended == [int(Exit.OK)]


def test_a_notebook_s_secret_is_asked_for_w_and_b_s_key_only_where_w_and_b_is_wanted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(Chain, "credentials", lambda _, environ, urls, extras: asked.append(tuple(extras)) or {})
    desk("status", "--run", "r")
    desk("status", "--run", "r", "trackers=[wandb]")
    assert [("WANDB_API_KEY" in names) for names in asked] == [False, True]


def test_trackio_s_command_finds_the_folder_that_was_given(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.app.trackers.trackio.require", lambda package: None)
    storage = SimpleNamespace(get_last_step=lambda *_, **__: None, bulk_log=lambda *_, **__: None)
    module = SimpleNamespace(SQLiteStorage=storage)
    monkeypatch.setitem(sys.modules, "trackio", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "trackio.sqlite_storage", module)  # type: ignore[arg-type]
    folder = tmp_path / "my files"
    told = desk("track", "--run", "r", "--to", "trackio", "--dir", str(folder)).out
    assert f"TRACKIO_DIR='{folder}' trackio show --project " in " ".join(told.split())
