"""`register` and `accounts` at the command line: the input, the refusals, the output."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from relay.app.commands.people import accounts as listing_command
from relay.app.views.accounts import listing, row_document
from relay.people.admission import AnotherMachine, NotInTeam
from relay.people.policy import OneTooMany
from relay.people.quota import Quota
from relay.people.status import AccountRow
from relay.people.zones import local
from tests.app.cli import Desk, parse

KAGGLE: dict[str, Any] = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, {"RELAY_OWNER": "", "TZ": "UTC"})


def shown(desk: Desk, account: str, *words: str) -> dict[str, Any]:
    return desk("accounts", "show", account, *words, "--json").json


def test_the_guide_s_lines_and_a_second_kaggle_of_the_same_owner(desk: Desk) -> None:
    assert "John at colab" in desk("register", "account_1", "John's Colab").out
    first = desk("register", "account_3", "Kaggle - Project 1", "--owner", "Ana")
    assert "Ana" in first.out and "kaggle" in first.out and "--coauthor" in first.err
    refused = desk("register", "account_4", "Kaggle - Project 2", "--owner", "ana", "--json", code=77)
    error = refused.raised(OneTooMany)
    assert (error.owner, error.provider.name, error.have) == ("ana", "kaggle", ("account_3",))
    assert refused.json["exit_code"] == 77 and "--owner" in refused.json["message"]
    desk("register", "account_5", "Colab too", "--owner", "JOHN", code=77)
    desk("register", "account_5", "Maria's Colab")
    assert [a["id"] for a in desk("accounts", "list", "--json").json["accounts"]] == [
        "account_1",
        "account_3",
        "account_5",
    ]


def test_renaming_and_registering_again_changes_nothing_of_that(desk: Desk) -> None:
    desk.train(2, account="account_1", code=0)
    desk("register", "account_1", "John's Colab")
    desk.train(4, account="account_1")
    assert "Old one" in desk("accounts", "rename", "account_1", "Old one").out
    assert (shown(desk, "account_1")["label"], shown(desk, "account_1")["owner"]) == ("Old one", "John")
    desk("accounts", "edit", "account_1", "--owner", "Peter")
    desk("register", "account_2", "John's Colab", code=77)
    desk("accounts", "retire", "account_1")
    desk("register", "account_2", "John's Colab", code=77)
    desk("accounts", "forget", "account_1")
    assert "register account_1" in desk("register", "account_2", "John's Colab", code=77).err
    again = desk("register", "account_1", "John's Colab")
    assert "Registered account_1" in again.out
    assert (shown(desk, "account_1")["steps"], shown(desk, "account_1")["sessions"]) == (4, 2)


def test_kaggle_wants_the_participant_s_word_before_anything_is_written(desk: Desk) -> None:
    refused = desk("run", "--run", "r", "--account", "account_3", "--target-steps", "3", "--new", code=77, **KAGGLE)
    assert refused.advised("run") == [["run", "--run", "r", "--account", "account_3", "--coauthor"]]
    assert not (desk.folder / "relay_store" / "runs").exists() and not list(desk.folder.rglob("accounts/*"))
    words = ("run", "--run", "r", "--account", "account_3", "--new", "--target-steps")
    desk(*words, "3", "--coauthor", code=0, **KAGGLE)
    desk(*words, "6", **KAGGLE)
    assert shown(desk, "account_3", "--run", "r")["confirmed"] is True
    assert shown(desk, "account_3", "--run", "another")["confirmed"] is False
    other = ("run", "--run", "another", "--account", "account_3", "--new", "--target-steps", "3")
    desk(*other, code=77, **KAGGLE)
    desk(*other, RELAY_COAUTHOR="1", **KAGGLE)
    desk(*other, code=78, RELAY_COAUTHOR="perhaps", **KAGGLE)


def test_next_never_proposes_an_unconfirmed_account(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 3}
    desk.train(40, account="account_1", code=65)
    desk("accounts", "retire", "account_1")
    desk("register", "account_3", "Ana's Kaggle")
    assert desk("next", "--run", "r", "--json", code=None).json["account"] is None
    desk("accounts", "confirm", "account_3", "--run", "r")
    assert shown(desk, "account_3", "--run", "r")["confirmed"] is True
    assert desk("next", "--run", "r", "--json").json["account"] == "account_3"
    desk("accounts", "confirm", "account_1", "--run", "r", code=78)


def everywhere(desk: Desk, account: str) -> dict[str, str]:
    """The state of an account wherever a person may look for it."""
    run = ("--run", "r", "--json")
    lists = {"accounts list": desk("accounts", "list", *run).json, "report": desk("report", *run).json}
    found = {where: row["state"] for where, said in lists.items() for row in said["accounts"] if row["id"] == account}
    found["status --account"] = desk("status", "--account", account, *run).json["state"]
    turn = desk("next", *run, code=None).json
    found["next"] = next(one["why_not"] for one in turn["others"] if one["account"] == account).partition(":")[0]
    return found


def test_an_account_without_its_person_s_word_or_its_object_is_told_alike_everywhere(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 3}
    desk.train(40, account="account_1", code=65)
    desk("register", "k", "Ana's Kaggle")
    assert set(everywhere(desk, "k").values()) == {"unconfirmed"}
    for lost in list(desk.folder.rglob("accounts/account_1/*")):
        lost.unlink()
    desk("register", "z", "Zoe's laptop")
    assert set(everywhere(desk, "account_1").values()) == {"damaged"}
    desk("accounts", "mark", "k", "blocked")
    turn = desk("next", "--run", "r", "--json").json
    told = {one["account"]: one["why_not"] for one in turn["others"]}
    again = ["register", "account_1", "LABEL"]
    assert turn["account"] == "z" and " ".join(again) in told["account_1"], "what to do is said"
    assert "account_1: damaged" in desk("plan", "--run", "r").out
    assert desk("doctor", "--run", "r").advised("register") == [again]


def test_a_notebook_spends_the_hours_of_who_is_logged_in(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    words = ("run", "--run", "r", "--account", "account_1", "--target-steps", "3", "--new", "--coauthor")
    error = desk(*words, code=77, **KAGGLE).raised(AnotherMachine)
    assert (error.account, error.provider.name, error.machine.name) == ("account_1", "colab", "kaggle")
    desk("register", "account_9", "my notebook", "--owner", "Eva", **KAGGLE)
    found = shown(desk, "account_9")
    assert (found["label"], found["provider"]) == ("my notebook", "kaggle")


def test_a_competition_s_run_is_for_its_team(desk: Desk) -> None:
    said = desk("register", "account_1", "Eva's laptop", "--competition", "arc-prize-2026")
    assert "arc-prize-2026" in said.err
    desk("register", "account_2", "Ben's laptop")
    desk.train(2, "competition=arc-prize-2026", account="account_1")
    refused = desk.train(4, "competition=arc-prize-2026", account="account_2", code=77).raised(NotInTeam)
    assert (refused.account, refused.competition) == ("account_2", "arc-prize-2026")
    desk("register", "account_2", "Ben's laptop", "--competition", "arc-prize-2026")
    desk.train(4, account="account_2")
    desk("register", "account_2", "Ben's laptop", "--competition", "No Slug!", code=78)
    assert "confirmed" not in desk("accounts", "edit", "account_2", "--owner", "BEN").err
    told = desk("accounts", "edit", "account_2", "--owner", "Ada").err
    assert "BEN" in told and "Ada" in told and "confirmed" in told


def test_every_field_can_be_given_seen_changed_and_cleared(desk: Desk) -> None:
    told = {"tier": "pro", "gpu": "L4", "session-minutes": "50", "weekly-hours": "1",
            "reset": "Mon 09:00 Europe/Berlin",
            "zone": "Europe/Berlin", "availability": "mon-fri 18:00-23:00", "contact": "eva@example.org"}  # fmt: skip
    desk("register", "a", "Eva's Colab", *(f"--{name}={value}" for name, value in told.items()))
    found = shown(desk, "a")
    expected = {"tier": "pro", "gpu": "L4", "session_minutes": 50, "weekly_hours": 1, "zone": "Europe/Berlin",
                "reset": "mon 09:00 Europe/Berlin", "contact": "eva@example.org", "owner": "Eva"}  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert found["quota"]["left_s"] == 3600 and found["quota"]["source"] == "estimated"
    text = desk("accounts", "show", "a").out
    assert all(fact in text for fact in ("Colab", "pro", "L4", "50 min"))
    assert "eva@example.org" not in desk("accounts", "list").out + desk("accounts", "list", "--json").out
    desk("accounts", "edit", "a", "--weekly-hours", "0", "--contact", "", "--tier", "")
    found = shown(desk, "a")
    assert (found["weekly_hours"], found["contact"], found["tier"]) == (None, None, None)
    for wrong in (
        ("--zone", "Mars"),
        ("--reset", "someday"),
        ("--weekly-hours", "200"),
        ("--provider", "a b"),
        ("--owner", ""),
    ):
        desk("accounts", "edit", "a", *wrong, code=78)


def test_states_by_hand_and_by_time(desk: Desk) -> None:
    desk("register", "k", "Eva's Kaggle")
    assert "quota_exceeded" in desk("accounts", "mark", "k", "quota_exceeded").out
    found = shown(desk, "k")
    assert found["state"] == "quota_exceeded" and found["until"].endswith("T00:00:00Z")
    desk("accounts", "pause", "k", "--until", "2099-01-01", code=78)
    desk("accounts", "pause", "k")
    assert shown(desk, "k")["state"] == "paused" and "accounts mark k ready" in shown(desk, "k")["why"]
    parse(["accounts", "mark", "k", "ready"])
    desk("accounts", "mark", "k", "blocked", "--until", "2027-01-01", code=78)
    for state in ("blocked", "retired", "ready"):
        desk("accounts", "mark", "k", state)
        assert shown(desk, "k")["state"] == ("unconfirmed" if state == "ready" else state)
    desk("accounts", "mark", "k", "cooling", code=2)
    desk("accounts", "mark", "nobody", "ready", code=78)


def test_the_quota_that_was_piped_in_or_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("register", "k", "Eva's Kaggle")
    assert shown(desk, "k")["quota"]["source"] == "estimated"
    piped = desk.folder / "quota.json"
    piped.write_text('[{"resource": "GPU", "used": "12.5h", "remaining": "17.50h", "total": "30.00h"}]')
    assert "17.5" in desk("accounts", "quota", "k", "--json-file", "quota.json").out
    found = shown(desk, "k")["quota"]
    assert (found["source"], found["left_s"], found["of_s"]) == ("official", 63_000, 108_000)
    assert found["resets_at"].endswith("T00:00:00Z") and found["age_s"] < 60
    desk("accounts", "quota", "k", "--left", "0", "--of", "30")
    desk.train(2)
    desk("accounts", "confirm", "k", "--run", "r")
    assert shown(desk, "k", "--run", "r")["state"] == "cooling"
    assert "0 of 30 h" in desk("accounts", "list").out
    stdin = io.TextIOWrapper(io.BytesIO(b"No quota information available"))
    monkeypatch.setattr("sys.stdin", stdin)
    for wrong in ((), ("--left", "1", "--json-file", "-"), ("--json-file", "absent.json"), ("--left", "nan")):
        desk("accounts", "quota", "k", *wrong, code=78)


HOSTILE = "\u202eeve\x1b[31m [bold]X[/bold]\n\u2066" + "Z" * 10_000


def test_hostile_texts_reach_no_terminal_and_break_no_line(desk: Desk) -> None:
    done = desk(
        "register", "a", HOSTILE, "--owner", HOSTILE, "--provider", "local", "--gpu", HOSTILE, "--contact", HOSTILE
    )
    outputs = [done, desk("accounts", "list"), desk("accounts", "show", "a"), desk("accounts", "rename", "a", HOSTILE),
               desk("accounts", "list", "--json"), desk("register", "b", HOSTILE, "--provider", "kaggle"),
               desk("register", "c", HOSTILE, "--provider", "kaggle", code=77), desk("report"),
               desk("accounts", "edit", "nobody\u202e\x1b", code=78), desk("next", code=None),
               desk("register", HOSTILE, "x", code=78)]  # fmt: skip
    for result in outputs:
        text = result.out + result.err
        assert not any(c in text for c in "\x1b\u202e\u2066\u200b"), text
        assert max(map(len, text.splitlines())) < 2500


def rows(count: int = 3) -> list[AccountRow]:
    quota = Quota(7200.0, 108_000.0, "official", 1.7e9 - 7200, 1.7e9 + 86_400)
    plain = AccountRow("account_10", "John's Colab", "ready", owner="John", provider="colab")
    return [
        plain,
        AccountRow(
            "account_2",
            "李四的 \U0001f600 notebook",
            "quota_exceeded",
            quota=quota,
            owner="李四",
            provider="kaggle",
            until=1.7e9 + 86_400,
            confirmed=False,
        ),
        AccountRow("x" * 64, HOSTILE, "unconfirmed", owner=HOSTILE, gpu=HOSTILE, confirmed=False),
    ][:count]


@pytest.mark.parametrize("utf8", [True, False])
@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_the_table_fits_every_terminal(width: int, utf8: bool) -> None:
    text = listing(rows(), 1.7e9, width, utf8)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert utf8 or text.isascii()
    assert not any(c in text for c in "\x1b\u202e\u2066")
    for part in ("account_10", "account_2", "quota_exceeded", "unconfirmed"):
        assert part in text
    assert text.index("account_2") < text.index("account_10")
    if width >= 120:
        assert "2 of 30 h" in text and "2 h 00 min" in text and "kaggle" in text


def test_without_a_terminal_it_is_a_line_an_account() -> None:
    lines = listing(rows(), 1.7e9, None, True).splitlines()
    assert len(lines) == 3
    assert lines[1].split("  ")[:4] == ["account_10", "ready", "John's Colab", "(colab)"]
    empty = listing([], 1.7e9, None, True)
    assert empty == listing([], 1.7e9, 80, True) and len(empty.splitlines()) == 1


def test_times_are_the_reader_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert local(1.7e9) == "Wed 2023-11-15 07:13 JST"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_terminal_gets_the_table(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("register", "a", "Eva's Colab")
    monkeypatch.setattr(listing_command, "terminal_width", lambda: 70)
    assert "provider" in desk("accounts", "list").out.splitlines()[1]


def test_the_document_of_an_account_is_plain_json() -> None:
    for row in rows():
        json.dumps(row_document(row, 1.7e9), allow_nan=False)


def test_doctor_tells_of_old_records_and_of_a_word_that_is_missing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("register", "k", "Eva's Kaggle")
    found = desk("doctor", "--run", "r").out
    assert "unconfirmed" in found and "accounts confirm k" in found and " days ago" not in found
    monkeypatch.setattr("relay.people.policy.STALE_DAYS", 0)
    desk("register", "l", "Eva's laptop")
    for text in (desk("doctor", "--run", "r").out, desk("register", "k", "Eva's Kaggle").err):
        assert " days ago" in text and "https://www.kaggle.com/terms" in text
    desk("accounts", "pause", "l")
    desk("register", "c", "Eva's Colab")
    turn = desk("next", "--run", "r", "--json")
    assert turn.json["account"] == "c" and "Google Colab" in turn.err and " days ago" in turn.err
