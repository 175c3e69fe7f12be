"""Random histories of entries, allowed and not: the invariants hold after each one."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from relay.core.ledger.changes import (
    Archive,
    By,
    Commit,
    Delete,
    Lease,
    Noted,
    Refused,
    Release,
    Resume,
    Retire,
    Rewind,
    TookOver,
    Unarchive,
)
from relay.core.ledger.frozen import MAX_GPUS, WAIT_S
from relay.core.ledger.rules import apply, links_to_archive
from relay.core.ledger.sessionreport import Samples
from relay.core.ledger.state import Failure, History, RunState
from relay.core.ledger.usage import by_gpu
from tests.core.making import NAMES, checkpoint, genesis, id_of

sessions = st.integers(1, 3)
shifts = st.sampled_from([0, 0, 0, 0, -1, 1])
steps = st.integers(-2, 6)
kinds = st.none() | st.sampled_from([f"GPU {n}" for n in range(MAX_GPUS + 2)])
places = st.lists(st.integers(0, 8), max_size=3)


class Histories(RuleBasedStateMachine):
    """Three sessions that know little of each other try everything."""

    @initialize()
    def begin(self) -> None:
        self.now = 1.7e9
        self.state = apply(None, "genesis", genesis().model_dump(mode="json"), By(id_of(1), None, 0, self.now))
        self.committed: set[tuple[int, int]] = set()
        self.leases = 0

    def send(self, kind: str, change: Any, session: int, shift: int) -> None:
        """Apply, or be refused; then compare before and after."""
        before, epoch = self.state, self.state.epoch + (kind == "lease") + shift
        self.now += 10.0
        who = By(id_of(session), f"account_{session}", epoch, self.now)
        try:
            self.state = apply(before, kind, change.model_dump(mode="json"), who)
        except Refused:
            return
        self.check_step(before, kind, who, change)

    def check_step(self, before: RunState, kind: str, who: By, change: Any) -> None:
        after = self.state
        assert after.epoch == before.epoch + (kind == "lease"), "I4"
        if kind in ("commit", "retire", "rewind", "release"):
            holder = before.holder
            assert holder and (holder.session, holder.epoch) == (who.session, who.epoch), "I5"
        if kind == "rewind":
            assert after.step < before.step or before.step == 0, "I6"
            assert not before.committed_by(who.epoch), "P7"
        else:
            assert after.step >= before.step, "I6"
        if kind == "commit":
            assert change.checkpoint.key not in self.committed, "P5: a pair is committed once"
            self.committed.add(change.checkpoint.key)
            told = change.samples.steps if change.samples else ()
            assert all(before.step < step <= after.step for step in told), "samples are of a commit's own steps"
        if kind == "lease":
            self.leases += 1
            assert before.halted is None, "P10"
        if kind == "delete":
            assert before.archived and self.now - before.archived >= WAIT_S, "never by accident"
            assert after.step == before.step and not after.retained
        else:
            assert after.head is not None or before.head is None, "I6: never back to nothing"
        assert before.deleted is None, "nothing follows a deletion"
        assert before.archived is None or kind in ("unarchive", "delete"), "an archived run has no holder"
        if kind not in ("lease", "commit", "release") and not (kind == "archive" and change.took_over):
            assert (after.usage, after.gpus) == (before.usage, before.gpus), "usage is changed by sessions alone"
        assert after.gpus[: len(before.gpus)] == before.gpus, "a kind of GPU keeps its place"

    @rule(session=sessions, shift=shifts, dead=st.booleans(), gpu=kinds)
    def lease(self, session: int, shift: int, dead: bool, gpu: str | None) -> None:
        gone = TookOver(epoch=self.state.epoch, reason="silent", seconds=5.0) if dead else None
        moved = links_to_archive(self.state)
        total = (self.state.history.links if self.state.history else 0) + len(moved)
        history = History(ref="x", sha256="0" * 64, links=total) if moved else None
        self.send("lease", Lease(took_over=gone, target_steps=50, history=history, gpu=gpu), session, shift)

    @rule(session=sessions, shift=shifts, step=steps, metric=st.none() | st.floats(0, 1), told=st.none() | steps)
    def commit(self, session: int, shift: int, step: int, metric: float | None, told: int | None) -> None:
        key = max(0, self.state.step + step), max(0, self.state.epoch + shift)
        rows = (max(0, self.state.step + (told or 0)),)
        samples = None if told is None else Samples(steps=rows, seconds=(0,), columns={"loss": (1.0,)})
        self.send("commit", Commit(checkpoint=checkpoint(*key, metric=metric), samples=samples), session, shift)

    @rule(session=sessions, shift=shifts, going=places, gone=places)
    def retire(self, session: int, shift: int, going: list[int], gone: list[int]) -> None:
        retire = tuple(self.state.retained[i].key for i in going if i < len(self.state.retained))
        collected = tuple(self.state.retired[i].key for i in gone if i < len(self.state.retired))
        self.send("retire", Retire(retire=retire, collected=collected), session, shift)

    @rule(session=sessions, shift=shifts, back=st.integers(0, 3))
    def rewind(self, session: int, shift: int, back: int) -> None:
        sound = [c.key for c in self.state.undamaged]
        if len(sound) > back:
            target = sound[-1 - back]
            damaged = tuple(sound[len(sound) - back :]) or (target,)
            self.send("rewind", Rewind(damaged=damaged, to=target, evidence="x"), session, shift)

    @rule(session=sessions, shift=shifts, seconds=st.floats(0, 100))
    def release(self, session: int, shift: int, seconds: float) -> None:
        self.send("release", Release(reason="budget", seconds=seconds), session, shift)

    @rule(session=sessions, shift=shifts, machine=st.sampled_from("12"))
    def fail(self, session: int, shift: int, machine: str) -> None:
        what = Failure(cause="crash", step=self.state.step, config_hash="c" * 64, fingerprint=machine * 64)
        self.send("incident", Noted(cause="crash", text="t", step=1, failure=what), session, shift)

    @rule(session=sessions)
    def resume(self, session: int) -> None:
        self.send("resume", Resume(), session, 0)

    @rule(session=sessions, shift=shifts, dead=st.booleans())
    def archive(self, session: int, shift: int, dead: bool) -> None:
        gone = TookOver(epoch=self.state.epoch, reason="silent", seconds=5.0) if dead else None
        self.send("archive", Archive(took_over=gone), session, shift)

    @rule(session=sessions)
    def unarchive(self, session: int) -> None:
        self.send("unarchive", Unarchive(), session, 0)

    @rule(session=sessions, waited=st.booleans())
    def delete(self, session: int, waited: bool) -> None:
        self.now += WAIT_S if waited else 0.0
        self.send("delete", Delete(), session, 0)

    @invariant()
    def the_head_is_sound_and_retained(self) -> None:
        state = self.state
        if state.head is None:
            assert (state.step == 0 or state.deleted) and not state.retained
            return
        assert state.head in state.undamaged and state.step == state.head.step
        assert state.undamaged[-1] == state.head
        assert state.best is None or ((best := state.checkpoint(state.best)) and not best.damaged)

    @invariant()
    def i3_every_name_is_of_this_run(self) -> None:
        assert all(c.manifest == NAMES.manifest(*c.key) for c in self.state.retained)

    @invariant()
    def what_may_be_deleted_is_not_retained(self) -> None:
        assert not {c.key for c in self.state.retained} & {r.key for r in self.state.retired}

    @invariant()
    def links_and_usage_add_up(self) -> None:
        state = self.state
        assert state.links_total == self.leases == sum(one.sessions for one in state.usage.values())
        assert [link.epoch for link in state.links] == sorted({link.epoch for link in state.links})
        assert all(link.from_step <= link.to_step for link in state.links)
        ended = sum(link.seconds for link in state.links if link.ended is not None)
        if state.history is None:
            assert abs(ended - sum(one.seconds for one in state.usage.values())) < 1e-6
        assert (state.holder is None) == (not state.links or state.links[-1].ended is not None)

    @invariant()
    def no_kind_of_gpu_gave_more_than_its_links_tell(self) -> None:
        state = self.state
        if state.history is not None or len(state.gpus) == MAX_GPUS:
            return
        for account, one in state.usage.items():
            mine = [link for link in state.links if link.account == account]
            for gpu, found in by_gpu([state], account).items():
                links = [link for link in mine if link.gpu == gpu]
                assert abs(found.seconds - sum(link.seconds for link in links if link.ended is not None)) <= len(links)
            told = [link for link in mine if link.gpu is not None]
            assert sum(row[2] for row in one.by_gpu) == one.steps - sum(
                link.to_step - link.from_step for link in mine if link not in told
            ), "all steps of sessions with a known kind of GPU"

    @invariant()
    def the_state_reads_back(self) -> None:
        assert RunState.model_validate_json(self.state.model_dump_json()) == self.state


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
