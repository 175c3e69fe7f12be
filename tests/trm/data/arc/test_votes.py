"""Votes and scores: golden crops, a twin of the reference's evaluator, and independence of order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.trm.data.arc import files, twin
from trm.data.arc import generate
from trm.data.arc.rows import of_build
from trm.data.arc.submission import RawTask, faults, text_of
from trm.data.arc.tasks import Pair, Task, raw_task
from trm.data.arc.variants import Build, build, parsed
from trm.data.arc.votes import Votes, cropped
from trm.presets import KS

SIDE = 30


def canvas(*filled: tuple[slice, slice], end: tuple[int, int] | None = None) -> np.ndarray:
    made = np.zeros((SIDE, SIDE), np.uint8)
    for rows, columns in filled:
        made[rows, columns] = 5
    if end:
        made[end] = 1
    return made


@pytest.mark.parametrize(
    ("tokens", "shape"),
    [
        (canvas(), (0, 0)),
        (canvas((slice(0, 30), slice(0, 30))), (30, 30)),
        (canvas((slice(0, 5), slice(0, 10)), (slice(5, 20), slice(0, 2))), (5, 10)),
        (canvas((slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 3))), (2, 6)),
        (canvas((slice(1, 5), slice(1, 5))), (0, 0)),
        (canvas((slice(0, 6), slice(0, 6)), end=(2, 3)), (6, 3)),
        (canvas((slice(0, 1), slice(0, 4)), (slice(1, 9), slice(0, 30))), (9, 4)),
    ],
)
def test_golden_crops(tokens: np.ndarray, shape: tuple[int, int]) -> None:
    """reference/arc.md 5."""
    heights, widths = cropped(tokens[None])
    assert (int(heights[0]), int(widths[0])) == shape


@pytest.fixture(scope="module")
def made() -> Build:
    return build(files.tasks((1, 3)), generate.TEST, 6, 10)


def predicted(made: Build) -> tuple[np.ndarray, np.ndarray]:
    """Right, wrong, copied and empty answers in turn, as in the reference page's golden evaluation."""
    data = of_build(made, made.test)
    inputs, labels = (tensor.numpy() for tensor in data.tokens(0, data.size))
    rows = np.arange(data.size)
    kind, answers = (rows**2 + rows // 7) % 5, labels.copy()
    answers[kind == 1] = inputs[kind == 1]
    answers[kind == 2, 0] = 2 + (answers[kind == 2, 0].astype(int) - 1) % 10
    answers[kind == 4] = 0
    return answers, ((37 * rows) % 17 - 8) / 4


def raw(made: Build) -> dict[str, RawTask]:
    return {name: raw_task(task) for name, task in made.tested.items()}


def text(votes: Votes, made: Build) -> bytes:
    tasks = raw(made)
    return text_of(votes.submission(tasks), tasks)


def crop(tokens: np.ndarray, side: int) -> np.ndarray:
    """The reference's scan: rows with a column limit that only shrinks; the first maximum stays."""
    grid, best, limit, size = tokens.reshape(side, side), 0, side, (0, 0)
    for rows in range(1, side + 1):
        for columns in range(1, limit + 1):
            if not 2 <= grid[rows - 1, columns - 1] <= 11:
                limit = columns - 1
                break
        if rows * limit > best:
            best, size = rows * limit, (rows, limit)
    return (grid[: size[0], : size[1]] - 2).astype(np.uint8)


def evaluated(made: Build, answers: np.ndarray, halts: np.ndarray) -> tuple[dict[int, float], dict[str, list[dict]]]:
    """The reference's evaluator in plain loops: (pass@K, submission)."""
    data, names = of_build(made, made.test), json.loads(made.names.text)
    inputs = data.tokens(0, data.size)[0].numpy()
    identifiers = data.rows(0, data.size).puzzle_identifiers.tolist()
    grids: dict[str, np.ndarray] = {}
    votes: dict[tuple[str, str], dict[str, list[float]]] = {}
    for question, answer, identifier, halt in zip(inputs, answers, identifiers, halts, strict=True):
        task, variant = parsed(names[identifier])
        undone = [variant.undo(crop(tokens, made.side)) for tokens in (question, answer)]
        hashes = [twin.grid_hash(grid) for grid in undone]
        grids |= dict(zip(hashes, undone, strict=True))
        found = votes.setdefault((task, hashes[0]), {}).setdefault(hashes[1], [0, 0.0])
        found[0] += 1
        found[1] += 1 / (1 + np.exp(-halt))
    passed, submission = dict.fromkeys(KS, 0.0), {}
    for name, task in made.tested.items():
        submission[name] = []
        for pair in task.tests:
            found = votes.get((name, twin.grid_hash(twin.array(pair.input))), {})
            order = sorted(((h, (n, q / n)) for h, (n, q) in found.items()), key=lambda one: one[1], reverse=True)
            for k in KS:
                right = twin.grid_hash(twin.array(pair.output)) in [h for h, _ in order[:k]]
                passed[k] += right / len(task.tests) / len(made.tested)
            best = [grids[h].tolist() for h, _ in order[:2]]
            if best:
                submission[name].append({"attempt_1": best[0], "attempt_2": best[-1]})
    return passed, submission


def test_the_references_rules_give_the_references_numbers(made: Build) -> None:
    answers, halts = predicted(made)
    wanted, submission = evaluated(made, answers, halts)
    votes = Votes(of_build(made, made.test), upstream=True)
    votes.add(0, answers, halts)
    score = votes.score()
    assert score is not None and score.outputs == 30 and len(set(wanted.values())) > 1
    for k in KS:
        assert score.by_task[k] == pytest.approx(wanted[k], abs=1e-12)
    assert votes.reference_submission() == submission
    assert any([] in (one["attempt_1"], one["attempt_2"]) for some in submission.values() for one in some)


def test_our_rules_lose_nothing_and_write_no_empty_grid(made: Build) -> None:
    answers, halts = predicted(made)
    theirs, ours = (Votes(of_build(made, made.test), upstream=rule) for rule in (True, False))
    for votes in (theirs, ours):
        votes.add(0, answers, halts)
    old, new = theirs.score(), ours.score()
    assert old is not None and new is not None
    assert all(new.by_task[k] >= old.by_task[k] for k in KS)
    assert new.right[0] > old.right[0] and new.right[1] >= old.right[1]
    tasks = raw(made)
    assert not faults(json.loads(text(ours, made)), tasks)
    empty = faults(json.loads(json.dumps(theirs.reference_submission())), tasks)
    assert empty and all(fault.attempt or "outputs" in fault.text for fault in empty)


@pytest.mark.parametrize("order", ["reversed", "shuffled", "chunks"])
def test_the_order_of_rows_does_not_matter(made: Build, order: str) -> None:
    """Other batch sizes and orders: the same bytes and the same numbers."""
    answers, halts = predicted(made)
    whole = Votes(of_build(made, made.test))
    whole.add(0, answers, halts)
    other = Votes(of_build(made, made.test))
    rows = list(range(len(answers)))
    if order == "reversed":
        rows.reverse()
    if order == "shuffled":
        np.random.RandomState(0).shuffle(rows)
    step = 17 if order == "chunks" else 1
    for row in rows[::step]:
        other.add(row, answers[row : row + step], halts[row : row + step])
    assert text(other, made) == text(whole, made)
    assert other.metrics() == whole.metrics()


def test_without_labels_nothing_is_scored_but_the_submission_is_whole() -> None:
    hidden = [
        Task(t.name, t.demonstrations, tuple(Pair(p.input, None) for p in t.tests))
        for t in files.tasks()[generate.TEST]
    ]
    made = build({generate.TEST: hidden}, generate.TEST, 2, 10)
    votes = Votes(of_build(made, made.test))
    assert votes.score() is None and votes.metrics() == {"candidates": 0.0, "coverage": 0.0}
    written = json.loads(text(votes, made))
    assert all(
        one["attempt_1"] == [list(row) for row in pair.input]
        for task in hidden
        for one, pair in zip(written[task.name], task.tests, strict=True)
    ), "without a candidate the input is the answer"


def test_one_candidate_an_input_is_noticed(made: Build) -> None:
    """As with foreign identifiers, or no variants: pass@K is the same for all K."""
    data = of_build(made, made.test)
    labels = data.tokens(0, data.size)[1].numpy()
    votes = Votes(data)
    votes.add(0, labels, np.zeros(len(labels)))
    score = votes.score()
    assert score is not None and score.undecided and score.official == 1.0
