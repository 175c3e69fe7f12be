"""Small worlds made for one mutation each, where the drawn ones hold such trouble seldom; the same judge looks on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from relay.core.checkpoint.retention import Keep
from relay.core.ledger.target import Rule
from storage.base import Ref, Unavailable
from tests.core.lab import PROJECT
from tests.simulation.actor import Actor, Fate
from tests.simulation.fleet import Fleet, Order
from tests.simulation.mutations.stage import Broken, calm_world, start, train, waits
from tests.simulation.weather import Episode
from tests.simulation.workload import Crash

Scene = Callable[..., None]
LONG_S = 12_000.0


def lost_entry(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A session ends, one of the newest entries vanishes from the storage, and another session begins."""
    with mutation(), calm_world(seed) as fleet:
        run = train(fleet, 1, "ann", target=6)
        slot = len(run.digests) - 2 - seed % 3  # no process could notice the loss of the very newest entry
        fleet.sky.store.delete(Ref(f"runs/{PROJECT}/chain/ledger/{slot:020d}.json"))
        fleet.trace.note(fleet.world.now, "world", f"loses slot {slot}")
        fleet.oracle.verdict.entries_lost = True
        written = fleet.summary.entries
        train(fleet, 2, "ben", target=12)
        fleet.oracle.require(fleet.summary.entries == written, "I1: something was written after a lost entry")


