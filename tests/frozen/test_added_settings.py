"""A setting that is newer than a run is left out of the run's pinned configuration while it has its default."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relay.app.models import trm as plugin
from relay.core.runs.opening import ConfigDiffers, config_hash
from relay.core.settings.pinned import Strict
from tests.app.cli import Desk
from tests.frozen.test_compared import STORED
from tests.trm.small import small
from trm import presets
from trm.config import Arch, Data, TrainConfig
from trm.workload import TrmWorkload

OLD = Path(__file__).parent.parent / "data" / "run_format_1"


class NewerArch(Arch):
    """The network of a later version."""

    added = ("dropout",)

    dropout: float = 0.0


class NewerConfig(TrainConfig):
    """The settings of a later version, in two groups."""

    added = ("clip",)

    arch: NewerArch = NewerArch()
    clip: float | None = None


def newer(config: TrainConfig, **changes: object) -> NewerConfig:
    """The same settings in that version."""
    return NewerConfig.model_validate({**config.model_dump(), **changes})


def test_with_its_default_it_is_not_pinned(tmp_path: Path) -> None:
    assert newer(small()).plain() == small().plain()
    assert newer(small()).model_dump() != small().model_dump()
    assert config_hash(TrmWorkload(newer(small()), tmp_path, "cpu").config()) == STORED["pinned"]["hash"]


def test_with_another_value_it_is(tmp_path: Path) -> None:
    arch = {**small().arch.model_dump(), "dropout": 0.1}
    changed = newer(small(), clip=1.0, arch=arch)
    assert changed.plain() == {**small().plain(), "clip": 1.0, "arch": {**small().plain()["arch"], "dropout": 0.1}}
    assert NewerConfig.model_validate(changed.plain()) == changed
    assert config_hash(TrmWorkload(changed, tmp_path, "cpu").config()) != STORED["pinned"]["hash"]


def test_a_fork_that_asks_for_the_default_pins_what_its_sessions_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "TrainConfig", NewerConfig)
    pinned = TrmWorkload(newer(small(), clip=1.0), tmp_path, "cpu").config()
    forked = plugin.Trm().forked(pinned, {"clip": None, "arch.dropout": 0.0}, newer(small()), tmp_path)
    assert forked == TrmWorkload(newer(small()), tmp_path, "cpu").config()


@pytest.mark.parametrize(
    ("settings", "stored"),
    [(TrainConfig, "sudoku4"), (Arch, "sudoku4/arch"), (Data, "sudoku4/data")],
)
def test_whoever_adds_a_setting_lists_it(settings: type[Strict], stored: str) -> None:
    known = STORED["presets"]
    for part in stored.split("/"):
        known = known[part]
    assert settings.model_fields.keys() - known.keys() == set(settings.added)


@pytest.mark.slow
def test_a_run_that_was_begun_before_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that asks for another value is refused, with the setting's name."""
    for name, config in presets.PRESETS.items():
        monkeypatch.setitem(presets.PRESETS, name, newer(config))
    monkeypatch.setattr(plugin, "TrainConfig", NewerConfig)
    monkeypatch.setattr(plugin.Trm, "model", NewerConfig)
    shutil.copytree(OLD / "store", tmp_path / "store")
    expected = json.loads((OLD / "expected.json").read_text())
    desk = Desk(tmp_path / "here", {"RELAY_STORE": (tmp_path / "store").as_uri()}, plugin.Trm())
    refused = desk.train(8, *expected["settings"], "clip=1.0", run="first", code=78).raised(ConfigDiffers)
    assert [(one.key, one.pinned) for one in refused.changed] == [("clip", "null")]
    desk.train(8, *expected["settings"], run="first")
    assert desk.status("first")["step"] == 8
