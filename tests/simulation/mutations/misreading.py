"""The proof before an entry passes over others broken in one place each (P4), and the worlds for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

from relay.core.checkpoint import passedover, retention
from relay.core.checkpoint.retention import Keep
from relay.core.ledger import chain, rules
from relay.core.ledger.changes import Refused
from relay.core.ledger.entry import Entry
from relay.core.ledger.fields import Passed
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.passing import Prover
from relay.core.ledger.reader import Point, Reader
from relay.core.ledger.state import RunState
from storage import evidence
from storage.base import Stat
from storage.log import Log
from tests.simulation.actor import Actor, Fate
from tests.simulation.fleet import Command, Fleet, Order
from tests.simulation.mutations.base import Patches, mutation, patch
from tests.simulation.mutations.stage import Broken, calm_world, start, train
from tests.simulation.reads import CUT_BY_THE_LINK, Kind, Plan, Target
from tests.simulation.reckoning import reckon
from tests.simulation.stores import MEMORY
from tests.simulation.weather import Episode

Scene = Callable[..., None]
DAY_S = 86400.0


def bad_for_ben(fleet: Fleet, of: str, nth: int, lasts: float, kind: Kind = "cut", target: Target = "slot") -> None:
    """The slot of that entry cannot be read on the second machine for a while."""
    fleet.sky.reads.plans.append(Plan(kind, target, of, nth, lasts, "m1", False, 0.4))


def ann_dies_after(fleet: Fleet, entries: int) -> None:
    """Ann's session is killed as soon as so many of its entries have landed."""
    ann = start(fleet, 0, "ann")
    ann.actor.fate = Fate(point=("put_if_absent", "/ledger/"), nth=entries, when="after")
    fleet.world.run()


def falls_asleep(fleet: Fleet, one: Command, seconds: float) -> None:
    """Its machine does nothing for a while."""
    one.process.suspend(seconds)
    one.actor.troubled_at = one.actor.woke_at = fleet.world.now + seconds


def healed(kind: Kind, *, lasts: float = DAY_S, target: Target = "slot") -> Scene:
    """Ann's last entry, a commit or her release, cannot be read by ben, who trains on; then it is whole again."""

    def scene(seed: int, *, mutation: Broken = nullcontext) -> None:
        with mutation(), calm_world(seed) as fleet:
            if seed % 2:
                bad_for_ben(fleet, "release", 1, lasts, kind, target)
                train(fleet, 0, "ann", target=12)
            else:
                bad_for_ben(fleet, "commit", 3, lasts, kind, target)
                ann_dies_after(fleet, 4)  # the lease and three commits
            train(fleet, 1, "ben", target=24)
            fleet.sky.reads.clear()
            fleet.pace.target = 36
            reckon(fleet)

    scene.__name__ = f"{target} {kind} for {lasts:.0f} s"
    return scene


def bad_download(kind: Kind, *, on: str = MEMORY, connection: bool = False) -> Scene:
    """The files of the head, which are whole, arrive wrongly at ben's; an older checkpoint does not."""

    def scene(seed: int, *, mutation: Broken = nullcontext) -> None:
        with mutation(), calm_world(seed, on) as fleet:
            share = (0.0, 0.4, 0.9)[seed % 3]
            fleet.sky.reads.plans.append(Plan(kind, "file", "commit", 4, DAY_S, "m1", connection, share))
            start(fleet, 0, "ann").keep = Keep(4)
            fleet.world.run()
            train(fleet, 1, "ben", target=24)
            fleet.sky.reads.clear()
            fleet.pace.target = 36
            reckon(fleet)

    scene.__name__ = f"{kind} download"
    return scene


