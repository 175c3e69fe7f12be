"""Compiled code goes from session to session through the store if machines allow it, signed, and is never needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relay.app.messages.errors import paragraph
from relay.core.checkpoint.compilecache import KEPT, WAIT_S, NoCacheKey, secret_of, sweep
from relay.core.errors import Exit
from relay.core.lease.signals import StopSignal
from relay.core.names import CACHES
from storage.base import Denied, QuotaExceeded, Unavailable
from storage.memory import MemoryStore
from tests.app.cli import Desk
from tests.core.compiled import GOOD, KEY, NAME, SECRET, ToyKernels, heard, session, signed, told
from tests.core.lab import Lab
from tests.facts import raising


def test_what_one_session_compiled_the_next_one_loads(lab: Lab) -> None:
    first, kernels = session(lab, "one", target_steps=10)
    assert lab.run(first).exit_code == Exit.OK
    assert kernels.counts() == {"kernels_loaded": 0, "kernels_compiled": 2}
    assert "miss" in told(first)[0] and "stored" in told(first)[1]
    second, kernels = session(lab, "two", target_steps=20)
    outcome = lab.run(second)
    assert kernels.counts() == {"kernels_loaded": 2, "kernels_compiled": 0}
    assert [(event.found, event.files) for event in heard(second)] == [("hit", 2)]
    assert outcome.certified == "exact", "how code came here is no part of the path (P9)"
    document = second.ctx.startup.document()
    assert document["kernels_loaded"] == 2 and document["cache_s"] < 1
    assert ("put", NAME) not in second.store.calls


def test_what_is_compiled_later_is_sent_at_the_end(lab: Lab) -> None:
    first, _ = session(lab, "one", target_steps=10)
    first.workload.late = ("backward of an evaluation",)
    lab.run(first)
    assert [line for line in told(first) if "stored" in line] == told(first)[1:] and len(told(first)) == 3
    second, kernels = session(lab, "two", target_steps=20)
    lab.run(second)
    assert len(json.loads(kernels.unpacked[0])) == 3 and kernels.counts()["kernels_compiled"] == 0


def test_kernels_of_this_machine_are_not_fetched_again(lab: Lab) -> None:
    lab.run(session(lab, "one", target_steps=10)[0])
    again, kernels = session(lab, "one", target_steps=20)
    lab.run(again)
    assert [(event.found, event.files) for event in heard(again)] == [("local", 2)]
    assert kernels.unpacked == [] and kernels.counts()["kernels_compiled"] == 0


@pytest.mark.parametrize("error", [Denied("no"), Unavailable("gone"), QuotaExceeded("full")])
def test_storage_that_fails_costs_the_warm_start_only(lab: Lab, error: Exception) -> None:
    made, kernels = session(lab, "one", target_steps=10)

    def fail(verb: str, name: str) -> None:
        if name.startswith(CACHES):
            raise error

    made.store.fail = fail
    assert lab.run(made).exit_code == Exit.OK
    assert kernels.counts()["kernels_compiled"] == 2
    assert "not read" in told(made)[0] and "not stored" in told(made)[1]


def test_one_that_comes_too_late_is_not_loaded(lab: Lab) -> None:
    """The first step begins at most WAIT_S after the restore, and nothing appears under a session that compiles."""
    lab.shared.put(NAME, signed(GOOD))
    made, kernels = session(lab, "one", target_steps=300)

    def crawl(verb: str, name: str) -> None:
        if name == NAME and verb == "after-get":
            made.process.sleep(WAIT_S + 5)

    made.store.fail = crawl
    lab.run(made)
    assert kernels.unpacked == [] and "not in time" in told(made)[0]
    assert WAIT_S <= made.ctx.startup.phases["cache"] < WAIT_S + 1


def test_a_signal_ends_the_wait(lab: Lab) -> None:
    lab.shared.put(NAME, signed(GOOD))
    made, _ = session(lab, "one")
    made.ctx.signal = StopSignal()

    def stop(verb: str, name: str) -> None:
        if name == NAME and verb == "get":
            made.ctx.signal.ask("stop")
            made.process.sleep(100)

    made.store.fail = stop
    began = lab.world.now
    assert lab.run(made).exit_code == Exit.HANDOFF
    assert lab.world.now - began < 5


def test_a_disk_that_hangs_in_unpacking_delays_the_first_step_by_no_more(lab: Lab) -> None:
    lab.shared.put(NAME, signed(GOOD))
    made, kernels = session(lab, "one", target_steps=300)
    kernels.unpack = lambda data: made.process.sleep(1000) or 0  # type: ignore[method-assign]
    assert lab.run(made).exit_code == Exit.OK
    assert "not in time" in told(made)[0]
    assert WAIT_S <= made.ctx.startup.phases["cache"] < WAIT_S + 1


def test_nothing_is_sent_that_could_be_in_the_way_of_the_last_commit(lab: Lab) -> None:
    made, _ = session(lab, "one", budget_s=60.0, target_steps=1000)
    lab.run(made)
    assert ("put", NAME) not in made.store.calls


def test_a_hanging_upload_delays_the_end_by_little_and_never_the_release(lab: Lab) -> None:
    made, _ = session(lab, "one", target_steps=10)

    def hang(verb: str, name: str) -> None:
        if name == NAME and verb == "put":
            made.process.sleep(1000)

    made.store.fail = hang
    began = lab.world.now
    assert lab.run(made).exit_code == Exit.OK
    assert lab.kinds()[-1] == "release" and lab.state().updated - began < 5
    assert lab.world.now - began < 25


def test_a_signal_ends_the_wait_for_an_upload_after_the_release(lab: Lab) -> None:
    made, _ = session(lab, "one", target_steps=10)
    made.store.fail = lambda verb, name: made.process.sleep(1000) if (verb, name) == ("put", NAME) else None

    def interrupt() -> None:
        while lab.kinds()[-1:] != ["release"]:
            made.process.sleep(0.5)
        made.ctx.signal.ask("sigterm")

    made.process.spawn("interrupt", interrupt)
    assert lab.run(made).exit_code == Exit.OK
    assert lab.world.now - lab.state().updated < 3


def test_a_session_that_failed_does_not_stay_for_it(lab: Lab) -> None:
    made, _ = session(lab, "one", target_steps=10)
    made.workload.crash = {5: ZeroDivisionError("boom")}

    def hang(verb: str, name: str) -> None:
        if name == NAME and verb == "put":
            made.process.sleep(1000)

    made.store.fail = hang
    began = lab.world.now
    made.start()
    with pytest.raises(ZeroDivisionError):
        lab.world.run()
    assert lab.world.now - began < 10


def test_a_store_keeps_the_newest_few_and_touches_nothing_else() -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0])
    for number in range(KEPT + 3):
        now[0] += 1
        store.put(f"{CACHES}{number:064x}", b"x")
    store.put(f"{CACHES}notes.txt", b"x")
    store.put("checkpoints/p/r/step_1.e1/manifest.json", b"x")
    sweep(store)
    left = {stat.name for stat in store.list("")}
    assert left == {
        *(f"{CACHES}{number:064x}" for number in range(3, KEPT + 3)),
        f"{CACHES}notes.txt", "checkpoints/p/r/step_1.e1/manifest.json",
    }  # fmt: skip


def test_compiled_code_goes_first_where_space_is_short(lab: Lab) -> None:
    lab.shared.put(NAME, signed(GOOD))
    made = lab.session(target_steps=20)
    refused: list[str] = []

    def full(verb: str, name: str) -> None:
        if verb == "put" and name.startswith("checkpoints/") and not refused:
            refused.append(name)
            raise QuotaExceeded("full")

    made.store.fail = full
    assert lab.run(made).exit_code == Exit.OK
    assert not list(lab.shared.list(CACHES))


@pytest.mark.parametrize(("value", "length"), [("", 0), ("  ", 0), ("tooshort", 8)])
def test_a_missing_or_short_key_is_refused_with_the_command_that_makes_one(value: str, length: int) -> None:
    assert secret_of({"RELAY_CACHE_KEY": value}, allowed=False) is None
    with raising(NoCacheKey, "RELAY_CACHE_KEY") as refused:
        secret_of({"RELAY_CACHE_KEY": value}, allowed=True)
    assert refused.value.length == length
    text = paragraph(refused.value)
    assert "secrets.token_hex(32)" in text and "tooshort" not in text
    assert secret_of({"RELAY_CACHE_KEY": SECRET.decode() + "\n"}, allowed=True) == SECRET


def test_a_key_is_whatever_bytes_the_environment_holds() -> None:
    assert secret_of({"RELAY_CACHE_KEY": os.fsdecode(b"\xff" * 32)}, allowed=True) == b"\xff" * 32


def test_the_command_line_uses_it_only_where_this_machine_says_so(tmp_path: Path) -> None:
    kernels = ToyKernels(tmp_path / "kernels")
    kernels.open()
    kernels.compile()
    desk = Desk(tmp_path / "desk", environ={"RELAY_CACHE_KEY": SECRET.decode()})
    desk.plugin.compiled = kernels
    off = desk.train(5)
    assert "Compile cache" not in off.err and not list((tmp_path / "desk").rglob("caches"))
    on = desk("run", "--run", "r", "--account", "account_1", "--target-steps", "10", "--json", RELAY_CACHE="1")
    assert "Compile cache: 2 kernels of an earlier session" in on.err and "stored" in on.err
    assert {"cache_s", "kernels_loaded", "kernels_compiled"} <= set(on.json["startup"])
    assert len(list((tmp_path / "desk").rglob(f"caches/{KEY}"))) == 1
    desk.plugin.compiled = None
    assert "not needed" in desk("run", "--run", "r", "--target-steps", "15", RELAY_CACHE="1").err
    refused = desk("run", "--run", "r", "--target-steps", "20", "cache.allow=true", code=78, RELAY_CACHE_KEY="")
    assert "RELAY_CACHE_KEY" in refused.err


def test_doctor_says_whether_it_is_on_and_never_the_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", environ={"RELAY_CACHE_KEY": SECRET.decode()})
    desk.train(5)
    for wanted in ("off", "on"):
        said = desk("doctor", "--run", "r", "--json", RELAY_CACHE=str(int(wanted == "on")))
        (row,) = [row for row in said.json["findings"] if row["subject"] == "compile cache"]
        assert row["text"].startswith(wanted) and SECRET.decode() not in said.out + said.err
    refused = desk("doctor", "--run", "r", code=78, RELAY_CACHE="1", RELAY_CACHE_KEY="short")
    assert "RELAY_CACHE_KEY" in refused.out and "short" not in refused.out + refused.err


def test_no_run_can_switch_it_on_for_others(tmp_path: Path) -> None:
    """A run pins the settings that determine training; the switch is not among them, on any machine."""
    desk = Desk(tmp_path / "desk", environ={"RELAY_CACHE_KEY": SECRET.decode(), "RELAY_CACHE": "1"})
    desk.train(5)
    everything = b"".join(path.read_bytes() for path in desk.folder.rglob("*.json"))
    assert b"cache" not in everything and SECRET not in everything
