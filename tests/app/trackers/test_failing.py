"""A tracker that fails delays training by nothing and ends it by nothing; the next session brings it up to date."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.app.trackers.base import Sink, SinkOff, in_a_line, public, read_mark
from relay.app.trackers.follow import TRIES
from relay.core.checkpoint.retention import Keep
from relay.core.errors import Exit
from relay.core.session.assembly import END_S
from storage.base import Unavailable
from tests.app.trackers.relays import Kept, truth, with_sink
from tests.core.lab import PROJECT, RUN, Lab, Session, said


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.world.close()


def session(
    lab: Lab, kept: Kept | Callable[[], Sink], account: str = "ana", target: int = 60, **more: object
) -> Session:
    made = lab.session(account, target_steps=target, keep=Keep(8), wait_s=400.0, **more)  # type: ignore[arg-type]
    make = (lambda: kept) if isinstance(kept, Kept) else kept
    return with_sink(lab, made, make, made.ctx.local_folder.root / "trackers")


def quick(lab: Lab, tmp_path: Path) -> float:
    """How long the same session takes without any tracker."""
    other = Lab(tmp_path / "other")
    try:
        return other.run(other.session(target_steps=60, keep=Keep(8))).total_s
    finally:
        other.world.close()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("begin", RuntimeError),
        ("write", OSError),
        ("write", MemoryError),
        ("close", KeyError),
        ("begin", TimeoutError),
        ("begin", SystemExit),
        ("write", KeyboardInterrupt),
        ("close", CancelledError),
    ],
)
def test_one_that_raises_is_told_once_and_noted_once(
    lab: Lab, tmp_path: Path, where: str, error: type[BaseException]
) -> None:
    secret = "hf_abcdefghijklmnop"

    def fail(what: str) -> None:
        if what == where:
            raise error(f"no space left, key {secret}\nsecond line")

    kept = Kept({}, {}, fail)
    made = session(lab, kept)
    outcome = lab.run(made)
    assert (outcome.exit_code, lab.state().step) == (Exit.OK, 60)
    assert outcome.total_s < quick(lab, tmp_path) + 1.0
    assert len([line for line in made.told if "could not be fed" in line]) == 1
    noted = [one for one in lab.state().incidents if one.cause == "tracker"]
    assert len(noted) <= 1 and not any(secret in one.text for one in noted)
    assert where == "close" or (error.__name__ in noted[0].text and "--to toy" in noted[0].text)
    kept.before = lambda what: None
    assert lab.run(session(lab, kept, "ben", 80)).exit_code == Exit.OK
    assert kept.lines["chain"] == truth(lab), "what failed is caught up, and nothing is there twice"


@pytest.mark.parametrize(("sent", "code"), [(True, Exit.OK), (False, Exit.UPLOAD_FAILED)])
def test_p5_one_that_fails_after_the_lease_was_given_back_makes_no_loss_of_it(lab: Lab, sent: bool, code: Exit) -> None:
    """Its notes are refused then: that was reported as the lease's end (76), and the report stayed here."""

    def fail(what: str) -> None:
        if what == "close":
            raise OSError

    def refuse(verb: str, name: str) -> None:
        if verb == "put" and name.startswith("checkpoints/") and not sent:
            raise Unavailable(name)

    made = session(lab, Kept({}, {}, fail), every_steps=1000, patience_s=20.0)
    made.store.fail = refuse
    outcome = lab.run(made)
    assert outcome.exit_code == code and "is over" not in said(outcome)
    assert any("could not be fed" in line for line in made.told) and lab.state().holder is None
    assert [*lab.shared.list(f"runs/{PROJECT}/{RUN}/sessions/")], "its report is in the store"


@pytest.mark.parametrize("where", ["begin", "write", "close"])
def test_one_that_hangs_is_left_behind(lab: Lab, tmp_path: Path, where: str) -> None:
    made: list[Session] = []

    def hang(what: str) -> None:
        if what == where:
            made[0].process.sleep(1e6)

    made.append(session(lab, Kept({}, {}, hang)))
    began = lab.world.now
    outcome = lab.run(made[0])
    assert (outcome.exit_code, lab.state().step, lab.state().holder) == (Exit.OK, 60, None)
    assert lab.world.now - began < quick(lab, tmp_path) + END_S + 1.0
    assert any("Toy tracker" in line for line in made[0].told)


def test_a_session_in_a_hurry_waits_a_second_at_most(lab: Lab) -> None:
    kept = Kept({}, {}, lambda what: made.process.sleep(1e6) if what == "close" else None)
    made = session(lab, kept, target=10_000)
    made.start()
    ended: list[float] = []
    lab.world.at(lab.world.now + 20.0, lambda: made.ctx.signal.ask("sigterm"))
    lab.world.at(lab.world.now + 20.0, lambda: ended.append(lab.world.now))
    lab.world.run()
    assert made.outcome.exit_code == Exit.SIGTERM and lab.state().holder is None
    assert lab.world.now - ended[0] < 6.0


