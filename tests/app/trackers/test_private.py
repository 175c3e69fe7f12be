"""A tracker gets the run's numbers and names, and nothing about people, machines or keys."""

from __future__ import annotations

import getpass
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from relay.app.trackers.base import NOTHING, SinkOff, read_mark
from relay.app.trackers.choose import TITLES, Places, described
from relay.app.trackers.line import STEP, Line, Point
from relay.app.trackers.wandb import SLOT, Wandb, refuse
from relay.core.session.assembly import END_S
from tests.facts import raising

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the trackers' own packages
KEY = "0123456789abcdef0123456789abcdef01234567"
LINE = Line("toys", "chain", "ab" * 16, 0, {"lr": 0.1, "data": {"train": "(not told)"}}, 1.7e9)
POINTS = [Point(3, step, 1.7e9 + step, {"train/loss": 1 / step}) for step in (10, 20)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for module in ("trackio.utils", "trackio.sqlite_storage"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", tmp_path / "trackio")
    yield tmp_path
    wandb.teardown()


@pytest.mark.parametrize("key", TITLES)
def test_nothing_private_is_in_what_a_tracker_keeps(home: Path, key: str) -> None:
    sink = Places(home / "memory", home / "boards", {"WANDB_MODE": "offline", "WANDB_API_KEY": KEY}).sink(key, None)
    assert sink.begin(LINE) == NOTHING
    sink.write(POINTS, 7)
    assert sink.where()
    sink.close()
    wandb.teardown()
    kept = [path for path in home.rglob("*") if path.is_file() and "logs" not in path.parts]
    whole = b"".join(path.read_bytes() for path in kept) + "".join(path.name for path in kept).encode()
    assert b"train/loss" in whole
    for secret in {platform.node(), str(Path.cwd()), KEY, getpass.getuser() if getpass.getuser() != "root" else KEY}:
        assert len(secret) < 4 or secret.encode() not in whole, secret


@dataclass
class FakeRun:
    """The output of W&B's client."""

    summary: dict[str, Any] = field(default_factory=dict)
    logged: list[tuple[dict[str, float], dict[str, Any]]] = field(default_factory=list)
    defined: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = "https://wandb.example/run"

    def define_metric(self, name: str, **more: Any) -> None:
        self.defined.append((name, more))

    def log(self, row: dict[str, float], **more: Any) -> None:
        self.logged.append((row, more))

    def finish(self) -> None: ...


def test_a_run_on_the_server_is_asked_how_far_it_was_fed_and_rows_have_no_step_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = FakeRun(summary={SLOT: 41}), {}
    monkeypatch.setattr(wandb, "init", lambda **given: asked.update(given) or run)
    sink = Wandb({"WANDB_API_KEY": KEY, "WANDB_ENTITY": "club"}, home / "mark.json", own=99)
    assert sink.begin(LINE) == 41
    sink.write(POINTS, 57)
    assert run.summary[SLOT] == 57 and sink.where() == run.url
    assert ("*", {"step_metric": STEP}) in run.defined
    assert run.logged == [({STEP: point.step, **point.values}, {}) for point in POINTS]
    assert (asked["id"], asked["resume"], asked["group"], asked["job_type"]) == (
        "chain-abababababab", "allow", "chain", "relay")  # fmt: skip
    assert (asked["project"], asked["entity"], asked["config"]) == ("toys", "club", LINE.config)
    settings = asked["settings"]
    assert settings.x_disable_stats and settings.x_disable_meta and settings.x_disable_machine_info
    assert (settings.console, settings.save_code, settings.host) == ("off", False, "relay")
    assert settings.stop_fn is not None and settings.stop_fn() is None, "its stop button is a SIGINT else"
    assert settings.finish_timeout_raises and 0 < settings.finish_timeout < END_S, "what was not sent is told"
    sink.close()
    Wandb({"WANDB_API_KEY": KEY}, home / "mark.json", own=None).begin(LINE)
    assert asked["settings"].finish_timeout == 0, "`track` waits until everything has arrived"


def test_without_a_network_a_fresh_machine_tells_its_own_session_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **given: run)
    offline, rewound = {"WANDB_MODE": "offline"}, Line(**{**vars(LINE), "rewinds": 1, "began": 60})
    assert Wandb(offline, home / "new.json", own=50).begin(LINE) == 50
    assert Wandb(offline, home / "new.json", own=50).begin(rewound) == NOTHING, "this session began that line"
    assert Wandb(offline, home / "new.json", own=70).begin(rewound) == 70
    assert Wandb(offline, home / "new.json", own=None).begin(LINE) == NOTHING, "`track` brings all there is"
    sink = Wandb(offline, home / "mark.json", own=50)
    sink.begin(LINE)
    sink.write(POINTS, 55)
    sink.close()
    assert Wandb(offline, home / "mark.json", own=80).begin(LINE) == 55, "what this machine remembers counts"
    mark = read_mark(home / "mark.json")
    assert mark and (mark.slot, mark.step) == (55, 20)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"WANDB_DISABLED": "false", "WANDB_API_KEY": KEY}, "whatever its value"),
        ({"WANDB_MODE": "disabled", "WANDB_API_KEY": KEY}, "WANDB_MODE=disabled"),
        ({"HOME": "/nowhere"}, "no key"),
        ({"HOME": "/nowhere", "NETRC": "/nowhere/else"}, "no key"),
    ],
)
def test_what_turns_it_off_is_said_and_no_key_is_asked_for(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SinkOff, match=says) as off:
        refuse(environ)
    assert KEY not in str(off.value)