def lease_unread(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Ann takes the lease and falls asleep, at once or after some heartbeats; ben cannot read her lease, and trains."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "lease", 1, DAY_S)
        fleet.pace.step_s, begin = 30.0, fleet.world.now
        ann = start(fleet, 0, "ann")
        fleet.world.at(begin + (0.5 if seed % 2 else 40.0), lambda: falls_asleep(fleet, ann, 7200.0))
        fleet.world.at(begin + 60.0, lambda: start(fleet, 1, "ben"))
        fleet.world.run(to_the_end=True)
        fleet.sky.reads.clear()
        reckon(fleet)


def hours_after(seed: int, *, mutation: Broken = nullcontext) -> None:
    """The same as `healed`, and ben cleans up for hours; every second listing hides ann's files from him."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "commit", 3, DAY_S)
        ann_dies_after(fleet, 4)
        if seed % 2:
            fleet.sky.episodes.append(Episode("hiding", fleet.world.now, fleet.world.now + 300.0))
        fleet.pace.step_s = 300.0
        train(fleet, 1, "ben", target=48)
        fleet.sky.reads.clear()
        reckon(fleet)


def cut_by_the_link(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Ben reads ann's last entry shorter than the size that the store reports."""
    with mutation(), calm_world(seed) as fleet:
        fleet.sky.reads.plans.append(Plan("cut", "slot", "commit", 3, DAY_S, "m1", False, CUT_BY_THE_LINK))
        ann_dies_after(fleet, 4)
        train(fleet, 1, "ben", target=24)
        fleet.sky.reads.clear()
        fleet.pace.target = 36
        reckon(fleet)


def session_unread(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Of the first session that ann begins, with all that it writes, ben sees nothing; then he cleans up for hours."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "commit", 1, DAY_S, target="two slots")
        ann_dies_after(fleet, 2)
        fleet.sky.episodes.append(Episode("hiding", fleet.world.now, fleet.world.now + 300.0))
        fleet.pace.step_s, fleet.pace.target = 300.0, 48
        start(fleet, 1, "ben").weather.random = _HidesAll(seed)
        fleet.world.run()
        fleet.sky.reads.clear()
        reckon(fleet)


class _HidesAll(Random):
    """By whose chance a listing hides all that it may."""

    def random(self) -> float:
        return 0.99


def genesis_unread(seed: int, *, mutation: Broken = nullcontext) -> None:
    """No session has trained yet, and no process can read how the run began."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "genesis", 3, DAY_S)  # after those of the registry and of the first run
        fleet.begin("other")
        ben = fleet.start(Order(1, fleet.world.now, 1, "ben", 1, "begin"), calm=True)
        fleet.world.run()
        fleet.oracle.require(ben.misread, "ben has read the genesis as it is")


def registered_meanwhile(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Of people who register one after another, ben cannot read the newest entry; then it is whole again for all."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "account", 1, DAY_S, target="two slots" if seed % 2 else "slot")
        for number in (0, 1, 2):
            start(fleet, number, f"person-{number}", verb="register")
            fleet.world.run()
            if number == 1:
                fleet.sky.reads.clear()
        reckon(fleet)


def twice_unread(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Ben cannot read ann's last entry and passes over it; ann, whose machine cannot read his, passes over that."""
    with mutation(), calm_world(seed) as fleet:
        bad_for_ben(fleet, "commit", 3, DAY_S)
        ann_dies_after(fleet, 4)
        fleet.sky.reads.plans.append(Plan("cut", "slot", "lease", 2, DAY_S, "m0", False, 0.4))
        ben = start(fleet, 1, "ben")
        ben.actor.fate = Fate(point=("put_if_absent", "/ledger/"), nth=1 + seed % 3, when="after")
        fleet.world.run()
        train(fleet, 0, "ann", target=24)
        fleet.sky.reads.clear()
        fleet.pace.target = 36
        reckon(fleet)


def each_other(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Ben takes the lease over while ann sleeps, and falls asleep; neither can read the other's entries."""
    with mutation(), calm_world(seed) as fleet:
        fleet.pace.step_s, begin = 30.0, fleet.world.now
        fleet.sky.reads.plans.append(Plan("cut", "slot", "lease", 2, DAY_S, "m0", False, 0.4))
        bad_for_ben(fleet, "commit", 2, DAY_S)
        ann = start(fleet, 0, "ann")
        ann.actor.fate = Fate(point=("put_if_absent", "/ledger/"), nth=3, when="after")
        fleet.world.at(begin + 100.0, lambda: falls_asleep(fleet, ann, 200.0))
        watch, asleep = fleet.sky.watch, 600.0 + 10.0 * seed

        def sleeps(did: str, name: str, old: bytes | None, new: bytes | None, by: Actor) -> None:
            watch(did, name, old, new, by)
            if did == "put_if_absent" and by.account == "ben" and by.alive and not by.troubled:
                falls_asleep(fleet, [*fleet.crew.values()][-1], asleep)

        fleet.sky.watch = sleeps
        fleet.world.at(begin + 110.0, lambda: start(fleet, 1, "ben"))
        fleet.world.run(to_the_end=True)
        fleet.sky.reads.clear()
        reckon(fleet)


@mutation("read-once", "P4: a slot is passed over once it was read wrongly", "P4: .* less than", scene=healed("cut"))
def _read_once() -> Patches:
    def prove(prover: Prover[Any], point: Point[Any], *_: Any, **__: Any) -> Passed:
        slots = range(point.base + 1, point.seq + 1)
        digests = tuple(Reader(prover._log.again(), prover._machine).read(seq).digest for seq in slots)
        return Passed(digests=digests, kept=tuple(prover.keep(point.state, slots)))

    return [patch(Prover, "prove", prove)]


@mutation("read-at-once", "P4: all readings are made at once", "P4: .* less than", scene=healed("cut"))
def _read_at_once() -> Patches:
    return [patch(Prover, "_wait", lambda *_: None)]


@mutation(
    "differing-readings",
    "P4: readings that differ from each other are as good as others",
    "P4: .* never read",
    "P4: .* readings",
    "P4: .* whole",
    scene=healed("flickering"),
)
def _differing_readings() -> Patches:
    def look(prover: Prover[Any], start: Any, point: Any) -> Any:
        found = real(prover, start, replace(point, digest=_Any()))
        return _Alike(found)

    real = Prover._look
    return [patch(Prover, "_look", look), patch(Prover, "_check_server", lambda *_: None)]


class _Any(str):
    """Is equal to every digest."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


class _Alike(dict[int, tuple[str, bool]]):
    """Is equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@mutation("one-connection", "P4: all readings are made on one connection", "P4: .* one connection", scene=healed("cut"))
def _one_connection() -> Patches:
    return [patch(Log, "again", lambda log: log), patch(evidence, "fresh", lambda store: store)]


@mutation(
    "healed-counts-again",
    "P4: a slot that is whole again is valid again, and what has passed over it is not",
    "(it calls step \\d+ durable; )?p1000 ends with 65: .* an entry has been lost",
    scene=healed("cut"),
)
def _healed_counts_again() -> Patches:
    def passing_over(reader: Reader[Any], point: Point[Any], entry: Entry) -> Any:
        if entry.base != point.base:
            raise Refused(f"it builds on slot {entry.base}, and slot {point.base} is valid")
        return real(reader, point, entry)

    real = Reader._passing
    return [patch(Reader, "_passing", passing_over)]


@mutation(
    "healed-counts-again-epochs-unseen",
    "P4: the same, nothing is kept, and nobody looks for files of later epochs",
    "P4: .* is whole",
    scene=healed("cut"),
    pinned=1,
)
def _healed_and_unseen() -> Patches:
    return [*_healed_counts_again(), *_nothing_kept(), patch(RunLedger, "refuse_later_epoch", lambda *_: None)]


@mutation(
    "holder-passes-over",
    "P4: a session passes over what it cannot read with a commit, though that may be another's lease",
    "P4: .* under a lease",
    scene=each_other,
)
def _holder_passes_over() -> Patches:
    def prove(prover: Prover[Any], point: Point[Any], *more: Any, **_: Any) -> Passed:
        return real(prover, point, *more)

    real = Prover.prove
    return [patch(Prover, "prove", prove)]


@mutation(
    "unread-epoch-collected",
    "P4: the clean-up takes what a listing hid when its commit was passed over",
    "P4: .* was deleted",
    scene=hours_after,
    pinned=3,
)
def _unread_epoch_collected() -> Patches:
    return [patch(RunState, "may_have_committed", lambda *_: False)]


@mutation(
    "unread-session-collected",
    "P4: the same, of an epoch that the passed slots began",
    "P4: .* was deleted",
    scene=session_unread,
)
def _unread_session_collected() -> Patches:
    return [patch(RunState, "may_have_committed", lambda state, epoch: epoch in state.unread)]


@mutation(
    "store-unasked",
    "P4: nobody asks the store what it has in a slot before it is passed over",
    "P4: .* the store says that",
    scene=cut_by_the_link,
)
def _store_unasked() -> Patches:
    return [patch(Prover, "_check_server", lambda *_: None)]


@mutation("kept-collected", "P4: the same, and what was kept", "P4: .* was deleted", scene=hours_after)
def _kept_collected() -> Patches:
    def judge(state: RunState, *more: Any, **others: Any) -> Any:
        return real(state.model_copy(update={"kept": ()}), *more, **others)

    real = retention.decide_files
    return [patch(retention, "decide_files", judge), *_unread_epoch_collected()]


@mutation("nothing-kept", "P6: a commit that is passed over is not kept", "P6: .* not kept", scene=healed("cut"))
def _nothing_kept() -> Patches:
    return [patch(passedover, "_unknown", lambda *_: [])]


@mutation(
    "later-epochs-unseen",
    "P4: nobody looks for files of the epochs that the slots may have begun",
    "P4: .* has (not listed|seen epoch)",
    scene=lease_unread,
)
def _later_epochs_unseen() -> Patches:
    return [patch(RunLedger, "refuse_later_epochs", lambda *_: None)]


@mutation(
    "epoch-taken-again",
    "I4: a lease takes the next epoch, whatever it passes over",
    "I4: epoch 1 was taken before",
    scene=lease_unread,
    pinned=1,
)
def _epoch_taken_again() -> Patches:
    def append(log: Any, *more: Any, **others: Any) -> Any:
        if epoch := others.get("epoch"):
            others["epoch"] = lambda state, _: epoch(state, 0)
        return real(log, *more, **others)

    real = chain.Chain.append
    number = property(lambda state: state.epoch + 1)
    return [patch(chain.Chain, "append", append), patch(RunState, "next_epoch", number)]


@mutation(
    "epochs-counted",
    "I4: a lease skips as many epochs as it passes over slots, and forgets that one of these may have skipped some",
    "I4: epoch 3 was taken before",
    scene=twice_unread,
)
def _epochs_counted() -> Patches:
    def append(log: Any, *more: Any, **others: Any) -> Any:
        if epoch := others.get("epoch"):
            others["epoch"] = lambda state, passed: epoch(state, 0) + bool(passed)
        return real(log, *more, **others)

    def noted(state: RunState, by: Any, voids: Any, passed: Passed) -> RunState:
        return real_noted(state, by, voids, passed).model_copy(update={"skipped": state.epoch + len(voids)})

    real, real_noted = chain.Chain.append, rules._noted_passing
    return [patch(chain.Chain, "append", append), patch(rules, "_noted_passing", noted)]


@mutation(
    "genesis-passes-over",
    "P4: a run whose genesis cannot be read is begun again",
    "P4: .* begins the log",
    scene=genesis_unread,
)
def _genesis_passes_over() -> Patches:
    def through(reader: Reader[Any], point: Point[Any], tail: int) -> Point[Any]:
        for seq in range(point.seq + 1, tail + 1):
            point = reader.follow(point, reader.slot(seq))
        return point

    def passed(log: Any, point: Point[Any], *_: Any) -> Passed | None:
        return None if point.base == point.seq else Passed(digests=(point.digest,))

    unchecked = patch(Entry, "check_passing", lambda _: None)
    return [patch(Reader, "through", through), patch(chain.Chain, "_passed", passed), unchecked]


@mutation(
    "same-connection-again",
    "P7: wrong bytes are read a second time on the connection that brought them",
    "P7: .* is intact",
    scene=bad_download("flipped", connection=True),
)
def _same_connection_again() -> Patches:
    return [patch(evidence, "fresh", lambda store: store)]


@mutation(
    "server-unasked",
    "P7: nobody asks the server what it has before wrong bytes count as damage",
    "P7: .* is intact",
    scene=bad_download("cut"),
)
def _server_unasked() -> Patches:
    return [patch(evidence, "_contradiction", lambda *_: "")]


@mutation(
    "server-hash-ignored",
    "P7: the server's own hash of a file is no evidence for it",
    "P7: .* is intact",
    scene=bad_download("flipped", on="memory-as-s3"),
)
def _server_hash_ignored() -> Patches:
    def contradiction(stat: Stat, *more: Any) -> str:
        return real(replace(stat, sha256=None, block_hash=None), *more)

    real = evidence._contradiction
    return [patch(evidence, "_contradiction", contradiction)]