def test_one_that_cannot_be_had_says_so_and_is_left_out(lab: Lab) -> None:
    def off() -> Sink:
        raise SinkOff("it is not installed: pip install toy")

    made = session(lab, off)
    assert lab.run(made).exit_code == Exit.OK
    (line,) = [line for line in made.told if "Toy tracker" in line]
    assert line.endswith("pip install toy")
    assert not [one for one in lab.state().incidents if one.cause == "tracker"]


def test_it_is_left_alone_after_some_failures_and_comes_back_after_fewer(lab: Lab) -> None:
    tries: list[str] = []

    def fail(what: str) -> None:
        tries.append(what)
        if what == "write" and tries.count("write") < TRIES:
            raise ConnectionResetError

    kept = Kept({}, {}, fail)
    assert lab.run(session(lab, kept, target=100)).exit_code == Exit.OK
    assert kept.lines["chain"] == truth(lab)

    def always(what: str) -> None:
        tries.append(what)
        raise ConnectionResetError

    tries.clear()
    assert lab.run(session(lab, Kept({}, {}, always), "ben", 200)).exit_code == Exit.OK
    assert tries == ["begin", "close"] * TRIES, "each is let go before another is made"


def test_several_people_on_several_machines_feed_one_tracker(lab: Lab) -> None:
    kept = Kept({}, {})
    for account, target, fed in (("ana", 40, True), ("ben", 80, False), ("cai", 120, True), ("ana", 160, True)):
        made = session(lab, kept, account, target) if fed else lab.session(account, target_steps=target, keep=Keep(8))
        assert lab.run(made).exit_code == Exit.OK
    assert kept.lines["chain"] == truth(lab)


@pytest.mark.parametrize("machines", [("a", "b"), ("a", "a")])
def test_a_rewind_begins_a_line_of_its_own_on_whatever_machine(lab: Lab, machines: tuple[str, str]) -> None:
    kept = Kept({}, {})
    assert lab.run(session(lab, kept, "ana", 60, machine=machines[0])).exit_code == Exit.OK
    before = truth(lab)
    made = session(lab, kept, "ben", 90, machine="elsewhere")
    lab.damage("step_60.e1/state.json", lambda data: data[:-2] + b"9}")
    assert lab.run(made).exit_code == Exit.OK
    assert lab.run(session(lab, kept, "ana", 120, machine=machines[1])).exit_code == Exit.OK
    assert set(kept.lines) == {"chain", "chain-rewind-1"}
    assert kept.lines["chain"] == before and kept.lines["chain-rewind-1"] == truth(lab)
    mark = read_mark(made.ctx.local_folder.root / "trackers" / "toy.json")
    assert mark and mark.rewinds == 1


def test_what_a_machine_remembers_saves_reading_and_is_not_believed_where_the_tracker_knows_less(lab: Lab) -> None:
    kept = Kept({}, {})
    assert lab.run(session(lab, kept, "ana", 200, machine="a")).exit_code == Exit.OK
    again = session(lab, kept, "ana", 210, machine="a")
    reads = _ledger_reads(lab, again)
    emptied = Kept({}, {})
    assert _ledger_reads(lab, session(lab, emptied, "ana", 220, machine="a")) > reads + 10
    assert emptied.lines["chain"] == truth(lab)


def _ledger_reads(lab: Lab, made: Session) -> int:
    assert lab.run(made).exit_code == Exit.OK
    return sum("/ledger/" in name and verb in ("get", "read_range") for verb, name in made.store.calls)


def test_a_ledger_that_is_away_for_a_moment_is_read_again(lab: Lab) -> None:
    kept = Kept({}, {})
    made = session(lab, kept, target=200)

    def fail(verb: str, name: str) -> None:
        if verb in ("get", "read_range") and 8 < lab.world.now % 100 < 10:
            raise Unavailable("away")

    made.store.fail = fail
    assert lab.run(made).exit_code == Exit.OK
    assert lab.run(session(lab, kept, "ben", 220)).exit_code == Exit.OK
    assert kept.lines["chain"] == truth(lab)


def test_a_configuration_is_told_without_what_is_nobody_s_business() -> None:
    config = {"lr": 1e-4, "task": "sudoku", "arch": {"mlp_t": True, "forward_dtype": "bfloat16"}, "seed": None,
              "data": {"train": "sha256:" + "a" * 64, "data_dir": "x", "test": "/home/ana/secret place.npz"},
              "store_url": "s3", "api_key": "abc", "notes": "Ana's laptop"}  # fmt: skip
    assert public(config) == {"lr": 1e-4, "task": "sudoku", "arch": {"mlp_t": True, "forward_dtype": "bfloat16"},
        "seed": None, "data": {"train": "sha256:" + "a" * 64, "data_dir": "(not told)", "test": "(not told)"},
        "store_url": "(not told)", "api_key": "(not told)", "notes": "(not told)"}  # fmt: skip


def test_what_is_cut_short_holds_no_beginning_of_a_secret() -> None:
    told = in_a_line(OSError("x" * 180 + " hf_abcdefghijklmnopqrstuvwxyz and more"))
    known = in_a_line(OSError("x" * 180 + " correct-horse-battery and more"), ["correct-horse-battery"])
    assert "hf_a" not in told and "correct" not in known and len(told) <= 200
