"""Which checkpoint becomes the head, stays, is retired or gone back from (I3, I6, I9, P6-P8)."""

from __future__ import annotations

import pytest

from relay.core.ledger.changes import Commit, Refused, Retire, Rewind
from relay.core.ledger.frozen import MAX_RETAINED, MAX_SHARING
from relay.core.ledger.rules import apply
from relay.core.ledger.state import NextDigest
from tests.core.making import NAMES, checkpoint
from tests.core.rulings import NOW, by, committed, do, leased, new, refused


def test_a_commit_becomes_the_head() -> None:
    state = leased(new())
    change = Commit(
        checkpoint=checkpoint(10, 1, next=NextDigest(step=11, path="cpu", digest="d" * 64)),
        certified="exact",
        seconds=12.5,
        metrics={"loss": 1.5},
    )
    after = do(state, "commit", change, by(1, at=NOW + 9))
    assert after.head and (after.head.key, after.head.committed_at, after.step) == ((10, 1), NOW + 9, 10)
    assert after.metrics == {"loss": 1.5}
    link = after.links[-1]
    assert (link.from_step, link.to_step, link.commits, link.certified, link.seconds) == (0, 10, 1, "exact", 12.5)
    assert after.usage["ana"].steps == 10
    later = do(after, "commit", Commit(checkpoint=checkpoint(30, 1), certified="not-exact"), by(1))
    assert (later.links[-1].certified, later.links[-1].commits) == ("exact", 2), (
        "only the first commit's certificate counts"
    )
    assert later.usage["ana"].steps == 30


def test_i3_a_commit_names_only_files_of_its_own_run_step_and_epoch() -> None:
    state = leased(new())
    for place in (
        NAMES.manifest(10, 2),
        NAMES.manifest(11, 1),
        "checkpoints/proj/other/step_10.e1/manifest.json",
        NAMES.checkpoint(10, 1) + "other.json",
        "runs/proj/run_a/ledger/00000000000000000000.json",
        NAMES.checkpoints + "../other/step_10.e1/manifest.json",
    ):
        refused(state, "commit", Commit(checkpoint=checkpoint(10, 1, manifest=place)), by(1), "not under its own run")
    refused(state, "commit", Commit(checkpoint=checkpoint(10, 2)), by(1), "epoch 2 in an entry of epoch 1")
    wrong_next = NextDigest(step=10, path="cpu", digest="d" * 64)
    refused(state, "commit", Commit(checkpoint=checkpoint(10, 1, next=wrong_next)), by(1), "another step")


def test_i6_the_step_never_goes_back_by_a_commit() -> None:
    state = committed(leased(new()), 10)
    for step in (0, 5, 10):
        refused(state, "commit", Commit(checkpoint=checkpoint(step, 1)), by(1), "not beyond step 10")
    refused(leased(new()), "commit", Commit(checkpoint=checkpoint(0, 1)), by(1), "not beyond step 0")


def test_i9_a_checkpoint_marked_damaged_or_with_a_metric_that_is_no_number_is_refused() -> None:
    state = leased(new())
    refused(state, "commit", Commit(checkpoint=checkpoint(10, 1, damaged=True)), by(1), "damaged")
    plain = Commit(checkpoint=checkpoint(10, 1)).model_dump(mode="json")
    for metric in (float("nan"), float("inf")):
        with pytest.raises(Refused):
            apply(state, "commit", plain | {"metrics": {"loss": metric}}, by(1))


def test_the_best_is_the_earliest_of_the_highest() -> None:
    state = leased(new())
    for step, metric in ((10, 0.5), (20, 0.9), (30, 0.9), (40, None), (50, 0.1)):
        state = committed(state, step, metric=metric)
    assert state.best == (20, 1)


