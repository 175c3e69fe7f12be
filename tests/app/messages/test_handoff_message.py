"""The message about the next turn can be typed and sent as it is, and holds only facts that its reader may know."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace

from relay.app.messages.handoff import Reader, command_for, propose
from relay.app.nameless import without_names
from relay.app.providers import shipped
from relay.people.status import AccountRow
from tests.people.turns import HOUR, NOON, halted, link, quota, turn_of, view
from tests.people.views import trained


def test_the_message_greets_the_person_where_one_is_named() -> None:
    told = {
        owner: turn_of(AccountRow("a", "Maria's lab machine", "ready", owner=owner)).message.partition(":")
        for owner in ("Maria", "unnamed-0a1b", "")
    }
    assert told["Maria"][0] == "Hello Maria" and "Maria's lab machine" in told["Maria"][2]
    assert told["unnamed-0a1b"][0] == told[""][0] and told[""][0].endswith(" Maria's lab machine")


def test_the_message_tells_when_window_and_hours_end_in_the_persons_zone() -> None:
    ana = AccountRow(
        "a", "Ana's Kaggle", "ready", quota=quota(7 * HOUR), availability="daily 09:00-23:00", zone="Asia/Tokyo"
    )
    turn = turn_of(ana, reader=Reader("UTC", "a"))
    assert "Ana's Kaggle" in turn.message and "0 of 100" in turn.message
    assert "Sat 2026-11-28 23:00 JST" in turn.message
    assert all(fact in turn.message for fact in ("7 h 00 min", "Sun 2026-11-29 21:00 JST", "(estimated)"))
    assert turn.document()["you"] is True
    assert turn.document()["free_until"] == "2026-11-28T14:00:00Z"


def test_the_message_tells_when_the_run_may_end_once_speeds_are_measured() -> None:
    state = trained(epoch=1, step=3600, target_steps=7200, holder=None, links=(link("a", 1.0, "cpu"),))
    turn = turn_of(AccountRow("a", "", "ready", gpu="cpu"), state=state)
    assert "Sat 2026-11-28" in turn.message


def test_the_message_tells_what_of_the_time_until_the_end_is_no_training() -> None:
    """Five minutes of training in sessions of one minute take an hour, and no reader could see why."""
    brief = link("a", 7.5, "cpu").model_copy(update={"to_step": 450, "seconds": 60.0})
    state = trained(epoch=1, step=450, target_steps=2650, holder=None, links=(brief,))
    turn = turn_of(AccountRow("a", "", "ready", session_minutes=3), state=state)
    assert all(fact in turn.message for fact in ("5 more sessions", "10 min (assumed)"))
    last = turn_of(AccountRow("a", "", "ready", session_minutes=30), state=state)
    assert "1 more session." in last.message


def test_a_store_address_is_quoted_and_carries_no_secret() -> None:
    command = command_for("a", "r", {"RELAY_STORE": "s3://key:hunter22@host/a b"})
    assert "hunter22" not in command
    assert shlex.split(command)[2] == "RELAY_STORE=s3://***@host/a b"


def test_hostile_labels_cannot_break_the_message() -> None:
    hostile = AccountRow("a", "\x1b[2J\n$(rm -rf /)", "ready", availability="\x1b]0;x\x07", zone="../etc", gpu="\n")
    turn = turn_of(hostile)
    assert "\x1b" not in turn.text() and turn.message.count("\n") == 1
    assert shlex.split(turn.command) == ["ACCOUNT_ID=a", "RUN_NAME=r", "bash", "multi_account_workflow.sh"]


def test_redacted_answers_name_ids_alone() -> None:
    rows = tuple(AccountRow(f"a{n}", f"Person {n}", "ready") for n in range(3))
    turn = turn_of(*rows, reader=Reader(redacted=True))
    assert "Person" not in json.dumps(turn.document()) + turn.text() and "Hello a0:" in turn.message


def test_redacted_no_place_and_no_name_in_what_somebody_wrote_is_told() -> None:
    row = AccountRow("a", "Zoe's PC", "ready", owner="Zoe", zone="Asia/Kathmandu", availability="sat 00:00-24:00")
    seen = view((row,), now=NOON)
    for reader, told in ((Reader(), True), (Reader(redacted=True), False)):
        turn = propose(seen, {"RELAY_STORE": "file:///home/zoe/relay"}, shipped(), reader)
        shown = json.dumps(turn.document()) + turn.text()
        assert turn.free_until < math.inf and turn.document()["free_until"]
        assert [word in shown for word in ("Zoe", "UTC+05:45", "/home/zoe")] == [told] * 3
    stopped = halted().model_copy(update={"halted": "<!channel> Zoe saw nan @everyone"})
    seen = view((row,), state=stopped)
    redacted = propose(seen, {}, shipped(), Reader(redacted=True)).message
    assert "<!channel>" in redacted and "Zoe" not in redacted
    hidden = without_names(replace(seen, accounts=(replace(row, gpu="Zoe's T4", tier="Zoe pro", label="Zoe's"),)))
    assert "Zoe" not in repr(hidden), "nor in the free texts of an account, or in what halted the run"
    chat = propose(seen, {}, shipped(), Reader(chat=True)).message
    assert "Zoe saw nan" in chat and not set("<@") & set(chat)


def test_two_stores_are_both_passed_on() -> None:
    stores = {"RELAY_LEDGER_STORE": "/ledger", "RELAY_CHECKPOINT_STORE": "/big disk"}
    words = shlex.split(propose(view((AccountRow("a", "A", "ready"),)), stores, shipped()).command)
    assert words[2:4] == ["RELAY_LEDGER_STORE=/ledger", "RELAY_CHECKPOINT_STORE=/big disk"]


def test_the_person_of_a_notebook_gets_a_line_for_a_cell() -> None:
    for provider, shell in (("colab", False), ("kaggle", False), ("lab", True)):
        row = AccountRow("a", "A", "ready", owner="Ana", provider=provider)
        told = propose(view((row,)), {"RELAY_STORE": "s3://bucket/x"}, shipped())
        line = told.message.splitlines()[-1].strip()
        assert (line == told.command) == shell and ("bash" in told.message) == shell
        assert shell or line == 'notebook.settings(YOUR_NAME, run="r", store="s3://bucket/x")'
        assert told.document()["command"] == told.command, "a shell's, on whatever machine"


def test_every_key_of_the_first_document_is_kept() -> None:
    document = turn_of(AccountRow("a", "A", "ready")).document()
    assert document["schema"] == "relay.next/2"
    assert {"account", "label", "why", "command", "message"} <= set(document)


def test_a_thousand_accounts_are_ranked_and_ten_are_told() -> None:
    rows = tuple(AccountRow(f"a{n:04}", "x", "ready", seconds=float(n), provider="nowhere") for n in range(1000))
    turn = turn_of(*rows)
    assert turn.account == rows[0] and len(turn.others) == 999 and "and 989 more" in turn.text()