def hung_training(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Training hangs in the middle of a step, for good, while another session waits for the lease."""
    with mutation(), calm_world(seed) as fleet:
        fleet.start(Order(1, fleet.world.now, 0, "ann", 0, "run"), calm=True)
        command = next(iter(fleet.crew.values()))
        sleep, step = command.workload.sleep, 4 + seed % 5
        command.workload.sleep = lambda s: sleep(LONG_S if command.workload.step == step else s)
        fleet.world.at(fleet.world.now + 20.0, lambda: waits(fleet))
        fleet.world.run()
        by_ben = [actor for actor in fleet.oracle.runs[PROJECT, "chain"].holders.values() if actor.account == "ben"]
        fleet.oracle.require(bool(by_ben), "P5: a hung session was never superseded")


def hours_on_one_table(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A run of hours that keeps every third checkpoint; the second, from which they borrow, no rule keeps by itself."""
    with mutation(), calm_world(seed) as fleet:
        fleet.pace.table_every, fleet.pace.step_s, fleet.pace.ttl_s, fleet.pace.target = 60, 1200.0, 600.0, 15
        start(fleet, 1, "ann").keep = Keep(2, every=3)
        fleet.world.run()
        step = fleet.oracle.runs[PROJECT, "chain"].state["step"]
        fleet.oracle.require(step == 15, f"it ended at step {step}")


def all_damaged(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Every retained checkpoint is damaged in the storage, and a session begins."""
    with mutation(), calm_world(seed) as fleet:
        run = train(fleet, 1, "ann", target=12)
        for key in run.retained:
            name = next(name for name in sorted(run.named[key]) if name.endswith(("state.json", "manifest.json")))
            fleet.oracle.damage(run, name, (b"", b"{}", None)[seed % 3])
        train(fleet, 2, "ben", target=24)
        fleet.oracle.require(run.state["step"] == 12, f"I6: the run went on, to step {run.state['step']}")


def holder_of_old_view(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A run of hours with a clean-up every ten minutes; its holder sleeps for an hour, is superseded, and wakes."""
    with mutation(), calm_world(seed) as fleet:
        fleet.pace.target, fleet.pace.step_s, begin = 42, 240.0, fleet.world.now
        fleet.start(Order(1, begin, 0, "ann", 0, "run"), calm=True)
        sleeper = next(iter(fleet.crew))
        fleet.world.at(begin + 4500.0 + 31.0 * seed, lambda: sleeper.suspend(3600.0))
        fleet.world.at(begin + 4600.0 + 31.0 * seed, lambda: waits(fleet))
        fleet.world.run()
        fleet.oracle.require(
            len(fleet.oracle.runs[PROJECT, "chain"].holders) == 2, "P5: the sleeper was not superseded"
        )


def crowd(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Many people register at the same moment, and each loses the slot to another."""
    with mutation(), calm_world(seed) as fleet:
        for number in range(8):
            fleet.start(Order(number, fleet.world.now, number, "ann", 0, "register"), calm=True)
        fleet.world.run()
        lost = fleet.registered - fleet.oracle.accounts
        fleet.oracle.require(not lost, f"registered accounts are gone: {lost}")


def one_account_two_runs(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The same person starts two runs, on two machines, within seconds."""
    with mutation(), calm_world(seed) as fleet:
        _two_runs(fleet, 5.0 * (seed % 4))


def two_runs_after_a_jump(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The store's clock was hours wrong when the first run began, and right when the same person starts the second."""
    with mutation(), calm_world(seed) as fleet:
        fleet.sky.offset_s = (-7200.0, 7200.0)[seed % 2]
        fleet.world.at(fleet.world.now + 40.0, fleet.sky.correct_clock)
        _two_runs(fleet, 105.0 + 5.0 * (seed % 4))


def _two_runs(fleet: Fleet, apart_s: float) -> None:
    fleet.begin("other")
    fleet.pace.target, then = 60, fleet.world.now + apart_s
    fleet.start(Order(1, fleet.world.now, 0, "ann", 0, "run"), calm=True)

    def start_another() -> None:
        fleet.start(Order(2, then, 1, "ann", 1, "run"), calm=True)

    fleet.world.at(then, start_another)
    fleet.world.run(to_the_end=True)


def slow_heartbeats(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The holder's network is away for less than its TTL; the challenger's clock is two hours ahead."""
    with mutation(), calm_world(seed) as fleet:
        fleet.machines[1].skew, fleet.pace.target, begin = 7200.0, 60, fleet.world.now
        fleet.sky.episodes.append(Episode("down", begin + 30.0, begin + 70.0 + seed % 8, "m0"))
        fleet.start(Order(1, begin, 0, "ann", 0, "run"), calm=True)
        fleet.world.at(begin + 30.0, lambda: waits(fleet))
        fleet.world.run()


def forked(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A person forks a run."""
    with mutation(), calm_world(seed) as fleet:
        train(fleet, 1, "ann", target=12)
        start(fleet, 2, "ben", verb="fork")
        fleet.world.run()


def other_device(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The second session's machine computes different values."""
    with mutation(), calm_world(seed) as fleet:
        train(fleet, 1, "ann", target=12)
        fleet.pace.target = 24
        ben = start(fleet, 2, "ben")
        ben.workload.impure = ben.actor.impure = 1
        fleet.world.run()


def crash_again(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Training crashes at the same step for everybody."""
    with mutation(), calm_world(seed) as fleet:
        for number, account in enumerate(("ann", "ben")):
            start(fleet, number, account).workload.crash = {3 + seed % 6: Crash("a bug")}
            fleet.world.run()


def killed_before_append(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A session is killed when all files of its checkpoint are stored, and its entry is not."""
    with mutation(), calm_world(seed) as fleet:
        start(fleet, 1, "ann").actor.fate = Fate(point=("put_if_absent", "/ledger/"), nth=2 + seed % 2)
        fleet.world.run()
        train(fleet, 2, "ben", target=12)


def dies(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A session dies after some commits; a session on another machine goes on."""
    with mutation(), calm_world(seed) as fleet:
        ann = start(fleet, 0, "ann")
        fleet.world.at(fleet.world.now + 25.0 + seed % 5, lambda: ann.actor.die(fleet.world.now))
        fleet.world.run()
        train(fleet, 1, "ben", target=12)


def damaged_head(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The head is damaged in the storage, two older ones are sound."""
    with mutation(), calm_world(seed) as fleet:
        start(fleet, 0, "ann").keep = Keep(4)
        fleet.world.run()
        run = fleet.oracle.runs[PROJECT, "chain"]
        fleet.oracle.damage(run, sorted(run.named[run.retained[-1]])[seed % 3], b"")
        train(fleet, 1, "ben", target=24)


def damaged_manifest(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A retained manifest, not the head's, is damaged before a session that will clean up begins."""
    with mutation(), calm_world(seed) as fleet:
        fleet.pace.step_s, fleet.pace.target = 60.0, 24
        start(fleet, 0, "ann").keep = Keep(3)
        fleet.world.run()
        run = fleet.oracle.runs[PROJECT, "chain"]
        step, epoch = run.retained[seed % 2]
        fleet.oracle.damage(run, f"{run.prefix}step_{step}.e{epoch}/manifest.json", b"{}")
        fleet.world.now += 2 * 3600.0
        fleet.pace.target = 36
        start(fleet, 1, "ben").keep = Keep(8)
        fleet.world.run()


def nap(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The holder sleeps just long enough to be superseded, and wakes before its successor's first commit."""
    with mutation(), calm_world(seed) as fleet:
        fleet.pace.step_s, fleet.pace.target, begin = 20.0, 30, fleet.world.now
        ann = start(fleet, 0, "ann")
        fleet.world.at(begin + 100.0, lambda: ann.process.suspend(95.0 + 5.0 * seed))
        fleet.world.at(begin + 100.0, lambda: waits(fleet))
        fleet.world.run()


def left_behind(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A machine that computes different values keeps an unsent checkpoint, and comes back when the run has gone on."""
    with mutation(), calm_world(seed) as fleet:
        begin = fleet.world.now
        fleet.sky.episodes.append(Episode("down", begin + 20.0, begin + 9000.0, "m0"))
        fleet.pace.target_rule = Rule.REPLACE
        for number, impure, target in ((0, 1, 12), (1, 0, 9), (2, 1, 12)):
            fleet.pace.target = target
            command = start(fleet, number, f"person-{number}")
            command.workload.impure = command.actor.impure = impure
            fleet.world.run()
            fleet.world.now += 7200.0


def silence_after(verb: str, part: str, nth: int = 1) -> Scene:
    """The answer to the n-th such write is lost, and then the store is silent for a while, longer from seed to seed."""

    def scene(seed: int, *, mutation: Broken = nullcontext) -> None:
        with mutation(), calm_world(seed) as fleet:
            fleet.pace.step_s = 100.0
            _fall_silent(fleet, verb, part, nth, 10.0 + 30.0 * seed)
            train(fleet, 0, "ann", target=12)
            train(fleet, 1, "ben", target=24)

    scene.__name__ = f"silence after {part.strip('/')} {nth}"
    return scene


def _fall_silent(fleet: Fleet, verb: str, part: str, nth: int, seconds: float) -> None:
    watch, left = fleet.sky.watch, [nth]

    def fall_silent(did: str, name: str, old: bytes | None, new: bytes | None, by: Actor) -> None:
        watch(did, name, old, new, by)
        if did == verb and part in name:
            left[0] -= 1
            if left[0] == 0:
                now = by.troubled_at = fleet.world.now
                fleet.sky.episodes.append(Episode("down", now, now + seconds))
                raise Unavailable(f"{verb} {name}: the answer was lost")

    fleet.sky.watch = fall_silent


def silent_at_restore(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The store falls silent while a session reads the head, and answers again when it would read an older one."""
    with mutation(), calm_world(seed) as fleet:
        start(fleet, 0, "ann").keep = Keep(4)
        fleet.world.run()
        fleet.pace.target, ben = 24, start(fleet, 1, "ben")
        reach, now = ben.weather._reach, fleet.world.now

        def fall_silent(verb: str, name: str, when: str) -> None:
            reach(verb, name, when)
            if "state.json" in name and not fleet.sky.episodes:
                fleet.sky.episodes.append(Episode("down", now, fleet.world.now + 15.0 + 10.0 * seed))

        ben.weather._reach = fall_silent  # type: ignore[method-assign]
        fleet.world.run()
