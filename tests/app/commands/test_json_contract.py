"""The documents tools rely on: names, types, exit codes, and one document on stdout in every case."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
import typer

from relay.app.views.status import status_document
from relay.core.ledger.frozen import TARGET
from relay.people.status import RunStatus
from tests.app.cli import Desk
from tests.people.views import NOW, trained

STATUS: dict[str, Any] = {
    "schema": str,
    "run": str,
    "step": int,
    "target_steps": int,
    "target_changed": (dict, type(None)),
    "evaluation": dict,
    "untested": list,
    "epoch": int,
    "holder": (str, type(None)),
    "lease_expires_at": (str, type(None)),
    "head": (dict, type(None)),
    "links": list,
    "state": str,
    "halted_reason": (str, type(None)),
    "links_total": int,
}
HEAD = {"step": int, "epoch": int, "state_hash": str, "bytes": int, "committed_at": str}
LINK = {"epoch": int, "account": str, "from_step": int, "to_step": int, "certified": str}
CHECKPOINT = {"step": int, "ok": bool, "reason": str}
REPAIR: dict[str, Any] = {
    "schema": str,
    "run": str,
    "open": bool,
    "chosen": (str, type(None)),
    "choices": list,
    "histories": list,
    "store": dict,
    "machine": (dict, type(None)),
    "local": list,
    "file": (str, type(None)),
    "hint": (int, type(None)),
}


def conforms(document: dict[str, Any], names: dict[str, Any]) -> None:
    assert set(names) <= set(document)
    assert not [name for name, kind in names.items() if not isinstance(document[name], kind)], document


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_status_before_any_store_exists(desk: Desk) -> None:
    status = desk.status()
    conforms(status, STATUS)
    assert (status["schema"], status["state"], status["step"], status["head"]) == ("relay.status/1", "new", 0, None)


def test_status_of_a_run_begun_without_a_commit(desk: Desk) -> None:
    desk("init", "--run", "r")
    conforms(desk.status(), STATUS)
    assert desk.status()["state"] == "new" and desk.status()["head"] is None


def test_status_while_somebody_trains_and_after(desk: Desk) -> None:
    seen: list[dict[str, Any]] = []

    def sleep(seconds: float) -> None:
        if not seen:
            seen.append(desk.status())
        time.sleep(seconds)

    desk.plugin.made = {"sleep": sleep, "step_s": 0.001}
    began = time.time()
    desk.train(3, "lease.ttl_s=60")
    (training,) = seen
    conforms(training, STATUS)
    assert (training["state"], training["holder"], training["epoch"]) == ("training", "account_1", 1)
    assert began + 55 < moment(training["lease_expires_at"]) < time.time() + 65
    after = desk.status()
    conforms(after, STATUS)
    conforms(after["head"], HEAD)
    conforms(after["links"][0], LINK)
    assert (after["state"], after["holder"], after["lease_expires_at"]) == ("finished", None, None)
    assert began - 2 < moment(after["head"]["committed_at"]) < time.time() + 2
    assert after["links"][0]["certified"] in ("exact", "not-exact", "unknown")


def test_the_newest_fifty_links_are_listed_and_all_are_counted() -> None:
    links = tuple(trained().links[0].model_copy(update={"epoch": epoch}) for epoch in range(31, 101))
    view = RunStatus("p", "r", 9, NOW, trained(epoch=100, links=links, links_total=100))
    document = status_document(view)
    assert [link["epoch"] for link in document["links"]] == list(range(51, 101))
    assert document["links_total"] == 100


def test_verify_lists_every_retained_checkpoint(desk: Desk) -> None:
    for target in (3, 6):
        desk.train(target)
    found = desk("verify", "--run", "r", "--json").json
    assert (
        found["ok"] is True
        and type(found["entries"]) is int
        and {one["cause"] for one in found["incidents"]} <= {TARGET}
    )
    for checkpoint in found["checkpoints"]:
        conforms(checkpoint, CHECKPOINT)
    assert [c["step"] for c in found["checkpoints"]] == [3, 6]


def test_repair_of_a_sound_run_is_one_document(desk: Desk) -> None:
    desk.train(3)
    found = desk("repair", "--run", "r", "--json").json
    conforms(found, REPAIR)
    assert (found["schema"], found["open"], found["store"]["step"]) == ("relay.repair/1", False, 3)


def test_report_carries_the_status_and_both_clocks(desk: Desk) -> None:
    desk.train(3)
    report = desk("report", "--run", "r", "--json").json
    conforms(report, STATUS)
    assert {"session_ends_at", "machine", "accounts", "percent"} <= set(report)


def test_a_target_that_is_reached_trained_nothing(desk: Desk) -> None:
    desk.train(5)
    done = desk.train(5, "--json").json
    assert (done["exit_code"], done["from_step"], done["durable_step"], done["commits"]) == (0, 5, 5, 0)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status", "bach_size=1"), 78),
        (("run", "--target-steps", "x"), 2),
        (("run", "--nosuch"), 2),
        (("verify", "--run", "nosuch"), 78),
        (("fly",), 2),
        (("register",), 2),
        (("fork", "--run", "r"), 2),
        (("gc",), 78),
    ],
)
def test_an_error_is_one_document_too(desk: Desk, words: tuple[str, ...], code: int) -> None:
    document = json.loads(desk(*words, "--json", code=code).out)
    conforms(document, {"schema": str, "exit_code": int, "error": str, "message": str})
    assert (document["schema"], document["exit_code"]) == ("relay.error/1", code)
    assert document["error"] == {2: "UsageError", 78: "BadConfig"}[code]


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), typer.Abort(), ZeroDivisionError("boom")])
def test_so_are_an_interrupt_and_a_bug(desk: Desk, raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise raised

    monkeypatch.setattr("relay.app.commands.command.overview_in", look)
    code = 1 if isinstance(raised, ZeroDivisionError) else 130
    document = json.loads(desk("status", "--json", code=code).out)
    assert (document["schema"], document["exit_code"]) == ("relay.error/1", code)


def test_a_failed_session_is_one_document(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 2}
    document = json.loads(desk.train(9, "--json", code=65).out)
    assert document["schema"] == "relay.error/1" and document["error"] == "BadData"
    assert "nan" in document["message"] and document["exit_code"] == 65


def test_numbers_that_are_none_are_null(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(3)
    monkeypatch.setattr("tests.app.cli.Toy.evaluate", lambda *_: {"loss": float("nan"), "exact_accuracy": 0.5})
    found = desk("evaluate", "--run", "r", "--json").json
    assert found["metrics"] == {"loss": None, "exact_accuracy": 0.5}


def test_a_memory_store_lives_as_long_as_its_process(desk: Desk) -> None:
    words = ("storage.url=memory://contract",)
    desk.train(3, *words)
    assert desk("status", "--run", "r", "--json", *words).json["step"] == 3
