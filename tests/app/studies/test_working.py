"""The loop of `study run`, over a ledger in memory, with sessions that only lease, commit and release."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from relay.app.studies.picking import Seen, Why
from relay.app.studies.working import Ended, Worker
from relay.core.errors import Exit, LeaseHeld
from relay.core.ledger.changes import Commit, Lease, Release
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.runs.registered import listed_runs
from storage.memory import MemoryStore
from tests.app.studies.made import design
from tests.core.making import QuietRuntime, checkpoint, genesis, id_of, pair_of
from tests.core.rulings import NOW

TOYS = design()
ALL = {one.name for one in TOYS.runs(TOYS.points.values())}


class AtTarget(Exception):
    """Another session has reached the target."""


@dataclass
class World:
    """A store, and what sessions did in it."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(clock=lambda: NOW))
    trained: list[str] = field(default_factory=list)
    """Each time that a session got a lease."""
    refused: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ledger(self, name: str, number: int) -> RunLedger:
        return RunLedger(self.store, TOYS.project, name, QuietRuntime(number))

    def read(self, leave_out: Collection[str]) -> Seen:
        return Seen(listed_runs(pair_of(self.store), TOYS.project, leave_out, readers=1), NOW)

    def step(self, name: str) -> int:
        return self.ledger(name, 9).read().state.step

    def worker(self, account: str, number: int, **more: object) -> Worker:
        runs = TOYS.runs(TOYS.points.values())
        start = more.pop("start", None) or (lambda words: self.session(words, number))
        left = more.pop("left_s", lambda: float("inf"))
        return Worker(TOYS, runs, account, self.read, lambda run: "", start, left, self.told.append, **more)  # type: ignore[arg-type]

    def session(self, words: Sequence[str], number: int, until: int | None = None) -> Ended:
        """What a session's process does with the store."""
        self.commands.append(list(words))
        options = dict(pairwise(words))
        if words[0] == "fork":
            self.ledger(options["--to"], number).begin(genesis(TOYS.project, options["--to"]), session=id_of(number))
            return Ended(0, {})
        if words[0] == "init":
            self.ledger(options["--run"], number).begin(genesis(TOYS.project, options["--run"]), session=id_of(number))
            return Ended(0, {})
        name, steps = options["--run"], int(options.get("--target-steps", 0))
        ledger = self.ledger(name, number)
        ledger.begin(genesis(TOYS.project, name), session=id_of(number))

        def free(state: RunState) -> Lease:
            if state.holder:
                raise LeaseHeld("held")
            if state.head and state.step >= state.target_steps:
                raise AtTarget
            return Lease(target_steps=steps or state.target_steps)

        try:
            state = ledger.append("lease", free, session=id_of(number), account=options["--account"]).state
        except LeaseHeld:
            self.refused.append(name)
            return Ended(Exit.LEASE_HELD, {"message": "held"})
        except AtTarget:  # as a session that finds nothing to do
            return Ended(0, {"durable_step": self.step(name), "from_step": self.step(name), "message": "done"})
        self.trained.append(name)
        reached = min(until or state.target_steps, state.target_steps)

        def committed(before: RunState) -> Commit:
            return Commit(checkpoint=checkpoint(reached, state.epoch, ledger.names))

        about = {"session": id_of(number), "account": options["--account"], "epoch": state.epoch}
        if reached > state.step:
            ledger.append("commit", committed, **about)
        ledger.append("release", lambda _: Release(reason="over", seconds=1.0), **about)
        code = Exit.OK if reached == state.target_steps else Exit.HANDOFF
        return Ended(code, {"durable_step": reached, "from_step": state.step, "train_s": 1.0, "message": "ok"}, 11.0)


def test_one_worker_trains_every_run_once_controls_first() -> None:
    world = World()
    code, found = world.worker("ana", 1).work()
    assert code == 0 and not found.free and {left.why for left in found.left} == {Why.DONE}
    assert world.trained[:4] == ["base-s1", "big-s1", "longer-s1", "huge-s1"]
    assert Counter(world.trained) == Counter(ALL)
    assert world.step("longer-s2") == 60
    base = next(words for words in world.commands if "base-s1" in words)
    assert {"--new", "project=toys", "evaluation.test_also=raw", "evaluation.test_rows=10", "seed=1"} <= set(base)
    fork = next(words for words in world.commands if words[0] == "fork")
    assert fork[1:7] == ["--run", "base-s1", "--to", "longer-s1", "--from-step", "40"]


