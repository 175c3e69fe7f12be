"""What is shown of a puzzle is what the model computes: the last answer is the one that counts, each step its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trm.config import TrainConfig
from trm.data.dataset import Dataset
from trm.evaluate import solve
from trm.examples import examples, trace
from trm.presets import preset
from trm.workload import TrmWorkload

MAZES = Path(__file__).parents[1] / "data" / "maze" / "good.csv"


def small(task: str, **changes) -> TrainConfig:
    config = preset(task)
    sizes = {"hidden_size": 16, "num_heads": 2, "expansion": 1.0, "L_layers": 1, "puzzle_emb_ndim": 16}
    arch = config.arch.model_copy(update=sizes | {"halt_max_steps": 4, "forward_dtype": "float32"})
    data = config.data.model_copy(update={"train_rows": 200} | changes.pop("data", {}))
    return config.model_copy(update={"batch_size": 16, "threads": 1, "arch": arch, "data": data} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> TrmWorkload:
    """A 4x4 model after a little training: many cells right, few puzzles."""
    made = TrmWorkload(small("sudoku4", lr=1e-2, lr_warmup_steps=5), tmp_path_factory.mktemp("data"), "cpu")
    made.start()
    made.advance(60, lambda: False, None)
    return made


@pytest.mark.slow
def test_the_last_answers_are_what_evaluate_counts(trained) -> None:
    before = trained.digest()
    for split in ("valid", "test"):
        counted = trained.evaluate(split, 40)
        found = trained.examples(split, range(1, 41))
        assert found.weights == "averaged"
        last = [puzzle.attempts[-1] for puzzle in found.puzzles]
        assert sum(not one.wrong for one in last) == round(counted["exact_accuracy"] * counted["n"])
        cells = sum(1 - one.wrong / 16 for one in last) / 40
        assert cells == pytest.approx(counted["cell_accuracy"], abs=1e-9) and 0.2 < cells < 1
    assert trained.digest() == before


def test_raw_weights_answer_otherwise_and_are_called_so(trained) -> None:
    raw, averaged = (trained.examples("test", range(1, 41), raw) for raw in (True, False))
    assert (raw.weights, averaged.weights) == ("raw", "averaged")
    inner, data = trained.state.model.inner, trained.data.test
    wanted = solve(inner, data.rows(0, 40))
    text = [puzzle.attempts[-1].answer for puzzle in raw.puzzles]
    assert text == ["".join("?.1234"[token] for token in row) for row in wanted.tolist()]
    assert text != [puzzle.attempts[-1].answer for puzzle in averaged.puzzles]


def test_a_run_without_averages_shows_raw_weights(tmp_path) -> None:
    made = TrmWorkload(small("sudoku4", ema=False), tmp_path, "cpu")
    made.start()
    assert made.examples("test", [1]).weights == "raw"


def test_each_step_is_the_halting_models_own(make, batch_at) -> None:
    model, batch = make(20).model, batch_at(5)
    found = trace(model.inner, batch)
    carry = model.refill(model.initial_carry(6), batch)
    with torch.no_grad():
        for step in range(4):
            carry, output = model(carry, model.inner.puzzle_rows(batch.puzzle_identifiers), None)
            assert torch.equal(found.answers[step], output.logits.argmax(-1))
            assert torch.equal(found.q_halt[step], output.q[:, 0])
    assert found.answers.shape == (4, 6, 7) and found.answers.dtype == torch.int64
    assert found.q_halt.shape == (4, 6) and found.q_halt.dtype == torch.float32


def test_it_would_halt_where_training_does(make, batch_at) -> None:
    """The step after which the halting rule, with exploration left out, ends each sequence."""
    state, batch = make(60), batch_at(5, 40)
    inner = state.model.inner
    with torch.no_grad():
        inner.q_head.bias[0] -= trace(inner, batch).q_halt.median()
    data = Dataset(batch.inputs, batch.labels.clamp(min=0), vocab_size=5)
    found = examples(inner, data, range(1, 41), ".123", 0)
    traced, nobody = trace(inner, data.rows(0, 40)), torch.zeros(40, dtype=torch.int32)
    for row, puzzle in enumerate(found):
        ends = [
            bool(state.model.decide(torch.full((40,), step + 1), torch.stack((q, q), -1), nobody)[row])
            for step, q in enumerate(traced.q_halt)
        ]
        assert puzzle.halts_at == ends.index(True) + 1
    assert len({puzzle.halts_at for puzzle in found}) > 1


def test_rows_are_those_asked_for_in_that_order_and_unasked_cells_are_none_of_the_wrong(make, batch_at) -> None:
    batch = batch_at(0, 50)
    data = Dataset(batch.inputs, batch.labels.clamp(min=0), vocab_size=5)
    inner = make(20).model.inner
    whole = examples(inner, data, range(1, 51), "abcd", 0)
    some = examples(inner, data, [41, 3], "abcd", 0)
    assert [one.row for one in some] == [41, 3] and some == [whole[40], whole[2]]
    assert all(one.label.endswith("?") for one in whole), "the last cell is not asked"
    for one in whole:
        for attempt in one.attempts:
            assert attempt.wrong == sum(a != b for a, b in zip(attempt.answer, one.label, strict=True) if b != "?")
    for row in (0, 51):
        with pytest.raises(ValueError, match=r"1 .*50"):
            examples(inner, data, [row], "abcd", 0)


def test_mazes_are_told_as_their_file_writes_them_with_the_judges_word(tmp_path) -> None:
    config = small("maze", data={"train": str(MAZES), "test": str(MAZES), "train_rows": 1000})
    made = TrmWorkload(config, tmp_path, "cpu")
    made.start()
    found = made.examples("test", [2, 1])
    lines = MAZES.read_text().splitlines()[1:3]
    for puzzle, line in zip(found.puzzles, reversed(lines), strict=True):
        _, question, label, _ = line.split(",")
        assert (puzzle.question, puzzle.label) == (question, label) and puzzle.side**2 == len(question)
        assert len(puzzle.attempts) == 4 and puzzle.box == 0
        assert all(one.accepted is False and len(one.answer) == len(question) for one in puzzle.attempts)
    counted = made.evaluate("test", 2)
    assert counted["optimal_path"] == sum(bool(one.attempts[-1].accepted) for one in found.puzzles) / 2
