"""A run brings its own settings: only given ones are compared, and what the store says of data is only advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.app.commands import joining
from relay.app.commands.sessions import running
from relay.app.models.trm import Trm
from relay.core.ledger.ledger import RunLedger
from relay.core.names import Names
from relay.core.runs.opening import SHOWN, ConfigDiffers, check_given
from relay.core.runs.salvage import SettingsDamaged
from relay.core.runs.sources import LIMIT, Source, Sources, described, read_sources, write_sources
from relay.core.settings.config import flat
from storage.memory import MemoryStore
from tests.app.cli import PROJECT, Desk
from trm.config import Data, TrainConfig
from trm.presets import preset

pytestmark = pytest.mark.slow

OURS = ("batch_size=8", "seed=5")


@pytest.fixture
def begun(desk: Desk) -> Desk:
    desk.train(3, *OURS)
    return desk


def pinned(desk: Desk) -> dict[str, Any]:
    return {row["key"]: row["value"] for row in desk("config", "show", "--run", "r", "--json").json["settings"]}


def test_later_commands_need_none_of_them(begun: Desk) -> None:
    begun.train(6)
    assert begun.status()["step"] == 6
    assert (pinned(begun)["batch_size"], pinned(begun)["seed"]) == (8, 5)
    assert pinned(begun)["task"] == "sudoku4"
    assert begun("prepare", "--run", "r").code == 0
    assert "(given: none)" in begun("doctor", "--run", "r").out


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("batch_size: 4\n", 0),  # the default
        ("task: sudoku4\nseed: 1\n", 0),
        ("batch_size: 8\n", 0),  # the run's own
        ("batch_size: 6\n", 78),
        ("task: sudoku\n", 78),
    ],
)
def test_a_line_of_the_file_counts_if_it_is_not_the_default(begun: Desk, text: str, code: int) -> None:
    (begun.folder / "config_multi_account.yaml").write_text(text)
    begun.train(6, code=code)
    assert begun("doctor", "--run", "r", code=None).code == code, "doctor compares in the same way"


def test_a_default_that_is_typed_counts(begun: Desk) -> None:
    assert "batch_size: the run has 8, you asked for 4" in begun.train(6, "batch_size=4", code=78).err
    assert "task" in begun("run", "--run", "r", "--new-target", "6", code=78, RELAY_TASK="sudoku").err
    begun.train(6, *OURS)


def test_three_differences_are_shown_and_the_others_counted() -> None:
    differing: dict[str, tuple[Any, Any]] = {f"key_{n}": (n, n + 1) for n in range(5)}
    with pytest.raises(ConfigDiffers) as error:
        check_given("r", differing)
    assert (str(error.value).count("you asked for"), "and 2 more" in str(error.value)) == (SHOWN, True)
    assert len(error.value.changed) == len(error.value.overrides) == 5
    check_given("r", {})


def test_settings_that_only_fit_the_run_are_read_on_it(desk: Desk) -> None:
    """On the preset, five heads do not divide the width; on the run they do."""
    resolved = _resolved(desk, "arch.num_heads=5")
    base = dict(flat(preset("sudoku4").model_dump(mode="json"))) | {"arch.hidden_size": 320, "arch.mlp_t": False}
    joined = resolved.on(base, "run r")
    assert joined.workload.arch.num_heads == 5
    assert joined.training.differing() == {"arch.num_heads": (4, 5)}


def _resolved(desk: Desk, *words: str) -> Any:
    from relay.app.commands.common import App

    return App(plugin=Trm(), environ={}, cwd=desk.folder, root=desk.folder).settle(words)


def test_a_run_that_another_session_begins_meanwhile_is_joined(begun: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = running.found, list[bool]()

    def late(opening: Any) -> Any:
        asked.append(True)
        return None if len(asked) == 1 else real(opening)

    monkeypatch.setattr(running, "found", late)
    begun("run", "--run", "r", "--new-target", "6")
    assert begun.status()["step"] == 6


def test_a_newer_versions_setting_is_named(begun: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    read = joining.pinned_config
    monkeypatch.setattr(joining, "pinned_config", lambda ledger: read(ledger) | {"dropout": 0.1})
    assert "dropout" in begun.train(6, code=78).err


def test_where_the_runs_settings_are_damaged_the_given_ones_are_compared_by_their_hash(
    begun: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(ledger: RunLedger) -> dict[str, object]:
        raise SettingsDamaged(ledger.store.address, ledger.chain.log.name(0))

    monkeypatch.setattr(joining, "pinned_config", damaged)
    assert "damaged" in begun.train(6, code=65).err
    begun.train(6, *OURS)
    assert begun("doctor", "--run", "r").code == 0
    assert begun("report", "--run", "r").code == 0


NAMES = Names(PROJECT, "r")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b'{"format":1,"sources":{"data.train":{"kind":"shell"}}}',
        b'{"format":2,"sources":{}}',
        b'{"format":1,"sources":{"../x":{"kind":"hub"}}}',
        b'{"format":1,"sources":{"data.train":{"kind":"file","path":"/etc/passwd"}}}',
        b" " * (LIMIT + 1),
    ],
)
def test_a_note_on_data_that_is_not_one_counts_as_none(data: bytes) -> None:
    store = MemoryStore()
    store.put(NAMES.data, data)
    assert read_sources(store, NAMES) is None


def test_a_note_on_data_is_read_as_written_and_holds_no_path() -> None:
    store, written = MemoryStore(), {"data.train": Source(kind="file", name="x\x1b[31m.csv", rows=3, sha256="a" * 64)}
    write_sources(store, NAMES, written)
    assert read_sources(store, NAMES) == written
    assert "\x1b" not in described(written["data.train"])
    assert set(Source.model_fields) == {"kind", "name", "rows", "sha256"} and Sources.model_fields["sources"]


def test_no_path_of_the_store_is_ever_read() -> None:
    """A genesis is a stranger's: its data is a digest, or generated."""
    plain = TrainConfig(task="sudoku4", data=Data(train="/etc/passwd", test="/etc/shadow")).plain()
    assert not {"data.train", "data.test"} & Trm().base(plain, {}).keys()
    assert Trm().base(plain, {"data.train": "hub"})["data.train"] == "hub"


def test_a_noted_path_serves_its_own_run_while_it_exists(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.touch()
    note = {"format": 1, "run_id": "a" * 32, "paths": {"data.train": str(file), "data.test": "/nowhere", "n": 3}}
    (tmp_path / joining.HERE).write_text(json.dumps(note))
    assert joining._recall(tmp_path, "a" * 32) == {"data.train": str(file)}
    assert joining._recall(tmp_path, "b" * 32) == {}
    (tmp_path / joining.HERE).write_text("[1]")
    assert joining._recall(tmp_path, "a" * 32) == {}
