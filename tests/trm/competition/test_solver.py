"""A solve: valid whatever the model answers, the same bytes however it was interrupted, votes that never fall."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from relay.torch.faults import DataError, TaskError
from tests.trm.competition.conftest import SIDE, Solve, made, votes_of
from tests.trm.data.arc import files
from trm.competition import begin, solver
from trm.competition.layout import lay_out
from trm.competition.votestore import NoRoom, OtherVotes
from trm.competition.weights import Trained
from trm.data.arc import generate
from trm.data.arc.submission import check, fallback, read_tasks, text_of


def kaggles_rules(made: Any, tasks: dict[str, Any]) -> None:
    """Independent of our check: the rules as the competition's page states them."""
    assert set(made) == set(tasks)
    for name, outputs in made.items():
        assert len(outputs) == len(tasks[name]["test"])
        for output in outputs:
            assert sorted(output) == ["attempt_1", "attempt_2"]
            for grid in output.values():
                array = np.array(grid)  # raises for ragged rows
                assert array.dtype.kind == "i" and array.ndim == 2 and 1 <= min(array.shape) <= max(array.shape) <= 30
                assert array.min() >= 0 and array.max() <= 9


def valid(out: Path, tasks: Path) -> Any:
    known = read_tasks(tasks)
    assert check(out, known) == []
    made = json.loads(out.read_text())
    kaggles_rules(made, known)
    return made


KINDS = ("padding", "ends", "full", "corner", "nan", "infinite", "input", "tie", "one", "random")


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_any_logits_give_a_valid_file(
    solve: Solve, tasks: Path, tmp_path_factory: pytest.TempPathFactory, kinds: list[str], seed: int
) -> None:
    """Each row gets one of the kinds in turn; its logits are what the network's heads give."""
    out = tmp_path_factory.mktemp("out") / "s.json"

    def adversarial(running: solver.Solver) -> None:
        network = running.answering.networks[0][1]
        random = torch.Generator().manual_seed(seed)
        seen = list[Tensor]()
        embed = network.embed
        network.embed = lambda inputs, rows: (seen.append(inputs), embed(inputs, rows))[1]  # type: ignore[method-assign]

        def heads(z: Tensor) -> tuple[Tensor, Tensor]:
            logits = torch.zeros(len(z), SIDE * SIDE, 12)
            q = torch.randn(len(z), 2, generator=random)
            for row in range(len(z)):
                kind, one = kinds[row % len(kinds)], logits[row]
                match kind:
                    case "ends":
                        one[:, 1] = 1
                    case "full" | "one":
                        one[:, 4] = 1
                    case "corner":
                        one[1:, 5] = 1
                    case "nan":
                        one[:], q[row] = float("nan"), float("nan")
                    case "infinite":
                        one[:, 3], q[row] = float("inf"), -float("inf") if row % 2 else float("inf")
                    case "input":
                        one.scatter_(1, seen[-1][row][:, None].long(), 1.0)
                    case "tie":
                        one[:], q[row] = 1.0, 0.0
                        one[0, row % 10 + 2] = 2
                    case "random":
                        one.copy_(torch.randn(one.shape, generator=random))
            return logits, q

        network.heads = heads  # type: ignore[method-assign]

    outcome = solve(str(out), before=adversarial)
    found = valid(out, tasks)
    assert outcome.complete and outcome.votes.rows == outcome.total == len(votes_of(out))
    pairs = [(outcome.votes.ranked(pair), name, test)
             for name, some in outcome.votes.groups() for test, pair in enumerate(some)]  # fmt: skip
    for ranked, name, test in pairs:
        best = [one.grid.tolist() for one in ranked[:2]]
        attempts = list(found[name][test].values())
        assert attempts[: len(best)] == best
        assert len(best) < 2 or attempts[0] != attempts[1]
    again = solve(str(out.with_name("again.json")), before=adversarial, chunk=7)
    assert again.votes.rows == outcome.total and out.with_name("again.json").read_bytes() == out.read_bytes()