def test_a_key_in_netrc_is_a_key(tmp_path: Path) -> None:
    place = tmp_path / "netrc"
    place.write_text(f"machine api.wandb.ai login user password {KEY}\n")
    place.chmod(0o600)
    refuse({"HOME": "/nowhere", "NETRC": str(place)})
    with pytest.raises(SinkOff):
        refuse({"HOME": "/nowhere", "NETRC": str(place), "WANDB_BASE_URL": "https://wandb.club.example"})


def test_a_version_of_w_and_b_that_cannot_be_told_to_be_silent_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kaggle has an older one: its stop button would interrupt training."""
    known = {name: field for name, field in wandb.Settings.model_fields.items() if name != "stop_fn"}
    monkeypatch.setattr(wandb, "Settings", SimpleNamespace(model_fields=known))
    with raising(SinkOff, "stop_fn", "pip install --upgrade"):
        Wandb({"WANDB_API_KEY": KEY}, home / "mark.json", own=None)


@pytest.mark.parametrize("key", TITLES)
def test_a_folder_that_a_tracker_wrote_into_is_no_package(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / key / "toys").mkdir(parents=True)
    for module in [name for name in sys.modules if name.split(".")[0] == key]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    places = Places(tmp_path, tmp_path, {"WANDB_API_KEY": KEY})
    ((_, _, trouble),) = described([key], places)
    with pytest.raises(SinkOff, match="is not installed"):
        places.sink(key, None)
    assert "pip install" in trouble and f"[{key}]'" in trouble


@pytest.mark.parametrize("key", TITLES)
def test_a_package_that_is_missing_is_named(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == key]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, key, None)
    with raising(SinkOff, f"pip install 'trm-relay[{key}]'`."):
        Places(tmp_path, tmp_path, {"WANDB_API_KEY": KEY}).sink(key, None)


def test_doctor_can_say_where_each_writes_without_starting_any(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "boards", {"WANDB_MODE": "offline", "TRACKIO_DIR": "/some/where"})
    told = {title: (where, trouble) for title, where, trouble in described(tuple(TITLES), places)}
    assert told["TensorBoard"][0].endswith(f" {tmp_path / 'boards'}") and told["trackio"][0].endswith(" /some/where")
    assert [told[title][1] for title in ("TensorBoard", "trackio", "W&B")] == ["", "", ""]
    ((_, _, trouble),) = described(("wandb",), Places(tmp_path, tmp_path, {"HOME": "/x"}))
    assert "W&B" in trouble and "key" in trouble


def test_tensorboard_of_another_run_of_that_name_is_not_mixed_in(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "boards", {})
    sink = places.sink("tensorboard", None)
    sink.begin(LINE)
    sink.write(POINTS, 7)
    sink.close()
    assert sink.begin(LINE) == 7
    sink.close()
    with raising(SinkOff, "run"):
        places.sink("tensorboard", None).begin(Line(**{**vars(LINE), "run_id": "cd" * 16}))


@pytest.mark.parametrize("key", ["tensorboard", "wandb"])
def test_two_processes_of_a_machine_never_tell_one_tracker_at_once(
    key: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trackio needs no such care: it keeps each row once by its id."""
    monkeypatch.setattr(wandb, "init", lambda **_: FakeRun())
    places = Places(home / "memory", home / "boards", {"WANDB_API_KEY": KEY})
    one, other = places.sink(key, 5), places.sink(key, None)
    one.begin(LINE)
    with raising(SinkOff, "another process"):
        other.begin(LINE)
    one.begin(Line(**{**vars(LINE), "rewinds": 1}))
    one.close()
    assert other.begin(LINE) == NOTHING
    other.close()
