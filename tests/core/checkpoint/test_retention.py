"""The pure rules of deletion: no view, however old, allows deleting a file that a later state retains (P8, I8)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.checkpoint.collect import delete
from relay.core.checkpoint.manifest import FileEntry
from relay.core.checkpoint.retention import GRACE_S, ROOM, Keep, decide_files, going, to_retire
from relay.core.ledger.frozen import KEPT_CHECKPOINTS
from storage.base import Denied, Ref, Stat
from storage.memory import MemoryStore
from tests.core.story import HASH, NAMES, TOKEN, Story, deletable, manifest_of, verified

STEPS = st.lists(
    st.sampled_from(["lease", "commit", "commit", "best", "aside", "garbage", "rewind", "retire", "wait", "clean"]),
    max_size=40,
)


@pytest.mark.slow
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
        manifest = manifest_of(c.key, TOKEN if c.aside else "")
        assert {c.manifest, *(f.key for f in manifest.files)} <= set(story.files)


@given(STEPS, st.integers(2, 4), st.sampled_from([0, 20]))
@settings(max_examples=60, deadline=None)
def test_retire_is_always_allowed_and_keeps_what_the_rules_keep(steps: list[str], last: int, every: int) -> None:
    story, keep = Story(), Keep(last, every)
    story.lease()
    for step in steps:
        if step in ("lease", "rewind", "garbage", "aside"):
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


def test_of_two_folders_of_one_key_only_the_committed_one_is_retained() -> None:
    """The other one counts as uncommitted: kept while its epoch is the newest, then deleted."""
    story = committed(10)
    story.aside()
    story.commit(None)
    plain, mine = (NAMES.checkpoint(20, 1, token) for token in ("", TOKEN))

    def rules(prefix: str) -> set[tuple[bool, str]]:
        known, late = verified(story.state), story.now + 2 * GRACE_S
        judged = decide_files(story.state, NAMES, story.listed(), known, late)
        return {(file.goes, file.rule) for file in judged if file.stat.name.startswith(prefix)}

    assert rules(mine) == {(False, "kept")}
    assert rules(plain) == {(False, "newest epoch")}
    story.lease()
    assert rules(mine) == {(False, "kept")}
    assert [goes for goes, _ in rules(plain)] == [True]
    story.commit(None)
    story.commit(None)
    story.retire(Keep(2))
    story.commit(None)
    assert (20, 1) in {r.key for r in story.state.retired}
    assert [goes for goes, _ in rules(mine) | rules(plain)] == [True], "both, by one rule"


def test_the_newest_entry_may_have_landed_just_now_however_old_it_says_it_is() -> None:
    story = committed(10, 20, 30)
    story.retire(Keep(2))
    late = story.now + 100 * GRACE_S
    judged = decide_files(story.state, NAMES, story.listed(), verified(story.state), late)
    assert not going(judged)
    assert {(file.rule, file.seconds) for file in judged if "step_10." in file.stat.name} == {("retired", math.inf)}
    assert deletable(story.state, story.listed(), verified(story.state), late, short_of_space=True)


SLOW = st.lists(st.tuples(st.sampled_from(["commit", "commit", "lease", "retire", "clean"]), st.integers(0, 5000)))


@pytest.mark.slow
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


@pytest.mark.timeout(20)
def test_every_nth_thins_out_only_where_there_is_no_room() -> None:
    """Two stay in any case; in the end more do, as evidence of damage, than there is room for."""
    story = committed(*range(ROOM - 1))
    full = story.state.model_copy(update={"retained": story.state.retained[1:]})
    assert not to_retire(full, Keep(2, every=10)), "as many as there is room for"
    assert to_retire(story.state, Keep(2, every=10)), "one more"
    hurt = [c.model_copy(update={"damaged": True}) for c in full.retained[:-2]]
    extra = [c.model_copy(update={"epoch": 9, "damaged": True}) for c in hurt[:3]]
    spoiled = full.model_copy(update={"retained": (*extra, *hurt, *full.retained[-2:])})
    assert to_retire(spoiled, Keep(2, every=10)) is not None, "no room at all is an answer, too"


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
