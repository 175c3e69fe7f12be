"""What a picture's texts must never do."""

from __future__ import annotations

from matplotlib.axis import Tick
from matplotlib.figure import Figure
from matplotlib.text import Text


def assert_readable(figure: Figure) -> None:
    """No text but the numbers along an axis leaves the picture or lies on another. Within `drawing`."""
    figure.draw_without_rendering()
    numbers = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in numbers]
    placed = [(text.get_text(), text.get_tightbbox()) for text in texts]
    drawn = [(text, box) for text, box in placed if box.width > 0]
    assert drawn and all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for _, box in drawn)
    for number, (text, box) in enumerate(drawn):
        assert not [(text, other) for other, its in drawn[:number] if box.overlaps(its)]
