"""Retention of checkpoints that share files: no view of any age deletes a file that a retained one borrows (P8, I8)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.checkpoint.manifest import FileEntry, Manifest
from relay.core.checkpoint.retention import GRACE_S, ROOM, Keep, decide_files, to_retire
from relay.core.ledger.changes import Refused
from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.ledger.state import Checkpoint, RunState
from tests.core.story import HASH, NAMES, Story, checkpoint, deletable, manifest_of

Key = tuple[int, int]
TABLE = "table.bin"


def whole_manifest(c: Checkpoint) -> Manifest:
    plain = manifest_of(c.key)
    if c.base is None:
        return plain
    key = NAMES.checkpoint(*c.base) + TABLE
    entry = FileEntry(name=TABLE, key=key, ref=key, size=1, sha256=HASH)
    return plain.model_copy(update={"files": (*plain.files, entry)})


class SharedStory(Story):
    """A run whose checkpoints hold a table, borrow one, or do neither."""

    def add(self, base: Key | None, lends: bool = False, metric: float | None = None) -> None:
        key = (self.state.step + 10, self.state.epoch)
        self.upload(key)
        if lends:
            self.files[NAMES.checkpoint(*key) + TABLE] = self.now
        new = checkpoint(key, metric).model_copy(update={"base": key if lends else base})
        self.do("commit", {"checkpoint": new.model_dump(mode="json")})

    def lend(self) -> None:
        self.add(None, lends=True)

    def borrow(self, choice: int, metric: float | None = None) -> None:
        lenders = [c.key for c in self.state.undamaged if c.lends]
        if lenders:
            self.add(lenders[choice % len(lenders)], metric=metric)

    def rewind(self, deep: int = 1) -> None:
        good = self.state.undamaged
        if len(good) > deep and not self.state.committed_by(self.state.epoch):
            bad = [c.key for c in good[-deep:]]
            self.do("rewind", {"damaged": bad, "to": good[-deep - 1].key, "evidence": "bad"})


def manifests(state: RunState) -> dict[Key, Manifest]:
    return {c.key: whole_manifest(c) for c in state.retained}


WORDS = ["lease", "lend", "borrow", "borrow", "best", "plain", "garbage", "rewind", "retire", "wait", "clean"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(WORDS), max_size=50), st.integers(2, 4), st.sampled_from([0, 20, 30]), st.data())
@settings(max_examples=200, deadline=None)
def test_i8_what_is_borrowed_stays_whatever_view_is_cleaned_by(
    words: list[str], last: int, every: int, data: st.DataObject
) -> None:
    story, keep = SharedStory(), Keep(last, every)
    story.lease()
    for word in words:
        if word == "borrow":
            story.borrow(data.draw(st.integers(0, 9)))
        elif word == "best":
            story.borrow(data.draw(st.integers(0, 9)), metric=data.draw(st.floats(0, 1)))
        elif word == "plain":
            story.add(None)
        elif word == "rewind":
            story.rewind(data.draw(st.integers(1, 3)))
        elif word == "wait":
            story.now += GRACE_S
        elif word == "retire":
            story.retire(keep)  # the rules raise if they refuse it
        elif word == "clean":
            view = data.draw(st.sampled_from(story.states))  # a zombie's view, as old as it likes
            known = manifests(view)
            for stat in deletable(view, story.listed(), known, story.now, short_of_space=data.draw(st.booleans())):
                del story.files[stat.name]
        else:
            getattr(story, word)()
        state = RunState.model_validate_json(story.state.model_dump_json())
        for c in state.retained:
            assert {c.manifest, *(f.key for f in whole_manifest(c).files)} <= set(story.files)
            assert not c.borrows or any(one.key == c.base and one.lends for one in state.retained)


@pytest.mark.slow
@given(st.lists(st.integers(0, 6), min_size=60, max_size=200), st.integers(2, 60), st.sampled_from([0, 10, 30]))
@settings(max_examples=30, deadline=None)
def test_the_list_of_retained_checkpoints_never_gets_full_however_many_lend(
    choices: list[int], last: int, every: int
) -> None:
    story = SharedStory()
    story.lease()
    for choice in choices:
        story.borrow(-choice) if choice else story.lend()
        story.retire(Keep(last, every))
        assert len(story.state.retained) <= ROOM + 2 < MAX_RETAINED


def test_a_second_table_stays_so_that_one_damaged_file_never_costs_all() -> None:
    story = SharedStory()
    story.lease()
    story.lend()
    for _ in range(3):
        story.lend()
        for _ in range(5):
            story.borrow(-1)
            story.retire(Keep(2))
            tables = {c.base for c in story.state.undamaged}
            assert len(tables) == 2, "of the head, and one more"


def test_whoever_looks_is_told_why_a_lender_stays() -> None:
    story = SharedStory()
    story.lease()
    story.lend()
    story.borrow(0)
    story.add(None)
    judged = decide_files(story.state, NAMES, story.listed(), manifests(story.state), story.now)
    rules = {NAMES.parse_checkpoint(one.stat.name)[:2]: (one.rule, one.step) for one in judged}
    assert rules == {(10, 1): ("lender", 20), (20, 1): ("kept", 0), (30, 1): ("newest", 0)}


def test_the_rules_refuse_to_part_what_is_shared() -> None:
    story = SharedStory()
    story.lease()
    for _ in range(2):
        story.lend()
    story.borrow(0)
    story.borrow(0)
    story.add(None)
    with pytest.raises(Refused, match="stays borrows"):
        story.do("retire", {"retire": [[10, 1]]})
    for base in ((99, 1), (30, 1), (50, 1)):
        with pytest.raises(Refused, match="borrows from"):
            story.add(base)
    assert (20, 1) in to_retire(story.state, Keep(2)), "no checkpoint borrows from that one"
    story.do("retire", {"retire": [[20, 1]]})
    with pytest.raises(Refused, match="borrows from"):
        story.add((20, 1))


def test_a_damaged_lender_lends_to_nobody_new() -> None:
    story = SharedStory()
    story.lease()
    story.lend()
    story.lend()
    story.lease()
    story.rewind()
    with pytest.raises(Refused, match="damaged"):
        story.add((20, 1))
