"""What a build draws is kept for the next session, and never taken for other data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trm.data.arc import files
from trm.data.arc import generate, kept
from trm.data.arc.tasks import Pair, Task
from trm.data.arc.variants import Build, Draws, build

Subsets = Mapping[str, list[Task]]
GIVEN: tuple[Subsets, str, int, int] = (files.tasks((1, 1)), generate.TEST, 3, 10)


def made(root: Path, given: tuple[Subsets, str, int, int] = GIVEN) -> tuple[str, ...]:
    """Hashes of a build whose draws are kept."""
    found = build(*given, drawn=lambda *args: kept.draws_below(root, *args, slow=0))
    return hashes(found)


def hashes(found: Build) -> tuple[str, ...]:
    return found.content_hash(found.train), found.content_hash(found.test), found.names.hash


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each time that something was drawn."""
    count, real = list[None](), kept.draw

    def counted(*args: Any) -> Draws:
        count.append(None)
        return real(*args)

    monkeypatch.setattr(kept, "draw", counted)
    return count


def test_a_second_build_draws_nothing_and_is_the_same(tmp_path: Path, drawn: list[None]) -> None:
    wanted = hashes(build(*GIVEN))
    assert [made(tmp_path / "new") for _ in range(3)] == [wanted] * 3
    assert len(drawn) == 1 and len(list((tmp_path / "new").iterdir())) == 1


def test_few_variants_are_not_kept(tmp_path: Path) -> None:
    kept.draws_below(tmp_path, *GIVEN)
    assert not list(tmp_path.iterdir())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**9), cut=st.booleans())
def test_a_damaged_file_is_drawn_again(tmp_path: Path, at: int, cut: bool) -> None:
    """Cut anywhere, or with any bit turned."""
    wanted = made(tmp_path)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    place = at % len(content)
    content[place] ^= 1 << at % 8
    path.write_bytes(content[:place] if cut else content)
    assert made(tmp_path) == wanted == hashes(build(*GIVEN))


def test_other_data_has_another_file(tmp_path: Path, drawn: list[None]) -> None:
    """A cell, a name, the order of tasks or subsets, the test set, the number of variants, the canvas."""
    subsets, test_set, num_aug, side = GIVEN
    first, *rest = subsets[generate.TRAINING]
    pair = first.demonstrations[0]
    cell = Pair(((9 - pair.input[0][0], *pair.input[0][1:]), *pair.input[1:]), pair.output)
    changed = [
        [replace(first, demonstrations=(cell, *first.demonstrations[1:])), *rest],
        [replace(first, name="another"), *rest],
        [*rest, first],
    ]
    others = [
        GIVEN,
        *(({**subsets, generate.TRAINING: tasks}, test_set, num_aug, side) for tasks in changed),
        (dict(reversed(subsets.items())), test_set, num_aug, side),
        (subsets, generate.TRAINING, num_aug, side),
        (subsets, test_set, num_aug + 1, side),
        (subsets, test_set, num_aug, side + 1),
    ]
    for count, other in enumerate(others, 1):
        assert made(tmp_path, other) == made(tmp_path, other) == hashes(build(*other))
        assert len(drawn) == count


def test_a_folder_that_cannot_be_written_draws_each_time(tmp_path: Path, drawn: list[None]) -> None:
    (tmp_path / "file").write_text("no folder")
    assert made(tmp_path / "file") == made(tmp_path / "file") == hashes(build(*GIVEN))
    assert len(drawn) == 2
