"""A snapshot becomes a folder on this machine, durable and as the training loop promised, and then a manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relay.core.checkpoint.packing import ContractBroken
from relay.core.errors import Exit
from relay.core.workload import Saved
from tests.core.lab import Lab
from tests.core.toy import FILES, ToySnapshot
from tests.storage.diskcalls import disk_calls


def test_a_snapshot_is_durable_on_this_machine_before_it_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = disk_calls(monkeypatch)
    lab.run(lab.session(target_steps=10))
    sealed = ["fsync file", "replace", "fsync"]
    assert " ".join(["mkdir", *["fsync file"] * len(FILES), "fsync", *sealed]) in " ".join(calls)


@pytest.mark.parametrize(
    ("lie", "missing"), [({"step": 11}, ()), ({"files": (*FILES, "missing.json")}, ("missing.json",))]
)
def test_what_is_not_the_snapshot_that_was_asked_for_is_no_checkpoint(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, lie: dict[str, object], missing: tuple[str, ...]
) -> None:
    real = ToySnapshot.save

    def save(snapshot: ToySnapshot, folder: Path) -> Saved:
        return replace(real(snapshot, folder), **lie)

    monkeypatch.setattr(ToySnapshot, "save", save)
    outcome = lab.run(lab.session(target_steps=20))
    assert outcome.exit_code == Exit.BAD_CONFIG and lab.state().step == 0
    broken = outcome.failure
    assert isinstance(broken, ContractBroken) and broken.missing == missing
    assert broken.step == lie.get("step", broken.step)


def test_a_checkpoint_is_as_large_as_its_files_and_its_manifest(lab: Lab) -> None:
    lab.run(lab.session(target_steps=10))
    assert lab.state().head.bytes == sum(stat.size for stat in lab.shared.list("checkpoints/"))
