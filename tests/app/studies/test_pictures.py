"""The picture of a study: every experiment has its dots, its interval and its curve, and every text can be read."""

from __future__ import annotations

import pytest

from relay.app.plots.style import LIGHT, drawing
from relay.app.studies.pictures import draw
from tests.app.plots.drawn import assert_readable
from tests.app.studies.made import design
from tests.app.studies.test_results import SEEDS, VALUES, found, states

pytestmark = pytest.mark.slow


def test_dots_intervals_and_curves_with_the_band_of_seeds() -> None:
    of = design(seeds=SEEDS)
    table = found(of, [one for one in states(of) if one.run not in ("longer-s2", "longer-s3")])
    curves = {
        name: [[(step, step / 10 * seed, step / 50 / seed) for step in (10, 20, 10 * seed + 20)] for seed in SEEDS]
        for name in VALUES
    }
    curves["big"] = [[], []]
    with drawing(LIGHT):
        title = "toys: a study of toys, whose title is longer than a line of the picture has room for"
        figure = draw(table, curves, "valid/exact_accuracy", title, LIGHT)
        assert_readable(figure)
    drawn = {artist.get_gid() for artist in figure.findobj(lambda artist: bool(artist.get_gid()))}
    assert {f"dots:{name}" for name in of.points} <= drawn
    assert {f"line:{name}" for name in VALUES if name != "big"} <= drawn and "line:big" not in drawn
    assert {"control", "published:base"} <= drawn
    dots, *panels = figure.axes
    assert [panel.get_xlabel() for panel in panels] == ["steps", "TFLOP", "GPU-hours"]
    assert len(dots.containers) == sum(row.mean.half is not None for row in table.rows if row.mean)
    bands = panels[0].collections
    assert len(bands) == 3 and len(panels[0].lines) == 3
