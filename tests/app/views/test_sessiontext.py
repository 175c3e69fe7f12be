"""A report as text: no markup of a stranger takes effect, and omitted parts are counted."""

from __future__ import annotations

from relay.app.views.sessiontext import plain
from relay.core.ledger.sessionreport import Made
from tests.app.recorded import report
from tests.app.shown import markdown

EVIL = "\x1b[31mred\u202e]8;;http://evil\x07[click](http://evil) <b>|`rm -rf` \u200b*bold*"


def test_no_mark_of_a_stranger_is_obeyed() -> None:
    text = markdown(
        report(why=EVIL, certified="not-exact", end=EVIL, environment={"torch": EVIL},
               incidents=[{"at": 1.7e9, "step": 1, "cause": EVIL, "text": EVIL}]),
        label=EVIL,
        to_type="x`y`",
    )  # fmt: skip
    assert not set(text) & set("\x1b\x07\u202e\u200b")
    assert "[click]" not in text.replace("\\[click\\]", "") and "<b>" not in text.replace("\\<b\\>", "")
    assert plain("a|b`c") == "a\\|b\\`c"
    assert "http://" not in text and plain("www.evil WWW.evil") == "www\\.evil WWW\\.evil", "no link either"


def test_the_newest_checkpoints_are_told_and_the_others_counted() -> None:
    text = markdown(report(commits=60, checkpoints=[Made(step=1, state_hash="f" * 64, bytes=5).model_dump()]))
    assert "## Checkpoints (60)" in text and "59 older" in text
