"""docs/contributing/backends.md says what backends declare; its counts come from reports as pytest writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.base import BadAddress, open_store
from storage.promises import PROMISES, QUESTIONS, Promises
from tests.storage.backend_table import PAGE, TESTED, Case, cases, counts, measured, of, page

REPORT = """<testsuites><testsuite>
<testcase classname="tests.storage.test_contract" name="test_a[s3-ministack]"/>
<testcase classname="tests.storage.test_contract" name="test_a[s3-seaweedfs]"><failure message="x"/></testcase>
<testcase classname="tests.storage.s3.test_race" name="test_b[ministack-40]">
  <properties><property name="races" value="40"/><property name="summary" value="not a number"/></properties></testcase>
<testcase classname="tests.storage.s3.test_parts" name="test_k[seaweedfs-0]">
  <properties><property name="kills" value="1"/></properties></testcase>
<testcase classname="tests.storage.s3.test_address" name="test_parse"/>
<testcase classname="tests.storage.dropbox.test_kill" name="test_k">
  <properties><property name="kills" value="20"/></properties></testcase>
<testcase classname="tests.storage.test_contract" name="test_a[local]"><skipped/></testcase>
</testsuite></testsuites>"""


def test_what_the_page_declares_is_what_the_code_declares() -> None:
    """If this fails: `python -m tests.storage.backend_table`."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(counts(text)) and "| kind | tried against |" in counts(text)


def test_every_kind_of_shared_storage_answers_every_question_and_was_tried() -> None:
    assert {tested.kind for tested in TESTED} == set(PROMISES)
    assert set(QUESTIONS) == set(Promises.__dataclass_fields__)
    for promises in PROMISES.values():
        assert all(getattr(promises, field) for field in QUESTIONS)
    with pytest.raises(BadAddress) as refused:
        open_store("nosuch://x")
    for kind in set(PROMISES) - {"local"}:
        assert f"{kind}://" in str(refused.value)


def test_counts_are_those_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    run = cases(tmp_path / "report.xml")
    assert len(run) == 6 and run[2] == Case("tests/storage/s3/test_race::test_b[ministack-40]", True, {"races": 40})
    counted = {
        tested.against.split()[0]: (len(of(tested, run)), sum(c.passed for c in of(tested, run))) for tested in TESTED
    }
    assert counted["MiniStack"] == (3, 3) and counted["SeaweedFS"] == (2, 1)
    rows = measured(run).splitlines()
    for against, numbers in (("MiniStack", "3 of 3 | 40 | -"), ("SeaweedFS", "1 of 2 | - | 1")):
        assert [row for row in rows if f"| {against} over" in row and f"| {numbers} |" in row]
