"""The workload the relay drives, on small 4x4 Sudoku."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relay.core.workload import Progress
from relay.torch.digest import Digest
from relay.torch.faults import TaskError
from relay.torch.memory import CAP
from relay.torch.snapshot import state_digest
from relay.torch.workload import REPORT_EVERY
from tests.rehash import rehash
from tests.trm.small import small
from trm.cost import need
from trm.model import Sizes
from trm.workload import TrmWorkload

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def workload(tmp_path) -> TrmWorkload:
    made = TrmWorkload(small(), tmp_path, "cpu")
    made.start()
    return made


def go(workload: TrmWorkload, until: int) -> list[Progress]:
    seen: list[Progress] = []
    workload.advance(until, lambda: False, seen.append)
    return seen


def test_advance_stops_between_steps_and_reports(workload) -> None:
    seen = go(workload, REPORT_EVERY + 3)
    assert [p.step for p in seen] == [REPORT_EVERY, REPORT_EVERY + 3]
    assert seen[0].metrics["lm_loss"] > 0
    answers = iter([False, False, True])
    workload.advance(100, lambda: next(answers), lambda _: None)
    assert workload.step == REPORT_EVERY + 5
    assert go(workload, 1) == []


@pytest.mark.slow
def test_step_by_step_is_the_same_training_and_waits_for_no_report(
    workload: TrmWorkload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = TrmWorkload(small(), tmp_path, "cpu")
    single.start()
    go(workload, REPORT_EVERY + 3)
    monkeypatch.setattr(TrmWorkload, "_report_metrics", lambda _: pytest.fail("a report waits for the device"))
    while single.step < REPORT_EVERY + 3:
        single.advance(single.step + 1, lambda: False, None)
    assert single.digest().digest == workload.digest().digest


@pytest.mark.slow
def test_a_fresh_process_continues_bit_for_bit(workload, tmp_path) -> None:
    go(workload, 4)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    saved = workload.snapshot().save(folder)
    assert saved.state_hash == workload.digest().digest
    go(workload, 9)
    code = f"""
from pathlib import Path
from trm.config import TrainConfig
from relay.torch.memory import CAP
from trm.cost import need
from trm.model import Sizes
from trm.workload import TrmWorkload
w = TrmWorkload(TrainConfig.model_validate_json({small().model_dump_json()!r}), Path({str(tmp_path)!r}), "cpu")
w.load(Path({str(folder)!r}))
w.advance(9, lambda: False, lambda _: None)
print(w.digest().digest)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == workload.digest().digest


def test_training_on_a_cpu_does_not_wait_for_the_digest_of_a_copy(workload, tmp_path, monkeypatch) -> None:
    """Whoever saves computes it: for the published Sudoku model it takes a slow core longer than the copy itself."""
    asked: list[int] = []

    def counted(tensors, step: int, seed: int) -> Digest:
        asked.append(step)
        return state_digest(tensors, step, seed)

    go(workload, 2)
    then = workload.digest().digest
    monkeypatch.setattr("relay.torch.snapshot.state_digest", counted)
    taken = workload.snapshot()
    assert taken.finite.ok and not asked
    go(workload, 3)
    (tmp_path / "checkpoint").mkdir()
    assert taken.save(tmp_path / "checkpoint").state_hash == then
    assert asked == [2]


def test_a_checkpoint_that_does_not_fit_leaves_the_state(workload, tmp_path) -> None:
    go(workload, 2)
    other = TrmWorkload(small(batch_size=4), tmp_path, "cpu")
    other.start()
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    other.snapshot().save(folder)
    before = workload.digest()
    with pytest.raises(ValueError, match=r"carry\.safetensors"):
        workload.load(folder)
    assert workload.digest() == before


def test_a_loss_that_is_not_finite_is_seen_once(workload) -> None:
    go(workload, 2)
    assert workload.snapshot().finite.ok
    workload.state.params.views["inner.lm_head.weight"].fill_(float("nan"))
    go(workload, 3)
    assert not workload.snapshot().finite.ok


def test_config_names_data_by_content_and_no_length_it_does_not_need(tmp_path) -> None:
    plain = TrmWorkload(small(total_steps=50), tmp_path, "cpu").config()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["data"]["train"].startswith("sha256:")
    assert "total_steps" not in plain
    cosine = TrmWorkload(small(total_steps=50, lr_min_ratio=0.1), tmp_path, "cpu").config()
    assert cosine["total_steps"] == 50


