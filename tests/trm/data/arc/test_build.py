"""Builds: the reference's bytes, variants that invert, a folder that is whole and says when it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.torch.faults import DataError, TaskError
from tests.facts import raising
from tests.trm.data.arc import files, twin
from trm.data.arc import folder, generate
from trm.data.arc.rows import of_build
from trm.data.arc.tasks import Pair, Task
from trm.data.arc.variants import Build, Variant, build, parsed, turned

PLAIN = Task("plain", (Pair(((1, 1),), ((1, 1),)), Pair(((1,),), ((1,),))), (Pair(((1, 1, 1),), ((1, 1, 1),)),))
"""One color and much symmetry: few variants."""


def some(num_aug: int = 3, side: int = 10, each: tuple[int, int] = (2, 2)) -> tuple[dict[str, list[Task]], Build]:
    subsets = files.tasks(each)
    mixed = [replace(task, order=("test", "train")) for task in subsets[generate.TRAINING]]
    subsets = {generate.TRAINING: [*mixed, PLAIN], generate.TEST: subsets[generate.TEST]}
    return subsets, build(subsets, generate.TEST, num_aug, side)


@pytest.mark.slow
@pytest.mark.parametrize(("num_aug", "side"), [(0, 10), (40, 10), (2, 30)])
def test_a_build_has_the_bytes_of_the_reference(tmp_path: Path, num_aug: int, side: int) -> None:
    """Every array, every name, and their order."""
    subsets, made = some(num_aug, side)
    wanted = twin.build(subsets, generate.TEST, num_aug, side)
    folder.write(made, tmp_path / "set")
    assert json.loads((tmp_path / "set" / "identifiers.json").read_text()) == wanted["names"]
    for part in ("train", "test"):
        arrays: Any = wanted[part]
        for name, array in arrays.items():
            ours = np.load(tmp_path / "set" / part / f"all__{name}.npy")
            assert ours.dtype == array.dtype and np.array_equal(ours, array), (part, name)
        about = json.loads((tmp_path / "set" / part / "dataset.json").read_text())
        assert about["total_puzzles"] == len(arrays["puzzle_identifiers"])
        assert about["total_groups"] == len(arrays["group_indices"]) - 1
        assert about["mean_puzzle_examples"] == len(arrays["inputs"]) / len(arrays["puzzle_identifiers"])
        assert (about["num_puzzle_identifiers"], about["vocab_size"]) == (len(wanted["names"]), 12)
    puzzles = json.loads((tmp_path / "set" / "test_puzzles.json").read_text())
    assert puzzles == json.loads(json.dumps({name: files.plain(task) for name, task in made.tested.items()}))
    assert set(made.short) == ({"plain"} if num_aug == 40 else set())


def test_the_reference_check_value() -> None:
    """reference/trm.md 10."""
    value = "c425a9ec3001a1411790d93f89815f2c52f5ba7771a4f0de13ade6fab1712b8f"
    assert twin.grid_hash(np.zeros((2, 3), np.uint8)) == value


grids = st.integers(1, 7).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=1, max_size=7)
)
variant = st.builds(Variant, st.integers(0, 7), st.permutations(range(1, 10)).map(lambda order: (0, *order)))


@given(grids, variant)
def test_a_variant_inverts(cells: list[list[int]], chosen: Variant) -> None:
    """undo(apply(grid)) = grid, and tokens on a canvas are those of the variant."""
    grid = np.array(cells, dtype=np.uint8)
    assert np.array_equal(chosen.undo(chosen.apply(grid)), grid)
    assert np.array_equal(chosen.apply(grid), twin.dihedral(np.array(chosen.colors, np.uint8)[grid], chosen.turn))
    assert np.array_equal(turned(grid, chosen.turn), twin.dihedral(grid, chosen.turn))


@given(variant)
def test_names_parse(chosen: Variant) -> None:
    digits = "".join(map(str, chosen.colors))
    assert parsed(f"00ab.c-d_1|||t{chosen.turn}|||{digits}") == ("00ab.c-d_1", chosen)


@pytest.mark.parametrize(
    "name",
    ["", "a|||t8|||0123456789", "a|||t1|||1023456789", "a|||t1|||0123456788", "a|||t1|||012345678", "a|||t1", "a b",
     "a|||t1|||0123456789\n", "|||t1|||0123456789", "a|||t1|||0123456789|||t1|||0123456789", "<blank>"],
)  # fmt: skip
def test_foreign_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        parsed(name)


def test_a_test_input_without_solution_is_not_trained_on() -> None:
    """In the test set its label is absent; in another subset it is an error."""
    hidden = [
        replace(task, tests=tuple(Pair(pair.input, None) for pair in task.tests))
        for task in files.tasks()[generate.TEST]
    ]
    made = build({generate.TEST: hidden}, generate.TEST, 2, 10)
    assert not made.test.labelled and made.train.labelled
    rows = of_build(made, made.test).rows(0, 99)
    assert bool((rows.labels == -100).all()) and bool((rows.inputs > 0).any(1).all())
    with raising(DataError, hidden[0].name, "other") as _:
        build({generate.TEST: hidden[:1], "other": []}, "other", 2, 10)


def test_shared_pairs_are_reported() -> None:
    """Equal pairs across the boundary, by task."""
    subsets, _ = some()
    tested = subsets[generate.TEST][0]
    copy = Task("copy", tested.demonstrations[:2], (tested.tests[1],))
    made = build({generate.TRAINING: [copy], generate.TEST: subsets[generate.TEST]}, generate.TEST, 0, 10)
    assert made.shared == ((tested.name, "copy", 3),)


@pytest.mark.slow
def test_a_build_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from trm.data.arc import generate, variants as v;"
        "made = v.build(generate.subsets((1, 1)), generate.TEST, 20, 10);"
        "print(made.names.hash, made.content_hash(made.train), made.content_hash(made.test))"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "77")
    ]
    made = build(generate.subsets((1, 1)), generate.TEST, 20, 10)
    mine = [made.names.hash, made.content_hash(made.train), made.content_hash(made.test)]
    assert [each.communicate()[0].decode().split() for each in others] == [mine, mine]
    assert [each.returncode for each in others] == [0, 0]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Build, Path]:
    made = some()[1]
    folder.write(made, tmp_path / "set")
    return made, tmp_path / "set"


def test_a_folder_is_the_data_it_was_written_from(written: tuple[Build, Path]) -> None:
    """Same names, same rows, same hash: a run may go on with either."""
    made, place = written
    found = folder.read(place)
    assert found.names.hash == made.names.hash
    for ours, theirs in ((made.train, found.train), (made.test, found.test)):
        assert made.content_hash(ours) == found.content_hash(theirs)
    assert found.tested == made.tested
    with raising(TaskError, place):
        folder.write(made, place)


def test_a_folder_that_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full near the end leaves nothing that opens."""

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "tested_text", full)
    with raising(DataError, "No space left on device", tmp_path / "set"):
        folder.write(some()[1], tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def text(path: Path, change: Any) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def array(path: Path, change: Any) -> None:
    found = np.load(path)
    np.save(path, change(found))


def changed_cell(found: np.ndarray) -> np.ndarray:
    row = int((found >= 2).any(1).argmax())
    cell = int((found[row] >= 2).argmax())
    found[row, cell] = 2 + (found[row, cell] - 1) % 10
    return found


DAMAGE: dict[str, tuple[str, Any]] = {
    "a name changed": ("identifiers.json", lambda names: [*names[:2], names[3], names[2], *names[4:]]),
    "a name foreign": ("identifiers.json", lambda names: [*names[:2], "x|||t9|||0123456789", *names[3:]]),
    "a name missing": ("identifiers.json", lambda names: names[:-1]),
    "a name twice": ("identifiers.json", lambda names: [*names[:2], names[1], *names[3:]]),
    "no blank": ("identifiers.json", lambda names: names[1:]),
    "no list": ("identifiers.json", lambda _: {}),
    "a test task missing": ("test_puzzles.json", lambda tasks: dict(list(tasks.items())[1:])),
    "a test grid malformed": ("test_puzzles.json", lambda tasks: {name: {"train": [], "test": []} for name in tasks}),
    "a cell of a variant": ("train/all__inputs.npy", changed_cell),
    "a cell of a label": ("test/all__labels.npy", changed_cell),
    "a row missing": ("train/all__labels.npy", lambda found: found[:-1]),
    "an identifier": ("train/all__puzzle_identifiers.npy", lambda found: found[::-1].copy()),
    "an identifier too high": ("test/all__puzzle_identifiers.npy", lambda found: found + 10_000),
    "a group": ("train/all__group_indices.npy", lambda found: found[:-1]),
    "a puzzle": ("test/all__puzzle_indices.npy", lambda found: found[:-1]),
    "another count": ("train/dataset.json", lambda about: about | {"num_puzzle_identifiers": 3}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_a_folder_is_named(written: tuple[Build, Path], damage: str) -> None:
    place, (name, change) = written[1], DAMAGE[damage]
    (array if name.endswith(".npy") else text)(place / name, change)
    with pytest.raises(DataError) as caught:
        folder.read(place)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize(
    "name", ["identifiers.json", "test_puzzles.json", "train/all__inputs.npy", "test/dataset.json"]
)
@pytest.mark.parametrize("half", [True, False])
def test_a_folder_half_copied_is_named(written: tuple[Build, Path], name: str, half: bool) -> None:
    path = written[1] / name
    content = path.read_bytes()
    path.unlink()
    if half:
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError) as caught:
        folder.read(written[1])
    assert str(path) in str(caught.value)


def test_the_generated_tasks_are_no_give_away() -> None:
    """At least four rules; copying the input or giving the commonest output solves at most a tenth."""
    tested = generate.subsets()[generate.TEST]
    pairs = [pair for task in tested for pair in task.tests]
    assert len(generate.RULES) >= 4 and len(pairs) >= 50
    assert sum(pair.input == pair.output for pair in pairs) <= len(pairs) / 10
    assert Counter(pair.output for pair in pairs).most_common(1)[0][1] <= len(pairs) / 10
    for task in tested:
        inputs = [pair.input for pair in (*task.demonstrations, *task.tests)]
        assert len(set(inputs)) == len(inputs), "a test input equals no demonstration's"
