"""Mazes: files, labels and answers are judged right, the generator follows the official search, symmetries keep it."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch

from relay.torch.faults import DataError
from tests.facts import raising
from trm import presets, tasks
from trm.config import Data
from trm.data import augment, maze
from trm.data.dataset import Dataset
from trm.evaluate import evaluate
from trm.model import Inner, Sizes

SIDE = 8

Tokens = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def made() -> Tokens:
    return maze.generate(3, 12, side=SIDE, shortest=14)


def grid(*rows: str) -> torch.Tensor:
    return torch.tensor([[maze.CHARACTERS.index(c) + 1 for c in "".join(rows)]], dtype=torch.uint8)


OPEN = grid("S  ", " # ", "  G")
DOWN_FIRST, RIGHT_FIRST = grid("S  ", "o# ", "ooG"), grid("Soo", " #o", "  G")


def searched(inputs: torch.Tensor) -> list[int]:
    """The official label by another program: from S, first parent kept, neighbors Down, Left, Right, Up."""
    side = round(len(inputs) ** 0.5)
    cells = inputs.tolist()
    start, goal = cells.index(maze.START), cells.index(maze.GOAL)
    parents, queue = {start: start}, deque([start])
    while queue:
        row, column = divmod(queue.popleft(), side)
        for r, c in ((row + 1, column), (row, column - 1), (row, column + 1), (row - 1, column)):
            cell = r * side + c
            if 0 <= r < side and 0 <= c < side and cells[cell] != maze.WALL and cell not in parents:
                parents[cell] = row * side + column
                queue.append(cell)
    while (goal := parents[goal]) != start:
        cells[goal] = maze.PATH
    return cells


def test_the_generator_follows_the_official_search(made: Tokens) -> None:
    inputs, labels = made
    assert labels.tolist() == [searched(row) for row in inputs]
    assert bool(maze.whole(inputs).all()) and bool(maze.sound(inputs, labels).all())
    assert int(maze.lengths(labels).min()) >= 14
    assert len({tuple(row) for row in inputs.tolist()}) == 12
    assert maze.official(inputs, labels) == 12
    assert torch.equal(maze.label(OPEN[0]), DOWN_FIRST[0])
    assert maze.official(OPEN, RIGHT_FIRST) == 0


def test_the_same_seed_gives_the_same_mazes_and_a_prefix_stays(made: Tokens) -> None:
    again = maze.generate(3, 5, side=SIDE, shortest=14)
    assert torch.equal(again[0], made[0][:5]) and torch.equal(again[1], made[1][:5])
    assert not torch.equal(maze.generate(4, 1, side=SIDE, shortest=14)[0], made[0][:1])


def test_another_shortest_path_is_optimal_and_everything_else_is_not() -> None:
    wrong = {
        "longer": grid("Soo", "o#o", "ooG"),
        "broken": grid("So ", " #o", "  G"),
        "through a wall": grid("S  ", "oo ", " oG"),
        "wall moved": grid("Soo", "# o", "  G"),
        "goal lost": grid("Soo", " #o", "   "),
        "nothing": OPEN,
    }
    for label in (DOWN_FIRST, RIGHT_FIRST):
        assert maze.optimal(OPEN, label, RIGHT_FIRST).tolist() == [True]
        assert {name: maze.optimal(OPEN, label, answer).item() for name, answer in wrong.items()} == dict.fromkeys(
            wrong, False
        )


@pytest.mark.parametrize("label", [grid("Soo", "o#o", "ooG"), grid("S  ", " # ", "  G"), grid("So ", " #o", "  G")])
def test_a_label_that_is_no_shortest_path_is_not_sound(label: torch.Tensor) -> None:
    assert not maze.sound(OPEN, label).any()


def test_a_detour_is_not_sound_though_it_is_a_path() -> None:
    wide = grid("S   ", " ## ", "    ", "   G")
    detour = grid("So o", " oo ", "    ", "   G")
    assert not maze.sound(wide, detour).any()
    straight, longer = grid("SooG", "    ", "    ", "    "), grid("So G", " ooo", "    ", "    ")
    start = grid("S  G", "    ", "    ", "    ")
    assert maze.sound(start, straight).all() and not maze.sound(start, longer).any()


def test_every_symmetry_keeps_mazes_and_answers_right(made: Tokens) -> None:
    inputs, labels = made
    seen = set()
    for step in range(12):
        moved = augment.dihedral(inputs, labels, 0, step)
        assert bool(maze.sound(*moved).all()) and torch.equal(maze.lengths(moved[1]), maze.lengths(labels))
        seen |= {tuple(row) for row in moved[0][:1].tolist()}
    assert len(seen) > 4


def test_symmetries_are_numbered_as_in_the_reference() -> None:
    """reference/trm.md 10: identity, quarter turns counter-clockwise, left-right, up-down, transpose, anti-diagonal."""
    square = torch.arange(4)[None]
    found = [square.gather(1, row[None]).tolist()[0] for row in augment._square_symmetries(2)]
    assert found == [
        [0, 1, 2, 3],
        [1, 3, 0, 2],
        [3, 2, 1, 0],
        [2, 0, 3, 1],
        [1, 0, 3, 2],
        [2, 3, 0, 1],
        [0, 2, 1, 3],
        [3, 1, 2, 0],
    ]


def test_files_read_back_as_they_were_written(made: Tokens, tmp_path: Path) -> None:
    maze.write_csv(tmp_path / "maze.csv", "made", made)
    inputs, labels = maze.read_csv(tmp_path / "maze.csv")
    assert torch.equal(inputs, made[0]) and torch.equal(labels, made[1])
    ratings = [int(line.rsplit(",", 1)[1]) for line in (tmp_path / "maze.csv").read_text().splitlines()[1:]]
    assert ratings == maze.lengths(labels).tolist()


@pytest.mark.parametrize(
    ("question", "answer", "facts"),
    [
        ("S  # G  ", "Soo#oGoo", (8, 9)),
        ("S  #  ?  ", "S  #  G  ", ("question",)),
        ("S  #     ", "S  #     ", ("S", "G")),
        ("S  #  GG ", "S  #  GG ", ("S", "G")),
        ("S   #   G", "S   #   G", ()),
        ("S   #   G", "Soo #o oG", ()),
        ("S   #   G", "Soo #o  ", ("answer", 8, 9)),
        ("S## ##  G", "S## ##  G", ()),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, question: str, answer: str, facts: tuple[object, ...]) -> None:
    path = tmp_path / "maze.csv"
    path.write_text(f"source,question,answer,rating\nx,S   #   G,S  o# ooG,5\nx,{question},{answer},1\n")
    with raising(DataError, path, "line 3", *facts):
        maze.read_csv(path)


def test_the_first_row_must_be_a_square(tmp_path: Path) -> None:
    path = tmp_path / "maze.csv"
    path.write_text("source,question,answer,rating\nx,S  # G  ,Soo#oGoo,1\n")
    with raising(DataError, path, "line 2", 8):
        maze.read_csv(path)


def test_evaluation_counts_labels_and_shortest_paths_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three answers: the label, another shortest path, none."""
    answers = torch.cat((DOWN_FIRST, RIGHT_FIRST, OPEN))
    data = Dataset(OPEN.repeat(3, 1), DOWN_FIRST.repeat(3, 1), maze.VOCABULARY)
    halting = torch.zeros(3)
    monkeypatch.setattr("trm.evaluate.answers", lambda inner, batch, *_: (answers[: len(batch.inputs)].long(), halting))
    arch = presets.preset("sudoku4").arch
    inner = Inner(arch, Sizes(seq_len=9, vocab_size=6, num_identifiers=1))
    monkeypatch.setattr("trm.evaluate._first_chunk", lambda *_: 3)
    found = evaluate(inner, data, judge=maze.optimal)
    assert (found.n, found.exact_accuracy, found.judged) == (3, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert evaluate(inner, data).judged is None


def test_the_task_reads_files_and_folders_and_describes_them(made: Tokens, tmp_path: Path) -> None:
    maze.write_csv(tmp_path / "maze.csv", "made", made)
    base = presets.preset("maze")
    assert (base.arch.L_cycles, base.arch.mlp_t, base.arch.pos_encodings, base.weight_decay) == (4, False, "rope", 1.0)
    for source in (tmp_path / "maze.csv", tmp_path / "set"):
        config = base.model_copy(update={"data": Data(train=str(source), test=str(source), augment=False)})
        data = tasks.load_data(config, tmp_path)
        assert (data.train.vocab_size, data.train.seq_len, data.train.size) == (6, SIDE * SIDE, 12)
        said = tasks.described("maze", data.train)
        assert said.count("12 ") == 2 and "8x8" in said and "14" in said, "puzzles, their size, paths, labels"
        tasks.write_folder("maze", data, tmp_path / "set")
    with pytest.raises(presets.TaskError, match="7 variants"):
        tasks.write_folder("maze", data, tmp_path / "more", variants=8)
    tasks.write_folder("maze", data, tmp_path / "more", variants=7)
    more = tasks.load_data(
        config.model_copy(update={"data": Data(train=str(tmp_path / "more"), augment=False)}), tmp_path
    )
    assert (more.train.size, more.train.visits) == (96, 12)
    assert len({row.numpy().tobytes() for row in more.train.inputs[:8]}) == 8, "all symmetries of a square"
    hub = base.model_copy(update={"data": Data(train="hub", augment=False)})
    with pytest.raises(presets.TaskError, match="'generated'"):
        tasks.load_data(hub, tmp_path)
