"""The commands about accounts: registering, describing, marking, forgetting, and the contribution of each account."""

from __future__ import annotations

import shlex

from tests.app.cli import Desk


def test_register_run_report_as_the_guide_types_them(desk: Desk) -> None:
    made = desk("register", "account_1", "John's Colab")
    assert "John" in made.out and "colab" in made.out and "owner John" in made.err
    desk("register", "account_3", "Kaggle - Project 1", "--yes")
    desk("run", "--account", "account_1", "--run", "r", "--target-steps", "10", "--checkpoint-every", "4")
    shown = desk("report", "--run", "r", "--json").json
    assert (shown["step"], shown["target_steps"]) == (10, 10)
    rows = {one["id"]: (one["steps"], one["sessions"], one["state"]) for one in shown["accounts"]}
    assert rows == {"account_1": (10, 1, "ready"), "account_3": (0, 0, "unconfirmed")}, "Kaggle's needs its person"
    assert "(10/10 steps)" in desk("report", "--run", "r").out


def test_duplicate_account_is_idempotent_or_refused_with_the_fix(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    assert "unchanged" in desk("register", "account_1", "John's Colab").out
    assert "account_1" in desk("register", "account_1", "Maria's Kaggle", code=78).err


def test_an_account_that_run_registered_by_its_id_can_be_described_later(desk: Desk) -> None:
    desk.train(3)
    assert "John at colab" in desk("register", "account_1", "John's Colab").out
    assert desk("accounts", "list", "--json").json["accounts"][0]["label"] == "John's Colab"


def test_a_second_account_of_one_person_at_one_provider_is_refused(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    refused = desk("register", "account_2", "Colab too", "--owner", "John", code=77)
    assert "John" in refused.err and "Colab" in refused.err


def test_report_and_next_count_what_an_account_gave_to_every_run(desk: Desk) -> None:
    desk.train(6, run="one")
    desk.train(2, run="two", account="account_2")
    shown = desk("report", "--run", "two", "--json").json
    assert [(a["id"], a["steps"], a["sessions"]) for a in shown["accounts"]] == [
        ("account_1", 6, 1),
        ("account_2", 2, 1),
    ]
    assert (shown["clock"], desk("report", "--run", "two").out.count(" clock)")) == ("this machine", 1)


def test_accounts_can_be_marked_and_forgotten_and_next_obeys(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    desk("register", "account_2", "Maria's Modal")
    desk("accounts", "mark", "account_1", "quota_exceeded")
    turn = desk("next", "--json").json
    assert turn["account"] == "account_2"
    assert shlex.split(turn["command"]) == [
        "ACCOUNT_ID=account_2",
        "RUN_NAME=sudoku_rotation",
        "bash",
        "multi_account_workflow.sh",
    ]
    assert "|quota_exceeded║" in desk("report").out
    desk("accounts", "forget", "account_2")
    assert desk("next", "--json").json["account"] is None
