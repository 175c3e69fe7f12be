"""What stays and what may go: no view, however old, ever allows deleting what any later state retains (P8, I8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.changes import By
from relay.collect import Housekeeper, delete, sweep_signs
from relay.heartbeat import request_stop
from relay.keeping import KEPT_CHECKPOINTS
from relay.manifest import FileEntry, Manifest
from relay.names import Names
from relay.retention import GRACE_S, ROOM, Keep, going, judge_files, to_retire
from relay.rules import apply
from relay.state import MAX_RETAINED, Checkpoint, RunState
from storage.base import Denied, QuotaExceeded, Ref, Stat
from storage.memory import MemoryStore
from tests.relay.sessions import PROJECT, RUN, Lab, genesis

NAMES = Names(PROJECT, RUN)
HASH = "a" * 64


def manifest_of(key: tuple[int, int]) -> Manifest:
    files = tuple(
        FileEntry(name=name, key=NAMES.checkpoint(*key) + name, ref=NAMES.checkpoint(*key) + name, size=1, sha256=HASH)
        for name in ("a.bin", "b.bin")
    )
    step, epoch = key
    return Manifest(
        project=PROJECT, run=RUN, step=step, epoch=epoch, state_hash=HASH, files=files, config_hash=HASH,
        fingerprint={}, code_version="1",
    )  # fmt: skip


def checkpoint(key: tuple[int, int], metric: float | None = None) -> Checkpoint:
    name = NAMES.manifest(*key)
    return Checkpoint(
        step=key[0], epoch=key[1], manifest=name, ref=name, sha256=HASH, state_hash=HASH, bytes=3, metric=metric
    )


class Story:
    """A run lived through by the real rules, with the files its sessions left."""

    def __init__(self) -> None:
        self.now, self.session = 1000.0, "0" * 32
        self.state = apply(None, "genesis", genesis().model_dump(mode="json"), By(self.session, None, 0, self.now))
        self.states = [self.state]
        self.files: dict[str, float] = {}

    def do(self, kind: str, change: dict[str, object], epoch: int | None = None) -> None:
        self.now += 10
        by = By(self.session, "alice", self.state.epoch if epoch is None else epoch, self.now)
        self.state = apply(self.state, kind, change, by)
        self.states.append(self.state)

    def lease(self) -> None:
        holder = self.state.holder
        gone = {"epoch": holder.epoch, "reason": "dead", "seconds": 1.0} if holder else None
        self.session = f"{self.state.epoch + 1:032x}"
        self.do("lease", {"ttl_s": 10.0, "target_steps": 9, "took_over": gone}, self.state.epoch + 1)

    def upload(self, key: tuple[int, int]) -> None:
        for name in ("a.bin", "b.bin", "manifest.json"):
            self.files[NAMES.checkpoint(*key) + name] = self.now

    def commit(self, metric: float | None) -> None:
        key = (self.state.step + 10, self.state.epoch)
        self.upload(key)
        self.do("commit", {"checkpoint": checkpoint(key, metric).model_dump(mode="json")})

    def garbage(self) -> None:
        self.upload((self.state.step + 5, self.state.epoch))

    def rewind(self) -> None:
        good = self.state.undamaged
        if len(good) > 1 and not self.state.committed_by(self.state.epoch):
            self.do("rewind", {"damaged": [good[-1].key], "to": good[-2].key, "evidence": "bad"})

    def retire(self, keep: Keep) -> None:
        going = to_retire(self.state, keep)
        if going:
            self.do("retire", {"retire": [list(key) for key in going]})

    def listed(self) -> list[Stat]:
        return [Stat(name, name, 1, modified) for name, modified in sorted(self.files.items())]


def deletable(state: RunState, *args: Any, **more: Any) -> list[Stat]:
    """What may go, in the order to delete it."""
    return going(judge_files(state, NAMES, *args, **more))


def verified(state: RunState) -> dict[tuple[int, int], Manifest]:
    return {c.key: manifest_of(c.key) for c in state.retained}


STEPS = st.lists(
    st.sampled_from(["lease", "commit", "commit", "best", "garbage", "rewind", "retire", "wait", "clean"]), max_size=40
)


@given(STEPS, st.integers(2, 4), st.sampled_from([0, 20, 30]), st.booleans(), st.data())
@settings(max_examples=150, deadline=None)
def test_i8_no_view_of_any_age_deletes_what_a_state_retains(
    steps: list[str], last: int, every: int, short: bool, data: st.DataObject
) -> None:
    story, keep = Story(), Keep(last, every)
    story.lease()
    for step in steps:
        if step == "commit":
            story.commit(None)
        elif step == "best":
            story.commit(data.draw(st.floats(0, 1)))
        elif step == "wait":
            story.now += GRACE_S
        elif step == "retire":
            story.retire(keep)
        elif step == "clean":
            view = data.draw(st.sampled_from(story.states))  # a zombie's view, as old as it likes
            shown = [stat for stat in story.listed() if data.draw(st.booleans())]
            gone = deletable(view, shown, verified(view), story.now, short_of_space=short)
            for stat in gone[: data.draw(st.integers(0, len(gone)))]:  # it may die half way
                del story.files[stat.name]
        else:
            getattr(story, step)()
        assert_retained_files_exist(story)


def assert_retained_files_exist(story: Story) -> None:
    for c in story.state.retained:
        assert {c.manifest, *(f.key for f in manifest_of(c.key).files)} <= set(story.files)


@given(STEPS, st.integers(2, 4), st.sampled_from([0, 20]))
@settings(max_examples=60, deadline=None)
def test_retire_is_always_allowed_and_keeps_what_the_rules_keep(steps: list[str], last: int, every: int) -> None:
    story, keep = Story(), Keep(last, every)
    story.lease()
    for step in steps:
        if step in ("lease", "rewind", "garbage"):
            getattr(story, step)()
        elif step in ("commit", "best"):
            story.commit(0.5 if step == "best" else None)
        elif step == "retire":
            story.retire(keep)  # the rules raise if they refuse it
            good = [c.key for c in story.state.undamaged]
            assert story.state.head is None or story.state.head.key in good
            assert len(good) >= min(KEPT_CHECKPOINTS, len(good))
            assert story.state.best is None or story.state.best in good


def committed(*steps: int) -> Story:
    story = Story()
    story.lease()
    for _ in steps:
        story.commit(None)
    return story


def names(stats: list[Stat]) -> list[str]:
    return [stat.name.removeprefix(NAMES.checkpoints) for stat in stats]


def test_retired_files_go_an_hour_after_the_next_entry_manifests_last() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    story.commit(None)
    seen, known = story.now, verified(story.state)
    assert deletable(story.state, story.listed(), known, seen + GRACE_S - 1) == []
    gone = deletable(story.state, story.listed(), known, seen + GRACE_S)
    assert names(gone) == ["step_10.e1/a.bin", "step_10.e1/b.bin", "step_10.e1/manifest.json"]
    now = deletable(story.state, story.listed(), known, seen, short_of_space=True)
    assert names(now) == names(gone)


def test_the_newest_entry_may_have_landed_just_now_however_old_it_says_it_is() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    late = story.now + 100 * GRACE_S
    judged = judge_files(story.state, NAMES, story.listed(), verified(story.state), late)
    assert not going(judged)
    assert {file.rule for file in judged if "step_10." in file.stat.name} == {
        "retired by the newest entry; readers have an hour from the next one on"
    }
    assert deletable(story.state, story.listed(), verified(story.state), late, short_of_space=True)


SLOW = st.lists(st.tuples(st.sampled_from(["commit", "commit", "lease", "retire", "clean"]), st.integers(0, 5000)))


@given(SLOW)
@settings(max_examples=150, deadline=None)
def test_readers_have_an_hour_from_when_a_retirement_can_be_seen(steps: list[tuple[str, int]]) -> None:
    """Every entry may land long after it was written; the next one is written once it has landed."""
    story, landed = Story(), dict[tuple[int, int], float]()
    story.lease()
    for step, delay in steps:
        before = {c.key for c in story.state.retained}
        if step == "commit":
            story.commit(None)
        elif step == "lease":
            story.lease()
        elif step == "retire":
            story.retire(Keep(2))
        story.now += delay
        landed |= dict.fromkeys(before - {c.key for c in story.state.retained}, story.now)
        for stat in deletable(story.state, story.listed(), verified(story.state), story.now):
            place = NAMES.parse_checkpoint(stat.name)
            assert place and story.now - landed[place[:2]] >= GRACE_S
            del story.files[stat.name]


def test_a_run_that_goes_on_cleans_up_soon_after_the_hour() -> None:
    """Not an hour after the newest entry: then nothing would go for as long as a session commits."""
    story = committed(10, 20, 30)
    written = story.now
    for _ in range(6):
        story.retire(Keep(2))
        story.now += 600
        story.commit(None)
    gone = deletable(story.state, story.listed(), verified(story.state), written + 3 * 620 + GRACE_S)
    assert {name.partition("/")[0] for name in names(gone)} == {"step_10.e1", "step_20.e1"}


def test_unretired_files_of_the_newest_epoch_never_go_those_of_older_ones_do() -> None:
    story = committed(10)
    story.garbage()
    late = story.now + 100 * GRACE_S
    assert deletable(story.state, story.listed(), verified(story.state), late, short_of_space=True) == []
    story.lease()
    gone = deletable(story.state, story.listed(), verified(story.state), late)
    assert names(gone) == ["step_15.e1/a.bin", "step_15.e1/b.bin", "step_15.e1/manifest.json"]


def test_one_unverified_manifest_and_nothing_goes() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    story.lease()
    known = verified(story.state)
    del known[story.state.head.key]
    assert deletable(story.state, story.listed(), known, story.now + 2 * GRACE_S) == []


def test_a_file_named_by_a_retained_manifest_of_another_folder_stays() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    story.lease()
    known = verified(story.state)
    shared = NAMES.checkpoint(10, 1) + "a.bin"
    head = known[story.state.head.key]
    entry = FileEntry(name="a.bin", key=shared, ref=shared, size=1, sha256=HASH)
    known[story.state.head.key] = head.model_copy(update={"files": (entry,)})
    gone = deletable(story.state, story.listed(), known, story.now + 2 * GRACE_S)
    assert shared not in [stat.name for stat in gone]


def test_other_names_in_the_folder_are_left_alone() -> None:
    story = committed(10)
    story.lease()
    for name in ("notes.txt", "step_1.e1/sub/x", "step_01.e1/x", "step_5.e1.bak/x"):
        story.files[NAMES.checkpoints + name] = 0.0
    assert deletable(story.state, story.listed(), verified(story.state), 1e12, short_of_space=True) == []


def test_every_nth_stays_and_thins_out_before_the_entry_is_full() -> None:
    story = Story()
    story.lease()
    for _ in range(200):
        story.commit(None)
        story.retire(Keep(2, every=10))
    assert len(story.state.retained) < 60
    assert story.state.retained[0].step % 20 == 0


def test_a_damaged_checkpoint_stays_until_enough_lie_beyond_it() -> None:
    story = committed(10, 20, 30)
    story.lease()
    story.rewind()
    story.commit(None)
    story.retire(Keep(2))
    assert (30, 1) in {c.key for c in story.state.retained if c.damaged}
    for _ in range(2):
        story.commit(None)
    story.retire(Keep(2))
    assert not [c for c in story.state.retained if c.damaged]


def test_a_folder_that_could_not_be_emptied_keeps_its_manifest() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    story.lease()
    store = MemoryStore()
    for name in story.files:
        store.put(name, b"x")
    gone = deletable(story.state, story.listed(), verified(story.state), story.now + GRACE_S)
    stubborn = gone[1].ref
    remove = store.delete

    def refuse(ref: Ref) -> None:
        if ref == stubborn:
            raise Denied("locked")
        remove(ref)

    store.delete = refuse
    assert delete(gone, store, NAMES, lambda: True) == set()
    left = [stat.name for stat in store.list(NAMES.checkpoint(10, 1))]
    assert NAMES.manifest(10, 1) in left and len(left) == 2
    store.delete = remove
    assert delete(gone, store, NAMES, lambda: True) == {(10, 1)}


def test_a_session_cleans_up_behind_itself_an_hour_later(lab: Lab) -> None:
    lab.run(lab.session(target_steps=5000, every_steps=500, keep=Keep(2)))
    steps = sorted({NAMES.parse_checkpoint(stat.name)[0] for stat in lab.shared.list(NAMES.checkpoints)})
    assert steps[-1] == 5000 and len(steps) > 2, "those of the last hour are still there"
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("bob", target_steps=6000, every_steps=500, keep=Keep(2)))
    left = sorted({NAMES.parse_checkpoint(stat.name)[0] for stat in lab.shared.list(NAMES.checkpoints)})
    assert len(left) <= 5
    assert {c.step for c in lab.state().retained} == {5500, 6000}


def test_a_store_that_is_full_of_retired_files_is_cleaned_though_nothing_can_be_written(lab: Lab) -> None:
    """Writes and the clock, which writes, fail until something is deleted."""
    lab.run(lab.session(target_steps=100, every_steps=10, keep=Keep(2)))
    before = len(list(lab.shared.list(NAMES.checkpoints)))
    lab.world.now += 2 * GRACE_S
    session = lab.session("bob", target_steps=300, every_steps=50, keep=Keep(2), patience_s=200)

    def full(verb: str, name: str) -> None:
        crowded = len(list(lab.shared.list(NAMES.checkpoints))) >= before - 4
        if verb in ("put", "put_if_absent", "now") and crowded:
            raise QuotaExceeded("no space left")

    lab.world.at(lab.world.now + 2, lambda: setattr(session.store, "fail", full))
    outcome = lab.run(session)
    assert lab.state().step == 300, outcome.message


def test_a_list_of_retained_checkpoints_never_gets_so_full_that_it_bricks_the_run(lab: Lab) -> None:
    outcome = lab.run(lab.session(target_steps=600, every_steps=10, keep=Keep(60)))
    assert outcome.durable_step == 600 and len(lab.state().retained) <= ROOM


def test_a_full_list_is_retired_from_before_the_next_commit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Housekeeper, "_retire", lambda self: None)
        lab.run(lab.session(target_steps=10 * MAX_RETAINED, every_steps=10))
    assert len(lab.state().retained) == MAX_RETAINED
    assert lab.run(lab.session("bob", target_steps=600, every_steps=10)).durable_step == 600


def signs(lab: Lab) -> set[str]:
    found = (stat.name.rpartition("/")[2] for stat in lab.shared.list(f"runs/{PROJECT}/{RUN}/"))
    return {name for name in found if name.startswith(("heartbeat.", "stop."))}


def test_old_signs_of_life_are_swept_and_the_present_ones_stay(lab: Lab) -> None:
    lab.run(lab.session(target_steps=2000, every_steps=500))
    request_stop(lab.shared, Names(PROJECT, RUN), 1, "late")
    assert signs(lab) == {"heartbeat.1", "stop.1"}
    lab.run(lab.session("bob", target_steps=4000, every_steps=500))
    assert signs(lab) == {"heartbeat.2"}


def test_only_exact_names_below_the_epoch_are_swept() -> None:
    store = MemoryStore()
    keep = ["heartbeat.3", "stop.3", "heartbeat.4", "heartbeat.02", "heartbeat.1.bak", "ledger/heartbeat.1"]
    for name in (*keep, "heartbeat.2", "stop.0"):
        store.put(NAMES.home + name, b"x")
    sweep_signs(store, NAMES, 3)
    assert {stat.name for stat in store.list("")} == {NAMES.home + name for name in keep}


def test_a_sweep_that_fails_harms_nothing(lab: Lab) -> None:
    lab.run(lab.session(target_steps=1000, every_steps=500))
    session = lab.session("bob", target_steps=2000, every_steps=500)

    def fail(verb: str, name: str) -> None:
        if verb == "delete" and "heartbeat" in name:
            raise Denied("locked")

    session.store.fail = fail
    assert lab.run(session).exit_code == 0
    assert lab.state().step == 2000
