"""Each setting is in one class, the page names it, and a run that has begun behaves so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.app.models.registry import plugins
from relay.app.models.trm import Trm
from relay.app.pages import settingsdoc
from relay.app.pages.settingsdoc import CLASSES, Change
from relay.core.runs.opening import Changed, ConfigDiffers, config_hash, difference
from relay.core.settings.config import Settings, flat, leaves
from tests.app.cli import Desk
from tests.trm.data.arc import files
from tests.trm.small import small_arc
from trm.config import TrainConfig
from trm.data.arc import generate
from trm.workload import TrmWorkload

OTHERS: dict[str, str] = {
    "account": "account_2",
    "budget_minutes": "60",
    "session_limit_minutes": "90",
    "checkpoint.every_steps": "2",
    "checkpoint.every_minutes": "5",
    "checkpoint.keep_last": "2",
    "checkpoint.keep_every": "3",
    "evaluation.every_commits": "1",
    "evaluation.rows": "64",
    "evaluation.test_rows": "8",
    "evaluation.test_also": "raw",
    "lease.ttl_s": "60",
    "cache.allow": "false",
    "device": "cpu",
    "processes": "1",
    "ephemeral": "true",
    "spot": "off",
    "checkpoint_path": "published",
    "tensorboard_dir": "boards",
    "tracker_details": "true",
    "until_step": "8",
    "data_dir": "elsewhere",
    "sync_dir": "other_sync",
}
"""Another value of each free setting. The target has tests of its own; `competition` asks for a word of each person,
`trackers` for packages: they have tests of their own too."""
PINNED: dict[str, Any] = {
    "task": "sudoku",
    "arch.hidden_size": 64,
    "arch.num_heads": 1,
    "arch.pos_encodings": "none",
    "arch.forward_dtype": "float32",
    "data.train": "train.csv",
    "data.test": "test.csv",
    "data.canvas": 10,
    "data.identifiers": "sha256:0",
}
"""Another value where adding to it gives none."""


def test_the_page_is_what_the_program_says_now() -> None:
    assert settingsdoc.PAGE.read_text(encoding="utf-8") == settingsdoc.page(plugins()), (
        "run python -m relay.app.pages.settingsdoc"
    )


def test_every_setting_is_in_one_class() -> None:
    assert list(CLASSES) == leaves(Settings)
    free = {key for key, (change, _) in CLASSES.items() if change in (Change.FREE, Change.RECORDED)}
    assert free - {"competition", "trackers", "target_steps"} == OTHERS.keys()


def test_every_free_setting_changes_between_two_sessions(desk: Desk) -> None:
    desk.train(3)
    others = (f"{key}={value}" for key, value in OTHERS.items() if key not in ("account", "until_step"))
    desk.train(9, *others, account=OTHERS["account"])
    assert desk.status()["step"] == 9


def test_a_setting_that_only_leads_to_data_is_not_pinned(tmp_path: Path) -> None:
    config, (training, tested) = small_arc(), generate.subsets().items()
    for subset, tasks in (training, tested):
        files.kaggle(tmp_path / "there", subset, tasks)
    leading = {"source": str(tmp_path / "there"), "subsets": (training[0], tested[0]), "max_tasks": 99}
    other = config.model_copy(update={"data": config.data.model_copy(update=leading)})
    assert TrmWorkload(other, tmp_path, "cpu").config() == TrmWorkload(config, tmp_path, "cpu").config()
    assert {"data.source", "data.num_aug"} < set(Trm().local) < set(leaves(TrainConfig))


@pytest.mark.parametrize("key", [key for key in leaves(TrainConfig) if key not in Trm().local])
def test_every_other_setting_is_pinned(key: str) -> None:
    plain = TrainConfig(task="sudoku4", total_steps=100).plain()
    other = _with(plain, key)
    assert TrainConfig.model_validate(other), "a value that it can have"
    assert [one.key for one in difference(plain, other)] == [key]
    assert config_hash(plain) != config_hash(other)


def test_a_pinned_setting_is_refused_with_the_difference_and_nothing_is_written(desk: Desk) -> None:
    desk.train(3)
    before = desk.status()
    refused = desk.train(6, "batch_size=8", "seed=5", code=78)
    assert refused.raised(ConfigDiffers).changed == (Changed("batch_size", "4", "8"), Changed("seed", "1", "5"))
    assert refused.advised("fork") == [["fork", "--run", "r", "--to", "r_2", "batch_size=8", "seed=5"]]
    assert desk.status() == before


def test_the_place_of_the_store_may_be_written_otherwise_and_another_store_is_not_taken_for_it(desk: Desk) -> None:
    desk.train(3)
    desk.train(4, f"storage.url={(desk.folder / 'relay_store').as_uri()}")
    assert desk.status()["step"] == 4
    desk("run", "--run", "r", "--target-steps", "5", f"storage.checkpoint_url={desk.folder / 'another'}", code=78)


def _with(plain: dict[str, Any], key: str) -> dict[str, Any]:
    values = dict(flat(plain))
    old = values.get(key, dict(flat(TrainConfig(task="sudoku4").model_dump()))[key])
    values[key] = PINNED.get(
        key, not old if isinstance(old, bool) else (old or 0) + 1 if isinstance(old, int) else None
    )
    if values[key] is None:
        values[key] = old / 2
    tree: dict[str, Any] = {}
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[last] = value
    return tree
