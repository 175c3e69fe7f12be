"""`report --session`, `--sessions`, `--account`, and --redact: their contents for people and tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from relay.app.commands.looking.reports import drawn_markdown
from relay.app.views.accounts import Told, account_document, account_text
from relay.app.views.sessionstable import Total, sessions_document, sessions_text, totals
from relay.core.ledger.sessionreport import Happened, decode, encode
from relay.core.ledger.state import Link, RunState, Usage
from relay.core.runs.registered import Standing
from relay.people.accounts import NoAccount
from relay.people.status import AccountRow, RunStatus
from tests.app.cli import PROJECT, Desk
from tests.people.views import NOW, holder, state, trained, view

pytestmark = pytest.mark.slow

LABEL = "Ada Lovelace's Colab"


def lived(folder: Path) -> Desk:
    """Two accounts, two sessions."""
    desk = Desk(folder / "desk", {"RELAY_STORE": f"file://{folder / 'store'}"})
    desk("register", "account_1", LABEL)
    desk("register", "account_2", "Ben's laptop")
    desk.train(20)
    desk.train(40, account="account_2")
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return lived(tmp_path)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """The same, for tests that change nothing."""
    return lived(tmp_path_factory.mktemp("read"))


def test_a_session_is_shown_by_its_epoch_or_as_the_last(read: Desk) -> None:
    first, last = read("report", "--run", "r", "--session", "1"), read("report", "--run", "r", "--session", "last")
    assert first.out.startswith("# Session 1 ") and f"{PROJECT}/r" in first.out
    assert f"- **Account:** `account_1` ({LABEL})" in first.out
    assert "- **Steps:** 0 to 20" in first.out and "# Session 2 of" in last.out
    assert "- **Link:** exact" in last.out and "session 1" in last.out
    assert "ACCOUNT_ID" not in last.out, "nothing is left to train, so no account is next"
    (kept,) = read.folder.rglob("reports/session_e1.md")
    told, here = kept.read_text().splitlines(), first.out.splitlines()
    assert [line for line in told if "ACCOUNT_ID" not in line] == [line for line in here if "ACCOUNT_ID" not in line]
    document = read("report", "--run", "r", "--session", "1", "--json").json
    assert document["schema"] == "relay.session-report/1" and document["report"]["schema"] == "relay.session/1"
    assert document["link"]["to_step"] == document["report"]["to_step"] == 20
    assert sum(document["report"]["phases"].values()) == pytest.approx(document["report"]["wall_s"])


def test_a_session_that_left_nothing_is_told_by_the_ledger(desk: Desk) -> None:
    (stored,) = (desk.folder.parent / "store").rglob(f"sessions/{1:020d}.json")
    stored.unlink()
    out = desk("report", "--run", "r", "--session", "1").out
    assert "- **Steps:** 0 to 20" in out and "target reached" in out
    document = desk("report", "--run", "r", "--session", "1", "--json").json
    assert document["report"] is None and document["why"] and document["why"] in " ".join(out.split())


def test_a_report_that_contradicts_the_ledger_is_left_aside(desk: Desk) -> None:
    (stored,) = (desk.folder.parent / "store").rglob(f"sessions/{1:020d}.json")
    told = decode(stored.read_bytes())
    stored.write_bytes(encode(told.model_copy(update={"to_step": 999_999})))
    document = desk("report", "--run", "r", "--session", "1", "--json").json
    assert document["report"] is None and document["why"] and document["link"]["to_step"] == 20
    out = desk("report", "--run", "r", "--session", "1").out
    assert document["why"] in " ".join(out.split()) and "999,999" not in out


def test_a_session_that_went_back_reports_the_steps_that_the_ledger_counts(desk: Desk) -> None:
    """It reported those since the damaged checkpoint, and its report was left aside as contradicting the ledger."""
    before = desk.status()["links_total"]
    desk.train(44)
    desk.train(48)
    (newest,) = (desk.folder.parent / "store").rglob("step_48.*/state.json")
    newest.write_bytes(b"x" + newest.read_bytes()[1:])
    shutil.rmtree(desk.folder / "sync")
    done = desk.train(52, "--json").json
    link = desk.status()["links"][-1]
    assert (done["from_step"], link["from_step"]) == (44, 44)
    document = desk("report", "--run", "r", "--session", str(before + 3), "--json").json
    assert (document["report"]["from_step"], document["report"]["to_step"], document["why"]) == (44, 52, None)


def test_a_session_that_never_was_is_told_with_those_that_were(desk: Desk) -> None:
    assert "1 to 2" in desk("report", "--run", "r", "--session", "7", code=78).err
    desk("report", "--run", "r", "--session", "\x1b[2J", code=78)
    desk("init", "--run", "empty")
    desk("report", "--run", "empty", "--session", "last", code=78)


def test_only_one_of_them_at_a_time(read: Desk) -> None:
    refused = read("report", "--run", "r", "--sessions", "--session", "1", code=2).err
    assert "--sessions" in refused and "--session" in refused.replace("--sessions", "")


def test_all_sessions_with_totals(read: Desk) -> None:
    out = read("report", "--run", "r", "--sessions").out
    lines = out.splitlines()
    assert lines[0].split() == ["epoch", "account", "GPU", "start", "min", "steps", "steps/h", "link", "end"]
    assert [line.split()[:3] for line in lines[1:3]] == [["1", "account_1", "toy"], ["2", "account_2", "toy"]]
    document = read("report", "--run", "r", "--sessions", "--json").json
    assert document["schema"] == "relay.sessions/1" and document["missing"] is None
    assert [total["steps"] for total in document["by_account"]] == [20, 20]
    assert document["by_gpu"][0]["name"] == "toy" and document["by_gpu"][0]["sessions"] == 2


def test_oldest_sessions_come_from_the_history(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    desk.train(4)
    links = tuple(link(epoch) for epoch in range(1, 4))
    assert len(sessions_document("p", "r", links, "")["sessions"]) == 3
    gone = "The oldest 50 sessions cannot be listed: damaged"
    assert sessions_text(links, gone, 80).startswith(gone)
    assert sessions_document("p", "r", links, gone)["missing"] == gone


def link(epoch: int, **more: Any) -> Link:
    plain: dict[str, Any] = {"epoch": epoch, "account": "ana", "from_step": 0, "to_step": 10, "started": NOW}
    return Link(**{**plain, "seconds": 60.0, "end": "budget used", **more})


@given(
    width=st.integers(40, 200),
    links=st.lists(
        st.builds(
            link,
            epoch=st.integers(1, 10**6),
            account=st.sampled_from(["a", "b" * 64]),
            to_step=st.integers(0, 10**7),
            seconds=st.just(0.0) | st.just(5e-324) | st.floats(60, 1e6),
            gpu=st.none() | st.sampled_from(["H100 80GB HBM3", "T4"]),
            end=st.text(max_size=80),
            certified=st.sampled_from(["exact", "not-exact", "unknown"]),
        ),
        min_size=1,
        max_size=6,
    ),
)
@settings(deadline=None)
def test_the_table_fits_and_its_totals_add_up(width: int, links: list[Link]) -> None:
    text = sessions_text(links, "", width)
    table = text.partition("\n\n")[0].splitlines()
    epochs = [words[0] for line in table if (words := line.split()) and words[0].isdigit()]
    if width >= 60:  # narrower, a number is folded rather than lost
        assert epochs[: len(links)] == [str(one.epoch) for one in links] or len(epochs) > len(links)
    assert max(cell_len(line) for line in text.splitlines()[:-1]) <= width
    by_account, by_gpu = totals(links, lambda one: one.account), totals(links, lambda one: one.gpu or "unknown")
    steps = sum(one.to_step - one.from_step for one in links)
    assert sum(total.steps for total in by_account) == sum(total.steps for total in by_gpu) == steps
    assert sum(total.sessions for total in by_gpu) == len(links)


def test_pace_of_nothing_is_unknown() -> None:
    assert Total("a", 1, 0, 60.0).per_hour is None and Total("a", 1, 5, 0.0).per_hour is None
    assert Total("a", 1, 50, 3600.0).per_hour == 50


def test_times_are_the_reader_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        text = sessions_text([link(1)], "", None)
        assert "2025-01-15 20:15" in text and "UTC+05:45" in text
    finally:
        monkeypatch.undo()
        time.tzset()


def told(run_state: RunState | None, row: AccountRow, **more: Any) -> Told:
    seen: RunStatus = view(run_state, (row,), **more)
    return Told(row, seen, [Standing(run_state, seen.sign_of_life)] if run_state else [])


USAGE = {
    "account_1": Usage(sessions=2, steps=3000, seconds=3600.0),
    "account_2": Usage(sessions=5, steps=8750, seconds=9000.0, by_gpu=((0, 8000, 8000),)),
}


def test_an_account_tells_its_share_its_gpus_and_what_nobody_told() -> None:
    row = AccountRow("account_2", LABEL, "active", 8750, 5, 9000.0)
    one = told(trained(holder=holder(), usage=USAGE, gpus=("H100 80GB HBM3",)), row)
    document = account_document(one)
    assert document["schema"] == "relay.account-status/1"
    assert (document["steps_in_run"], document["share_of_run"]) == (8750, round(8750 / 11750, 4))
    assert document["by_gpu"] == {"H100 80GB HBM3": {"seconds": 8000, "steps": 8000}}
    assert document["steps_on_unknown_gpu"] == 750
    assert document["training"]["run"] == "sudoku_pretrain_multiaccount/sudoku_rotation"
    assert document["training"]["ends_by"] == "2025-01-15T14:53:00Z"
    text = account_text(one)
    told_of = {line[:12].strip(): line[12:] for line in text.splitlines()}
    assert "sudoku_rotation" in told_of["trains now"] and "750 steps" in text and "74.5%" in text
    assert told_of["hours left"].strip() == "unknown"


def test_an_account_of_a_run_that_nobody_trained_is_told_so() -> None:
    one = told(state(), AccountRow("a", "a", "ready"))
    document = account_document(one)
    assert (document["steps_in_run"], document["training"]) == (0, None)
    assert "None" not in account_text(one) and "nan" not in account_text(one)
    assert account_document(told(None, AccountRow("a", "a", "ready")))["share_of_run"] is None


def test_an_unknown_account_is_78_with_the_nearest(read: Desk) -> None:
    for command in ("status", "report"):
        refused = read(command, "--run", "r", "--account", "acount_1", code=78)
        error = refused.raised(NoAccount)
        assert error.account == "acount_1" and "account_1" in error.known and "account_1?" in refused.err
    assert read("status", "--run", "r", "--account", "account_1", "--json").json["label"] == LABEL


REDACTED = (
    ("report",),
    ("status",),
    ("report", "--account", "account_1"),
    ("status", "--account", "account_1"),
    ("report", "--session", "1"),
    ("report", "--sessions"),
    ("accounts", "list"),
)


@pytest.mark.parametrize("words", REDACTED, ids=" ".join)
def test_redacted_nothing_of_a_person_or_a_place_is_told(read: Desk, words: tuple[str, ...]) -> None:
    for more in ((), ("--json",)):
        out = read(*words, "--run", "r", "--redact", *more).out
        assert "Ada" not in out and "Lovelace" not in out and str(read.folder.parent) not in out, out
        assert "account_1" in out or words == ("status",)


def test_a_name_that_a_person_wrote_into_an_incident_is_replaced_too(desk: Desk) -> None:
    (stored,) = (desk.folder.parent / "store").rglob(f"sessions/{1:020d}.json")
    said = Happened(at=NOW, step=1, cause="resumed", text=f"asked {LABEL} of Ada Lovelace")
    stored.write_bytes(encode(decode(stored.read_bytes()).model_copy(update={"incidents": (said,)})))
    assert f"asked {LABEL}" in desk("report", "--run", "r", "--session", "1").out
    for more in ((), ("--json",)):
        out = desk("report", "--run", "r", "--session", "1", "--redact", *more).out
        assert "asked account_1" in out and LABEL not in out


def test_laid_out_for_a_terminal_no_mark_is_obeyed_but_ours() -> None:
    shown = drawn_markdown("# Session 1\n\n- **Account:** \\[x\\](http://e)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", 60)
    assert "Session 1" in shown and "**" not in shown and "[x](http://e)" in shown and "\x1b" not in shown
    assert max(cell_len(line) for line in shown.splitlines()) <= 60
