"""The blocks of a page are found, written and compared as the pages need it; a wrong word or hash is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.pages import Block, blocks, differing, normal, recorded, words, write

PAGE = """# Page
   ```sh
   one
   two --with "x"
   ```
```sh
three
```
<!-- lines: ^kept -->
```text
kept 1 s
```

```text
not the output of a command
```
```sh
four
```
![what four shows](recordings/four.svg)
"""
PRINTED = ["nobody shows this\n", "left out\nkept 2 min 3 s\n", "\x1b[32mexact\x1b[0m at step 20\n"]


def test_blocks_are_found_with_what_shows_their_output() -> None:
    assert blocks(PAGE) == [
        Block(("one", 'two --with "x"'), None, None, None),
        Block(("three",), "^kept", "kept 1 s\n", None),
        Block(("four",), None, None, "recordings/four.svg"),
    ]


def test_a_page_that_was_written_agrees_and_nothing_else_of_it_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write(page, PRINTED)
    assert page.read_text() == PAGE.replace("kept 1 s", "kept 2 min 3 s")
    assert "exact at step 20" in words((tmp_path / "recordings" / "four.svg").read_text())
    told = blocks(page.read_text())
    assert not any(differing(block, raw, tmp_path) for block, raw in zip(told, PRINTED, strict=True))


@pytest.mark.parametrize(("block", "printed"), [(1, "kept 2 min and lost"), (2, "not exact at step 20")])
def test_another_word_is_seen_in_text_and_in_a_recording(block: int, printed: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write(page, PRINTED)
    assert differing(blocks(page.read_text())[block], printed, tmp_path)


def test_numbers_differ_freely_and_hashes_only_together() -> None:
    was = "step 1,200/1,600 in 3 min 4 s, 1.3 MB at /home/ana/x on Wed 2025-01-15 15:30 CET, loss 1.2e-3"
    now = "step 20/20 in 12 s, 900 kB at /tmp/a/b/c on Mon 2026-11-30 18:30 UTC, loss 0.5"
    assert normal(was) == normal(now)
    same, other = "state 0a1b2c3d4e5f\nstate 0a1b2c3d4e5f", "state 0a1b2c3d4e5f\nstate 1a1b2c3d4e5f"
    assert normal(same) == normal(same.replace("0a1b2c3d4e5f", "99aa88bb77cc")) != normal(other)


def test_a_recording_loads_nothing_and_shows_hostile_text_as_text() -> None:
    svg = recorded(("one",), '<script>alert(1)</script> & "x"', "four")
    assert '<script>alert(1)</script> & "x"' in words(svg) and "<script" not in svg
    assert "url(http" not in svg and "@import" not in svg and "font-face" not in svg