def test_ended_after_any_round_the_same_command_ends_at_the_same_bytes(
    solve: Solve, tasks: Path, tmp_path: Path
) -> None:
    whole = solve("whole.json")
    assert whole.complete and whole.votes.coverage > 0 and whole.votes.rows == 40
    votes, covered, rounds = 0, 0.0, 0
    while not (outcome := solve("parts.json", rounds=1)).complete:
        rounds += 1
        valid(tmp_path / "parts.json", tasks)
        assert outcome.resumed == votes < outcome.votes.rows and outcome.votes.coverage >= covered
        votes, covered = outcome.votes.rows, outcome.votes.coverage
    assert rounds == 5 and len(votes_of(tmp_path / "parts.json")) == 40
    for name in ("json", "json.votes"):
        assert (tmp_path / f"parts.{name}").read_bytes() == (tmp_path / f"whole.{name}").read_bytes()


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_costs_time_and_no_answer(solve: Solve, tasks: Path, tmp_path: Path, jump: float) -> None:
    """A machine that slept, or a clock that was set: the solve ends early at worst, and the same command goes on."""
    solve("whole.json")
    jumped = solve(clock=itertools.chain(range(12), itertools.count(12 + jump)), deadline=1000.0)
    valid(tmp_path / "s.json", tasks)
    assert jumped.complete == (jump < 0) and len(votes_of(tmp_path / "s.json")) == jumped.votes.rows > 0
    assert solve().complete
    assert (tmp_path / "s.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_cut_within_a_block_the_same_command_ends_at_the_same_bytes(solve: Solve, tmp_path: Path) -> None:
    solve("whole.json")
    votes = tmp_path / "s.json.votes"
    for seed in range(8):
        data = (tmp_path / "whole.json.votes").read_bytes()
        votes.write_bytes(data[: len(data) * (seed + 1) // 9])
        assert solve("s.json").complete
        assert votes.read_bytes() == data
        assert (tmp_path / "s.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_several_devices_give_the_same_bytes(solve: Solve, tmp_path: Path) -> None:
    solve("one.json")
    solve("three.json", devices=3)
    for name in ("json", "json.votes"):
        assert (tmp_path / f"one.{name}").read_bytes() == (tmp_path / f"three.{name}").read_bytes()


def test_rows_go_breadth_first(tasks: Path, trained: Trained) -> None:
    layout = lay_out(tasks, read_tasks(tasks), trained, 4)
    split = layout.questions.split
    pairs, identifiers = split.where(layout.order)
    variant = (identifiers - 1) % 4
    assert sorted(layout.order.tolist()) == list(range(40)) and (np.diff(variant) >= 0).all()
    assert all(len(set(pairs[at : at + 10].tolist())) == 10 for at in range(0, 40, 10))
    assert not layout.unknown and (layout.table[1] == trained.table[trained.names.task.tolist().index(
        trained.names.tasks.index(layout.tasks[0].name)) + 1]).all()  # fmt: skip


def test_an_unknown_task_has_the_mean_row_and_is_named(tasks: Path, trained: Trained) -> None:
    raw = {("unseen" if at == 2 else name): task for at, (name, task) in enumerate(read_tasks(tasks).items())}
    layout = lay_out(tasks, raw, trained, 4)
    assert layout.unknown == ("unseen",) and (layout.table[9:13] == trained.mean).all()
    assert [len(one) for one in layout.variants] == [4] * 5


def test_a_grid_beyond_the_canvas_is_refused(tasks: Path, trained: Trained) -> None:
    raw = read_tasks(tasks)
    next(iter(raw.values()))["test"][0]["input"] = [[1] * 11]
    with pytest.raises(DataError, match="11 columns"):
        lay_out(tasks, raw, trained, 1)


@pytest.mark.parametrize("output", [[], "hidden", [[1] * 11], {}, 0])
def test_test_outputs_are_not_read(tasks: Path, trained: Trained, output: object) -> None:
    raw = read_tasks(tasks)
    plain = lay_out(tasks, raw, trained, 1).tasks
    for task in raw.values():
        task["test"][0]["output"] = output
    assert lay_out(tasks, raw, trained, 1).tasks == plain


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_an_output_that_is_no_file_is_refused_and_stays(
    tasks: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """A device was replaced by a file, and a pipe waited for ever."""
    make(tmp_path / "s.json")
    with pytest.raises(TaskError, match="--out"):
        begin.begin(tmp_path / "s.json", tasks)
    assert not (tmp_path / "s.json").is_file() and [path.name for path in tmp_path.glob("s.json*")] == ["s.json"]


def test_a_link_stays_and_its_file_is_replaced(solve: Solve, tasks: Path, tmp_path: Path) -> None:
    """Like submission.json on a mounted drive."""
    (tmp_path / "drive").mkdir()
    (tmp_path / "s.json").symlink_to("drive/s.json")
    assert solve().complete and (tmp_path / "s.json").is_symlink()
    valid(tmp_path / "drive" / "s.json", tasks)
    assert votes_of(tmp_path / "drive" / "s.json")


def test_a_valid_file_is_there_before_the_weights(tasks: Path, tmp_path: Path) -> None:
    begun = begin.begin(tmp_path / "new" / "s.json", tasks)
    begun.store.close()
    known = read_tasks(tasks)
    assert begun.fresh and valid(begun.out, tasks) == {name: fallback(task) for name, task in known.items()}


def test_an_earlier_answer_is_not_replaced_by_the_fallback(solve: Solve, tasks: Path, tmp_path: Path) -> None:
    solve()
    before = (tmp_path / "s.json").read_bytes()
    begun = begin.begin(tmp_path / "s.json", tasks)
    begun.store.close()
    assert not begun.fresh and (tmp_path / "s.json").read_bytes() == before


def test_other_tasks_or_weights_are_refused_and_nothing_changes(solve: Solve, tasks: Path, tmp_path: Path) -> None:
    solve(rounds=2)
    kept = {path: path.read_bytes() for path in tmp_path.glob("s.json*")}
    with pytest.raises(OtherVotes) as caught:
        solve(trained=made(seed=1))
    assert set(caught.value.differing) == {"weights"}
    with pytest.raises(OtherVotes):
        solve(variants=3)
    other = files.kaggle(tmp_path / "other", generate.TEST, files.tasks((1, 1))[generate.TEST][:4])
    with pytest.raises(OtherVotes) as caught:
        solve(tasks=other)
    assert set(caught.value.differing) == {"tasks"}
    assert {path: path.read_bytes() for path in tmp_path.glob("s.json*")} == kept


def test_a_damaged_store_loses_no_answer_on_disk(solve: Solve, tasks: Path, tmp_path: Path) -> None:
    """The submission had counted votes that are lost: it stays until as many are there again."""
    solve()
    out, votes = tmp_path / "s.json", tmp_path / "s.json.votes"
    whole, data = out.read_bytes(), bytearray(votes.read_bytes())
    data[len(data) // 2] ^= 1
    votes.write_bytes(data)
    outcome = solve(rounds=0)
    assert not outcome.complete and outcome.votes.rows < 40 and out.read_bytes() == whole and outcome.notes
    assert solve().complete and out.read_bytes() == whole
    assert (tmp_path / "s.json.votes.damaged").read_bytes() == bytes(data)
    votes.write_bytes(data)
    out.unlink()
    assert solve().complete and out.read_bytes() == whole, "a fallback is replaced at once"
    votes.write_bytes(data)
    out.write_bytes(text_of({name: fallback(task) for name, task in read_tasks(tasks).items()}, read_tasks(tasks)))
    assert solve().complete and out.read_bytes() == whole, "with all votes it is always replaced"


class Full:
    """A file on a disk that has room for 40 more bytes."""

    def __init__(self, file: Any) -> None:
        self._file, self._room = file, 40

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        if not self._room:
            raise OSError(28, "No space left on device")
        written = self._file.write(data[: self._room])
        self._room -= written
        return int(written)


@pytest.mark.parametrize("failing", ["votes", "submission"])
def test_a_full_disk_ends_the_solve_and_leaves_a_valid_file(
    solve: Solve, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(running: solver.Solver) -> None:
        store = running._begun.store
        if failing == "votes":
            store._file = Full(store._file)  # type: ignore[assignment]
            return
        monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    solve(rounds=2)
    kept = {path: path.read_bytes() for path in tmp_path.glob("s.json")}
    size = (tmp_path / "s.json.votes").stat().st_size
    with pytest.raises(NoRoom, match="No space"):
        solve(before=full)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in tmp_path.glob("s.json")} == kept
    if failing == "votes":
        assert (tmp_path / "s.json.votes").stat().st_size == size, "no half block stays"
    assert solve().complete and valid(tmp_path / "s.json", tasks)


def test_too_little_memory_halves_the_chunk(
    solve: Solve, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, answers = list[int](), solver.answers

    def small(network: Any, batch: Any, steps: int) -> Any:
        sizes.append(len(batch.inputs))
        if len(batch.inputs) > 3:
            raise torch.OutOfMemoryError("too large")
        return answers(network, batch, steps=steps)

    monkeypatch.setattr(solver, "answers", small)
    assert solve().complete and max(sizes) == 7
    valid(tmp_path / "s.json", tasks)


def test_a_gpu_that_vanishes_leaves_votes_and_a_valid_file(
    solve: Solve, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, launched = solver.Answering._launch, list[int]()

    def vanishing(self: solver.Answering, rows: Any, device: torch.device, network: Any) -> Any:
        launched.append(len(rows))
        if len(launched) > 2:
            raise RuntimeError("CUDA error: an illegal memory access\nmore")
        return launch(self, rows, torch.device("cpu"), network)

    def on_gpu(running: solver.Solver) -> None:
        running.answering.networks = [(torch.device("cuda", 1), network) for _, network in running.answering.networks]

    monkeypatch.setattr(solver.Answering, "_launch", vanishing)
    with pytest.raises(solver.DeviceGone, match=r"cuda:1.*illegal memory access"):
        solve(before=on_gpu)
    monkeypatch.undo()
    assert len(votes_of(tmp_path / "s.json")) == 14 and valid(tmp_path / "s.json", tasks)
    assert solve().resumed == 14


def test_a_chunk_depends_on_arithmetic_alone() -> None:
    from trm.model import Sizes
    from trm.presets import preset

    published = preset("arc2").arch
    sizes = Sizes(900, 12, 10)
    assert solver.chunk_rows(published, sizes, 16, "cuda") == 65, "3.82 TFLOP a row"
    assert solver.chunk_rows(published, sizes, 16, "cpu") == 1
    assert solver.chunk_rows(preset("arc_small").arch, Sizes(100, 12, 10), 2, "cpu") == 128
