"""The log, the ledger and the lease broken in one place each (P2, P4, P5, P12)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from relay.core.checkpoint.commit import Writer
from relay.core.lease import blockers, lease
from relay.core.lease.blockers import Watch
from relay.core.lease.heartbeat import Heartbeat
from relay.core.lease.lease import Lease
from relay.core.ledger import keeping, ledger, rules
from relay.core.ledger.chain import Chain
from relay.core.ledger.changes import By, Commit, Refused, held
from relay.core.ledger.entry import Entry
from relay.core.ledger.frozen import MAX_FAILURES
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.reader import Reader
from relay.core.ledger.state import RunState
from relay.core.session import session
from storage.base import Exists, Unavailable
from storage.log import Log, Lost, Won
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.simulation.mutations.base import Patches, mutation, patch, rule
from tests.simulation.mutations.scenes import (
    crash_again,
    crowd,
    hung_training,
    lost_entry,
    nap,
    one_account_two_runs,
    silence_after,
    slow_heartbeats,
    two_runs_after_a_jump,
)


@mutation("overwrite", "P2: an entry is put, not put if absent", "I1: put on the ")
def _overwrite() -> Patches:
    return [patch(Log, "append", lambda log, seq, data, **_: Won(log.store.put(log.name(seq), data)))]


@mutation(
    "store-overwrites",
    "P2: the backend's put_if_absent replaces what is there",
    "I1: slot",
    "I1: registry slot",
    pinned=10,
)
def _store_overwrites() -> Patches:
    return [patch(MemoryStore, "put_if_absent", lambda store, name, data: store._put(name, data, replace=True))]


@mutation(
    "exists-is-ours",
    "P2: Exists is taken for our own entry, sent before",
    "I2: ",
    "I4: ",
    "P6: ",
    "it calls",
    pinned=13,
)
def _exists_is_ours() -> Patches:
    def append(log: Log, seq: int, data: bytes, **more: Any) -> Won | Lost:
        try:
            return Won(log.store.put_if_absent(log.name(seq), data))
        except Exists:
            return Won(log.ref(seq))
        except Unavailable:
            return real(log, seq, data, **more)

    real = Log.append
    return [patch(Log, "append", append)]


@mutation(
    "timeout-skips-slot",
    "P2: a send without an answer is sent again to the next slot",
    "I1: slot",
    "I1: registry",
    pinned=10,
)
def _timeout_skips_slot() -> Patches:
    def append(log: Log, seq: int, data: bytes, **more: Any) -> Won | Lost:
        try:
            return Won(log.store.put_if_absent(log.name(seq), data))
        except Unavailable:
            return real(log, seq + 1, data, **more)
        except Exists:
            return real(log, seq, data, **more)

    real = Log.append
    return [patch(Log, "append", append)]


@mutation(
    "later-slot-unsearched",
    "P2: an entry of unknown outcome goes to a later slot without a search for it",
    covered_by="only a commit is sent again after its outcome was unknown, and its key is refused a second time; "
    "without that: `later-slot-unsearched-key-unchecked`",
)
def _later_slot_unsearched() -> Patches:
    return [patch(Chain, "_catch_up", _catch_up_blindly)]


@mutation(
    "later-slot-unsearched-key-unchecked",
    "P2, P6: the same, and the rules take a (step, epoch) twice",
    "P2: the intent",
    "I6: a commit",
    "a checkpoint is retained twice",
    scene=silence_after("put_if_absent", "/ledger/", nth=3),
    pinned=5,
)
def _later_slot_and_no_rule() -> Patches:
    return [patch(Chain, "_catch_up", _catch_up_blindly), *_without_key_check()]


def _catch_up_blindly(chain: Chain[Any], point: Any, intent: Any) -> Any:
    tail = chain.log.tail(point.seq if point.seq >= 0 else None)
    return chain.reader.through(point, tail)


def _without_key_check() -> Patches:
    """No rule and no writer asks whether a checkpoint was committed before."""

    def append(writer: Writer, item: Any, checkpoint: Any) -> None:
        item.intent = item.intent or writer.lease.ledger.intent()
        writer.lease.append("commit", lambda _: Commit(checkpoint=checkpoint), item.intent)

    return [patch(keeping, "_check_new", lambda *_: None), patch(Writer, "_append", append)]


@mutation(
    "hole-is-tail", "P2, I1: an empty slot is the tail, whatever contradicts it", "I1: ", scene=lost_entry, pinned=1
)
def _hole_is_tail() -> Patches:
    return [
        patch(Log, "gaps", lambda *_, **__: []),
        patch(Log, "check_end", lambda *_: None),
        patch(Log, "hint", lambda _: None),
        patch(RunLedger, "check_epochs", lambda ledger, _: ledger.read()),
    ]


LOST_ACCOUNTS = ("registered accounts are gone", "registry slot")


@mutation(
    "remembered-state",
    "P4: after a lost slot the state computed before is sent again",
    *LOST_ACCOUNTS,
    scene=crowd,
)
def _remembered_state() -> Patches:
    return [patch(Chain, "_compose", _remembering(Chain._compose))]


@mutation("remembered-state-believed", "P4: the same, and readers compute nothing", *LOST_ACCOUNTS, scene=crowd)
def _remembered_and_believed() -> Patches:
    return [patch(Chain, "_compose", _remembering(Chain._compose)), patch(Reader, "_computed", Reader._believed)]


def _remembering(real: Callable[..., Entry]) -> Callable[..., Entry]:
    first: dict[str, Entry] = {}

    def compose(chain: Chain[Any], point: Any, kind: str, change: Any, by: By, nonce: str, passed: Any) -> Entry:
        if nonce not in first:
            first[nonce] = real(chain, point, kind, change, by, nonce, passed)
        place = {"seq": point.seq + 1, "base": point.base, "parent": point.digest}
        return first[nonce].model_copy(update=place)

    return compose


@mutation("epoch-reset", "I4: a release begins the count of epochs anew", "I4: ")
def _epoch_reset() -> Patches:
    real = rules._RULES["release"]
    return [rule("release", lambda *args: real(*args).model_copy(update={"epoch": 0}))]


@mutation(
    "holder-is-account", "P5: a process whose account holds the lease goes on under its epoch", "P6: ", "I5: ", pinned=7
)
def _holder_is_account() -> Patches:
    def acquire(ledger: RunLedger, runtime: Any, locks: Any, wish: Any, **more: Any) -> Lease:
        view = ledger.validate()
        holder = view.state.holder
        if holder is None or holder.account != wish.account:
            return real(ledger, runtime, locks, wish, **more)
        return Lease(ledger, runtime, replace(wish, session=holder.session), view, runtime.monotonic())

    real = lease.acquire
    return [patch(session, "acquire", acquire)]


@mutation("no-second-look", "P5: a silent heartbeat is believed at the first look", "P5: ", pinned=7)
def _no_second_look() -> Patches:
    def look(watch: Watch, holder: Any, sign: float, store_now: float, mono_now: float) -> Any:
        return None if store_now - sign > holder.ttl_s else real(watch, holder, sign, store_now, mono_now)

    real = Watch.look
    return [patch(Watch, "look", look)]


@mutation("no-proof-of-death", "P5: whoever wants the lease takes it", "P5: ", pinned=2)
def _no_proof_of_death() -> Patches:
    return [patch(Watch, "look", lambda *_: None)]


@mutation(
    "local-clock", "P5: a holder's silence is measured by the challenger's wall clock", "P5: ", scene=slow_heartbeats
)
def _local_clock() -> Patches:
    class Local(Wrapper):
        def __init__(self, inner: Any, runtime: Any) -> None:
            super().__init__(inner)
            self.runtime = runtime

        def now(self) -> float:
            self.inner.now()
            return float(self.runtime.wall())

    def obstacle(state: RunState, ledger: RunLedger, runtime: Any, *more: Any) -> Any:
        mine = copy(ledger)
        mine.store = Local(ledger.store, runtime)
        return real(state, mine, runtime, *more)

    real = blockers._obstacle
    return [patch(blockers, "_obstacle", obstacle)]


@mutation("beats-while-hung", "P5: heartbeats go on while training hangs", "P5: a heartbeat", scene=hung_training)
def _beats_while_hung() -> Patches:
    return [patch(Heartbeat, "_alive", lambda _: True)]


@mutation(
    "no-fence",
    "I5: an append is not refused when the epoch has grown, but only by the rules, and people are told of bad data",
    r"(P5: it had read that others took its lease; )?p\d+ ends with 65: .* does not hold the lease",
    pinned=12,
)
def _no_fence() -> Patches:
    return [patch(ledger, "check_fence", lambda *_: None)]


@mutation(
    "commits-after-fence",
    "I5: the same, and the rules take an entry of any epoch",
    "I5: ",
    "I4: ",
    scene=nap,
)
def _commits_after_fence() -> Patches:
    def anybody(state: RunState, by: By, kind: str) -> Any:
        if state.holder is None:
            return held(state, by, kind)
        return state.holder

    blind = patch(Lease, "superseded", lambda _: False)
    return [*_no_fence(), blind, patch(keeping, "held", anybody), patch(rules, "held", anybody)]


@mutation("two-runs", "P12: nobody asks whether the account trains another run", "P12: ", scene=one_account_two_runs)
def _two_runs() -> Patches:
    return [patch(session, "refuse_second_lease", lambda *_: None)]


@mutation("two-runs-after-a-jump", "P12: the same, and the clock was corrected", "P12: ", scene=two_runs_after_a_jump)
def _two_runs_after_a_jump() -> Patches:
    return _two_runs()


@mutation("never-halts", "P10: the second equal failure halts nothing", "P10: ", scene=crash_again)
def _never_halts() -> Patches:
    def failed(state: RunState, failure: Any) -> RunState:
        return state.model_copy(update={"failures": (*state.failures, failure)[-MAX_FAILURES:]})

    return [patch(rules, "_failed", failed)]


@mutation("halts-at-once", "P10: the first failure halts the run", "P10: a run was halted", pinned=3)
def _halts_at_once() -> Patches:
    return [patch(rules, "_failed", lambda state, failure: state.model_copy(update={"halted": "once"}))]


@mutation("lease-on-halted", "P10: a halted run is leased", "P10: a lease", pinned=32)
def _lease_on_halted() -> Patches:
    def unhalted(state: RunState, change: Any, by: By) -> RunState:
        if state.holder is not None and change.took_over is None:
            raise Refused("lease: held")
        return real(state.model_copy(update={"halted": None}), change, by)

    real = rules._RULES["lease"]
    return [
        rule("lease", unhalted),
        patch(lease, "refuse_halted", lambda _: None),
        patch(session, "refuse_halted", lambda _: None),
    ]
