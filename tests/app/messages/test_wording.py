"""Text from strangers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.app.messages.wording import counted
from relay.core.ledger.frozen import clean, escaped


@given(st.text(), st.integers(1, 50))
def test_clean_text_is_one_short_printable_line_and_stays_as_it_is(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    assert len(cleaned) <= limit
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cleaned)
    cleaned.encode("utf-8")  # would raise for a surrogate
    assert clean(cleaned, limit) == cleaned


def test_what_would_hide_or_reorder_text_goes() -> None:
    assert clean("a\x1b[31mb\r\nc\u202ed\u200b e\u2028f", 99) == "a [31mb cd e f"
    assert clean("John’s Colab – é 日本", 99) == "John’s Colab – é 日本"


@given(st.text(), st.integers(1, 50))
def test_text_can_be_cut_by_its_size_in_json(text: str, limit: int) -> None:
    cut = clean(text, limit, escaped)
    assert escaped(cut) <= limit
    assert clean(cut, limit, escaped) == cut
    assert clean(text, limit).startswith(cut)


def test_one_thing_is_singular() -> None:
    assert [counted(n, "commit") for n in (0, 1, 2, 1000)] == ["0 commits", "1 commit", "2 commits", "1,000 commits"]