def test_retire_spares_the_head_the_best_and_the_newest_two() -> None:
    state = committed(committed(leased(new()), 10, metric=0.9), 20, 30, 40, 50)
    for key in ((50, 1), (40, 1), (10, 1)):
        refused(state, "retire", Retire(retire=((20, 1), key)), by(1), "is the head, the best or one of the newest 2")
    refused(state, "retire", Retire(retire=((25, 1),)), by(1), "not retained")
    refused(state, "retire", Retire(collected=((20, 1),)), by(1), "not retired")
    after = do(state, "retire", Retire(retire=((20, 1), (30, 1))), by(1, at=NOW + 1))
    assert [c.key for c in after.retained] == [(10, 1), (40, 1), (50, 1)]
    assert [(r.key, r.at) for r in after.retired] == [((20, 1), NOW + 1), ((30, 1), NOW + 1)]
    gone = do(after, "retire", Retire(collected=((20, 1),)), by(1))
    assert [r.key for r in gone.retired] == [(30, 1)]
    refused(gone, "retire", Retire(retire=((30, 1),)), by(1), "not retained")


def test_a_full_list_of_retained_checkpoints_asks_for_a_retire() -> None:
    state = committed(leased(new()), *range(1, MAX_RETAINED + 1))
    refused(state, "commit", Commit(checkpoint=checkpoint(999, 1)), by(1), "retire some first")
    fewer = state.model_copy(update={"retained": state.retained[-MAX_SHARING:]})
    assert do(fewer, "commit", Commit(checkpoint=checkpoint(999, 1)), by(1)).step == 999
    lends = checkpoint(999, 1).model_copy(update={"base": (999, 1)})
    refused(fewer, "commit", Commit(checkpoint=lends), by(1), "retire some first")


def rewind(*damaged: tuple[int, int], to: tuple[int, int]) -> Rewind:
    return Rewind(damaged=damaged, to=to, evidence="wrong bytes read twice")


def test_i6_a_rewind_goes_to_the_newest_sound_checkpoint_with_evidence() -> None:
    state = leased(committed(leased(new()), 10, 20, 30), session=2)
    after = do(state, "rewind", rewind((30, 1), to=(20, 1)), by(2, session=2))
    assert (after.step, after.head and after.head.key) == (20, (20, 1))
    assert [(c.key, c.damaged) for c in after.retained] == [((10, 1), False), ((20, 1), False), ((30, 1), True)]
    assert (after.links[-1].from_step, after.incidents[-1].cause) == (20, "rewind")
    assert after.incidents[-1].text == "wrong bytes read twice"
    again = do(after, "commit", Commit(checkpoint=checkpoint(30, 2)), by(2, session=2))
    assert again.head and again.head.key == (30, 2)
    two = do(state, "rewind", rewind((30, 1), (20, 1), to=(10, 1)), by(2, session=2))
    assert two.step == 10


def test_i6_a_rewind_that_is_not_needed_is_refused() -> None:
    state = leased(committed(leased(new()), 10, 20, 30), session=2)
    who = by(2, session=2)
    refused(state, "rewind", rewind((20, 1), to=(10, 1)), who, "head is not among the damaged")
    refused(state, "rewind", rewind((30, 1), to=(10, 1)), who, "not the newest sound")
    refused(state, "rewind", rewind((30, 1), to=(30, 1)), who, "not the newest sound")
    refused(state, "rewind", rewind((30, 1), (25, 1), to=(20, 1)), who, "not retained, or was marked before")
    refused(state, "rewind", rewind((30, 1), (20, 1), (10, 1), to=(10, 1)), who, "not the newest sound")
    with pytest.raises(Refused):
        apply(state, "rewind", rewind((30, 1), to=(20, 1)).model_dump(mode="json") | {"evidence": " \n"}, who)
    refused(committed(state, 40, session=2), "rewind", rewind((40, 2), to=(30, 1)), who, "has committed already")
    refused(leased(new()), "rewind", rewind((30, 1), to=(20, 1)), by(1), "head is not among")


def test_i6_a_run_that_has_committed_never_restarts_at_0() -> None:
    state = leased(committed(leased(new()), 10), session=2)
    refused(state, "rewind", rewind((10, 1), to=(0, 0)), by(2, session=2), "not the newest sound")


def test_a_damaged_best_is_best_no_more() -> None:
    state = leased(committed(committed(leased(new()), 10, metric=0.5), 20, metric=0.9), session=2)
    after = do(state, "rewind", rewind((20, 1), to=(10, 1)), by(2, session=2))
    assert after.best == (10, 1)
