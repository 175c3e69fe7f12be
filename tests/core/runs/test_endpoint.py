"""A store proves itself once for each address, before anything is appended to it, and never to those who only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.runs import opening
from storage.base import BadAddress, Ref
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.core.making import QuietRuntime
from tests.storage.counting import CountingStore

pytestmark = pytest.mark.slow


class Overwriting(Wrapper):
    """A server that ignores the condition of a conditional write."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put(name, data)


def notes(desk: Desk) -> list[Path]:
    return list((desk.folder / "relay_store").glob("selftest/passed.*.json"))


def test_a_store_that_passed_costs_one_look() -> None:
    store = CountingStore(MemoryStore())
    opening.ensure_tested(store, QuietRuntime())
    assert store.counts["put_if_absent"]
    store.counts.clear()
    opening.ensure_tested(store, QuietRuntime())
    assert dict(store.counts) == {"stat": 1}


def test_a_store_that_fails_is_not_recorded() -> None:
    store = Overwriting(MemoryStore("shaky"))
    with pytest.raises(BadAddress, match="shaky"):
        opening.ensure_tested(store, QuietRuntime())
    assert not list(store.list("selftest/passed"))


def test_another_address_of_the_same_store_is_tested_anew() -> None:
    first, second = MemoryStore("one"), MemoryStore("two")
    assert opening.passed(first) != opening.passed(second)
    assert "one" not in opening.passed(first)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--run", "r", "--target-steps", "2"),
        ("register", "account_1", "John's Colab"),
        ("init", "--run", "r"),
    ],
)
def test_writers_test_the_store_first_and_record_it(desk: Desk, words: tuple[str, ...]) -> None:
    desk(*words)
    assert len(notes(desk)) == 1


def test_doctor_records_what_it_tested_where_there_is_a_store_and_makes_none(desk: Desk) -> None:
    desk("doctor")
    assert not (desk.folder / "relay_store").exists()
    desk.train(3)
    notes(desk)[0].unlink()
    desk("doctor", "--run", "r")
    assert len(notes(desk)) == 1


@pytest.mark.parametrize("command", ["status", "report", "next", "verify", "evaluate", "export"])
def test_readers_never_test(desk: Desk, command: str) -> None:
    desk.train(3)
    notes(desk)[0].unlink()
    desk(command, "--run", "r")
    assert not notes(desk)


@pytest.mark.parametrize("command", ["run", "push", "fork", "register"])
def test_a_store_that_breaks_its_promise_is_refused_by_name_before_any_append(
    desk: Desk, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "run": ("run", "--run", "r", "--target-steps", "9"),
        "push": ("push", "--run", "r"),
        "fork": ("fork", "--run", "r", "--to", "branch"),
        "register": ("register", "account_7", "Maria's Kaggle"),
    }[command]
    desk.train(3)
    notes(desk)[0].unlink()
    before = sorted((desk.folder / "relay_store").rglob("*.json"))
    wrap_stores(monkeypatch, Overwriting)
    refused = desk(*words, code=78)
    assert (desk.folder / "relay_store").as_uri() in refused.err and "put_if_absent overwrote" in refused.err
    assert sorted((desk.folder / "relay_store").rglob("*.json")) == before


def test_both_stores_of_a_run_are_tested(desk: Desk) -> None:
    there = desk.folder / "elsewhere"
    desk.train(3, f"storage.checkpoint_url={there.as_uri()}")
    assert notes(desk) and list(there.glob("selftest/passed.*.json"))