@pytest.mark.parametrize("turn", range(3))
def test_two_workers_that_pick_at_once_never_train_one_run(turn: int) -> None:
    """Both have read the same state when they start their first sessions."""
    world, both = World(), threading.Barrier(2, timeout=20)
    codes: dict[str, int] = {}

    def work(account: str, number: int) -> None:
        first = [both.wait]

        def start(words: Sequence[str]) -> Ended:
            while first:
                first.pop()()
            return world.session(words, number)

        codes[account] = world.worker(account, number, start=start).work()[0]

    threads = [threading.Thread(target=work, args=one) for one in (("ana", 1), ("ben", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert Counter(world.trained) == Counter(ALL) and set(codes.values()) <= {0, Exit.LEASE_HELD}
    assert world.refused.count("base-s1") <= 1 and {world.step(name) for name in ALL} == {40, 60}


def test_a_lease_lost_at_the_pick_means_the_next_run() -> None:
    world = World()

    def start(words: Sequence[str]) -> Ended:
        if "base-s1" in words and words[0] == "run" and not world.refused:
            ledger = world.ledger("base-s1", 5)
            ledger.begin(genesis("toys", "base-s1"), session=id_of(5))
            ledger.append("lease", lambda _: Lease(target_steps=40), session=id_of(5), account="ben")
        return world.session(words, 1)

    code, found = world.worker("ana", 1, start=start).work()
    assert code == Exit.LEASE_HELD and world.refused == ["base-s1"]
    left = {one.run.name: (one.why, one.detail) for one in found.left if one.why is not Why.DONE}
    assert left == {"base-s1": (Why.HELD, "ben"), "longer-s1": (Why.WAITS, "base-s1")}


def test_an_account_that_trains_elsewhere_is_not_offered_every_run() -> None:
    world = World()
    code, _ = world.worker("ana", 1, start=lambda words: world.commands.append(words) or Ended(73, {})).work()
    assert code == Exit.LEASE_HELD and len(world.commands) == 2


@pytest.mark.parametrize("code", [75, 69, 74, 77, 78, 130, 143])
def test_what_ends_the_machine_s_turn_ends_the_command(code: int) -> None:
    world = World()
    worker = world.worker("ana", 1, start=lambda words: world.commands.append(words) or Ended(code, {}))
    assert worker.work()[0] == code and len(world.commands) == 1


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (137, 1), (65, 65), (0, 1)])
def test_a_session_that_crashes_or_does_not_get_on_costs_its_run_only(code: int, expected: int) -> None:
    """0 without the target reached would be asked for ever."""
    world = World()

    def start(words: Sequence[str]) -> Ended:
        return Ended(code, {"durable_step": 3}) if "big-s1" in words else world.session(words, 1)

    ended, found = world.worker("ana", 1, start=start).work()
    assert ended == expected and Counter(world.trained) == Counter(ALL - {"big-s1"})
    assert [one.run.name for one in found.left if one.why is Why.FAILED] == ["big-s1"]


def test_no_session_begins_without_time_for_a_start_and_two_commits() -> None:
    """A session takes 10 s besides training, so with 9 s left none begins; the first begins with any time."""
    world, clock = World(), [25.0]

    def start(words: Sequence[str]) -> Ended:
        clock[0] -= 11
        return world.session(words, 1)

    code, found = world.worker("ana", 1, start=start, left_s=lambda: clock[0]).work()
    assert code == Exit.HANDOFF and world.trained == ["base-s1", "big-s1"] and found.free
    assert "--budget-minutes" in world.commands[0]


def test_a_run_that_pinned_other_settings_is_passed_by() -> None:
    world = World()
    world.session(["run", "--run", "big-s1", "--target-steps", "40", "--account", "ben"], 4, until=5)
    worker = world.worker("ana", 1)
    worker.differs = lambda run: "batch_size" if run.name == "big-s1" else ""
    code, found = worker.work()
    assert code == Exit.BAD_CONFIG and world.step("big-s1") == 5
    assert [(one.run.name, one.detail) for one in found.left if one.why is Why.CHANGED] == [("big-s1", "batch_size")]


def test_settings_of_the_session_and_of_the_file_go_along_and_a_begun_run_keeps_its_target() -> None:
    world = World()
    world.session(["run", "--run", "base-s1", "--target-steps", "40", "--account", "ben"], 4, until=5)
    worker = world.worker("ana", 1, relay=["--config", "c", "device=cpu"], filed=frozenset({"batch_size"}))
    worker.work()
    words = next(words for words in world.commands[1:] if "base-s1" in words)
    assert {"device=cpu", "batch_size=4", "--config"} <= set(words) and "--target-steps" not in words


def test_where_only_init_begins_a_run_the_command_does_it_first() -> None:
    """A run that another session has begun since is no failure."""
    world = World()

    def start(words: Sequence[str]) -> Ended:
        done = world.session(words, 1)
        return Ended(78, {}) if words[0] == "init" and "big-s1" in words else done

    code, _ = world.worker("ana", 1, inits=True, start=start).work()
    assert code == 0 and Counter(world.trained) == Counter(ALL)
    begun = [words[2] for words in world.commands if words[0] == "init"]
    assert begun == [name for name in world.trained if not name.startswith("longer")]


@pytest.mark.parametrize(("too_long", "code"), [(0, Exit.BAD_CONFIG), (1, Exit.HANDOFF)])
def test_a_test_that_the_budget_is_too_short_for_keeps_no_other_from_its_test(too_long: int, code: int) -> None:
    """With 78 if the command's whole time is too short for it; the next command has more time for a later one."""
    world, asked = World(), list[str]()
    world.worker("ana", 1).work()  # at their targets, without a test

    def start(words: Sequence[str]) -> Ended:
        asked.append(dict(pairwise(words))["--run"])
        if len(asked) == too_long + 1:
            return Ended(Exit.BAD_CONFIG, {"message": "no time", "untested": ["test"], "durable_step": 40}, 5.0)
        return Ended(Exit.OK, {"message": "tested", "untested": [], "durable_step": 60}, 5.0)

    found_code, found = world.worker("ben", 2, start=start).work()
    assert set(asked) == ALL and len(asked) == len(ALL) and found_code == code
    assert [(one.why, one.detail) for one in found.left if one.code] == [(Why.FAILED, "no time")]
