"""A punished first step is called an artefact, a better model a gain, whatever the share of refinement."""

from __future__ import annotations

import pytest

from lm.refinement import Result, judged

PLAIN = Result("plain", 4e12, (3.2,), 4.8, 1.0, plain=True, spread=0.01, n=3)
SMALL = Result("small", 1e12, (3.4,), 4.8, 0.3, plain=True)


@pytest.mark.parametrize(
    ("bpb", "verdict", "refinement"),
    [
        ((9.9, 4.0, 3.6, 3.5), "artefact", 64.6),  # a first step that was punished
        ((3.25, 3.22, 3.21, 3.2), "artefact", 1.5),  # equal to the plain model
        ((3.4, 3.2, 3.15, 3.1), "gain", 8.8),
        ((3.3, 3.3, 3.3, 3.31), "loss", -0.3),
    ],
)
def test_verdicts(bpb: tuple[float, ...], verdict: str, refinement: float) -> None:
    (one, *_) = judged([Result("looped", 4.1e12, bpb, 4.8, 1.0, plain=False, spread=0.01, n=3), PLAIN, SMALL])
    assert one.verdict == verdict and one.baseline is PLAIN
    assert one.refinement == pytest.approx(refinement, abs=0.1) and one.gain == pytest.approx(3.2 - bpb[-1])


def test_a_share_never_stands_alone() -> None:
    looped = Result("looped", 9e12, (9.9, 3.5), 4.8, 5.0, plain=False)
    (one, plain, *_) = judged([looped, PLAIN, SMALL])
    assert (one.verdict, one.gain, one.refinement) == ("no baseline", None, None) and "%" not in one.line()
    assert (plain.verdict, plain.refinement) == ("plain", None) and "%" not in plain.line()
    assert len(one.marks) == 2 and "letter counts" in one.marks[0] and "5.0" in one.marks[1]
    near = judged([Result("near", 4e12, (9.9, 3.5), 4.8, 1.0, plain=False, n=3), PLAIN])[0].line()
    assert all(part in near for part in ("9.9000", "3.5000 bpb", "-0.3000", "plain", "64.6 %", "artefact"))


def test_one_seed_has_no_verdict() -> None:
    one = judged([Result("looped", 4e12, (3.4, 3.0), 4.8, 1.0, plain=False), PLAIN])[0]
    assert one.verdict == "n = 1" and one.document()["gain"] == pytest.approx(0.2)