def test_evaluation_leaves_the_state_untouched(workload) -> None:
    go(workload, 3)
    before = workload.digest()
    found = workload.evaluate("valid", 20)
    assert found.keys() == {"exact_accuracy", "cell_accuracy", "n"}
    assert found["n"] == 20
    assert workload.evaluate("test", 5)["n"] == 5
    assert workload.digest() == before


def test_fingerprint_and_path_name_what_decides_bits_and_nobody(workload) -> None:
    found = workload.fingerprint()
    assert {"device", "torch", "python", "instructions", "threads", "blas", "onednn"} <= found.keys()
    assert all(isinstance(value, str) and len(value) < 100 for value in found.values())
    assert found["threads"] == "1"
    assert workload.digest().path.split() == ["eager", "cpu", "float32", "batch=8", "threads=1"]


def test_it_has_the_methods_of_the_relays_protocol() -> None:
    text = (ROOT / "relay" / "core" / "workload.py").read_text()
    methods = {name for name in dir(TrmWorkload) if not name.startswith("_")}
    assert {"start", "load", "advance", "snapshot", "digest", "evaluate", "fingerprint", "config", "step"} <= methods
    assert "import relay" not in inspect.getsource(sys.modules["trm.workload"])
    assert all(f"def {name}(" in text for name in ("start", "load", "advance", "snapshot", "digest", "evaluate"))


def test_threads_are_the_configs(workload) -> None:
    torch.set_num_threads(2)
    go(workload, 1)
    assert torch.get_num_threads() == 1


def test_a_gpu_that_is_named_is_the_threads_current_one(workload, monkeypatch) -> None:
    """Kernels, streams and graphs name none: they would go to the first one, where no tensor is."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    go(workload, 1)
    assert not chosen
    workload.device = torch.device("cuda", 1)
    workload.advance(1, lambda: False, None)
    assert chosen == [torch.device("cuda", 1)]


def test_a_batch_that_does_not_fit_is_split_said_and_part_of_the_path(tmp_path, monkeypatch) -> None:
    """The relay then labels a link between two splits: their paths differ (P9)."""
    needed = need(small(batch_size=64), Sizes(16, 6, 1), "eager", kind="cpu")
    monkeypatch.setenv(CAP, str(1.06 * needed.session(22) / 1e9))
    split = TrmWorkload(small(batch_size=64), tmp_path, "cpu")
    assert "3" in split.remarks[0] and "22" in split.remarks[0]
    split.start()
    assert split.path.split() == ["eager", "cpu", "float32", "batch=64/3", "threads=1"]
    monkeypatch.delenv(CAP)
    whole = TrmWorkload(small(batch_size=64), tmp_path, "cpu")
    assert whole.remarks == ()
    whole.start()
    go(split, 1), go(whole, 1)
    assert split.digest().path != whole.digest().path
    torch.testing.assert_close(split.state.grads.buffer, whole.state.grads.buffer, rtol=1e-4, atol=1e-6)


def test_a_step_that_does_not_fit_is_refused_and_answers_can_still_be_looked_at(tmp_path, monkeypatch) -> None:
    needed = need(small(batch_size=64), Sizes(16, 6, 1), "eager", kind="cpu")
    monkeypatch.setenv(CAP, str(0.99 * needed.session(1) / 1e9))
    large = TrmWorkload(small(batch_size=64), tmp_path, "cpu")
    with pytest.raises(TaskError, match="would fit"):
        large.check_memory()
    large.start()
    assert large.evaluate("valid", 4)["n"] == 4
    with pytest.raises(TaskError):
        go(large, 1)
    assert large.step == 0


def test_what_was_loaded_has_its_files_hash_whatever_seed_the_run_goes_on_with(workload, tmp_path) -> None:
    """A fork with another seed begins with its parent's files, and trains on by its own seed."""
    go(workload, 2)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    saved = workload.snapshot().save(folder)
    other = TrmWorkload(workload._config.model_copy(update={"seed": 7}), tmp_path, "cpu")
    other.load(folder)
    assert other.digest().digest == saved.state_hash == rehash(folder)
    go(other, 3)
    (tmp_path / "next").mkdir()
    assert other.snapshot().save(tmp_path / "next").state_hash == other.digest().digest == rehash(tmp_path / "next")
