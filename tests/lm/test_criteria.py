"""The guide's criteria hold or not by the numbers of a run, and none tells its share of refinement."""

from __future__ import annotations

import pytest

from lm.criteria import criteria, lines

FALLING = [{"token_loss": loss, "grad_norm": 1.0} for loss in (5.0, 4.0, 4.1, 3.0)]
BPB = (3.0, 2.8, 2.6, 2.4)


def met(bpb: tuple[float, ...] = BPB, reports: list[dict[str, float]] = FALLING) -> list[bool]:
    return [one.met for one in criteria(bpb, reports)]


def rising(*losses: float, norm: float = 1.0) -> list[dict[str, float]]:
    return [{"token_loss": loss, "grad_norm": norm} for loss in losses]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (met(), [True, True, True, True]),
        (met((3.0, 2.4, 2.5, 2.4)), [False, True, True, True]),
        (met((3.0, 2.9, 2.8, 2.7)), [True, False, True, True]),
        (met((9.0, 4.0, 3.5, 3.4)), [True, False, True, True]),
        (met(reports=[*FALLING, {"token_loss": 3.0, "grad_norm": 1.6}]), [True, True, False, True]),
        (met(reports=rising(5.0, 4.0, norm=0.4)), [True, True, False, True]),
        (met(reports=rising(5.0, 3.0, 3.4, 2.0)), [True, True, True, False]),
        (met(reports=rising(3.0, 3.0)), [True, True, True, False]),
    ],
)
def test_each_criterion_fails_by_itself(found: list[bool], wanted: list[bool]) -> None:
    assert found == wanted


def test_a_verdict_counts_them_and_shows_no_share() -> None:
    said = "\n".join(lines(criteria((9.0, 4.0, 3.5, 3.4), FALLING)))
    assert said.count("NOT met") == 1 and "62" not in said and "3 of the" in said and "3.4000 bpb" in said
    assert "not go on" in said and "not go on" not in "\n".join(lines(criteria(BPB, FALLING)))
    assert criteria(BPB, []) == [] == lines([]), "a file of weights has no history"
