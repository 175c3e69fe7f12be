"""The newest entry of a log, hurt: its session's last word is void, the next one goes on from the word before."""

from __future__ import annotations

import pytest

from relay.core.errors import Exit
from relay.core.ledger.ledger import EntryLost
from tests.core.lab import PROJECT, RUN, Lab, said
from tests.core.toy import hash_of, state_at
from tests.damage.harms import HARMS, HOSTILE_JSON
from tests.facts import raising

LEDGER = f"runs/{PROJECT}/{RUN}/ledger/"


def newest(lab: Lab) -> str:
    return max(stat.name for stat in lab.shared.list(LEDGER))


def killed_after(lab: Lab, kind: str) -> None:
    """A session that dies as soon as its second entry of that kind has landed."""
    session = lab.session(target_steps=1000)
    seen = 0

    def die(verb: str, name: str) -> None:
        nonlocal seen
        if verb == "after-put_if_absent" and name.startswith(LEDGER) and lab.kinds()[-1] == kind:
            seen += 1
            if seen == 2 or kind == "lease":
                session.process.kill()

    session.store.fail = die
    session.start()
    lab.world.run()
    assert lab.kinds()[-1] == kind


@pytest.mark.parametrize("harm", sorted(HARMS.keys() - {"missing"}))
def test_a_damaged_newest_commit_is_void_and_its_steps_are_trained_again(lab: Lab, harm: str) -> None:
    killed_after(lab, "commit")
    assert lab.state().step == 20
    name = newest(lab)
    lab.damage(name, HARMS[harm])
    assert lab.state().step == 10
    before = {stat.name for stat in lab.shared.list("checkpoints/")}
    outcome = lab.run(lab.session("bob", target_steps=40, wait_s=900))
    assert outcome.exit_code == Exit.OK, said(outcome)
    state = lab.state()
    assert lab.held() == hash_of(40, state_at(40))
    (told,) = [one for one in state.incidents if one.cause == "passed-over"]
    assert told.text.startswith(f"slot {int(name[-25:-5])}, sha256 ") and told.epoch == int(name[-25:-5]) + 1
    (back,) = [one for one in state.incidents if one.cause == "step-back"]
    assert "step 20 " in back.text and "epoch 1" in back.text and [one.key for one in state.kept] == [(20, 1)]
    assert before <= {stat.name for stat in lab.shared.list("checkpoints/")}, "nothing is deleted"


@pytest.mark.parametrize("harm", ["middle", "emptied", "huge", "zeroed"])
def test_a_damaged_release_keeps_the_lease_until_it_runs_out(lab: Lab, harm: str) -> None:
    lab.run(lab.session(target_steps=20))
    lab.damage(newest(lab), HARMS[harm])
    assert lab.run(lab.session("bob", target_steps=40)).exit_code == Exit.LEASE_HELD
    assert lab.run(lab.session("bob", target_steps=40, wait_s=900)).exit_code == Exit.OK
    assert lab.held() == hash_of(40, state_at(40))
    assert [one.cause for one in lab.state().incidents if one.cause != "target"] == ["passed-over"]


def test_a_damaged_newest_lease_shows_by_its_sign_of_life(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    killed_after(lab, "lease")
    lab.shared.put(f"runs/{PROJECT}/{RUN}/heartbeat.2", b"{}")
    lab.damage(newest(lab), HARMS["middle"])
    ledger = lab.session().ctx.ledger
    with raising(EntryLost) as caught:
        ledger.check_epochs(lab.shared)
    assert (caught.value.file, caught.value.epoch) == (f"runs/{PROJECT}/{RUN}/heartbeat.2", 2)


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_stranger_who_takes_the_next_slot_is_void(lab: Lab, what: str) -> None:
    lab.run(lab.session(target_steps=20))
    slot = int(newest(lab)[-25:-5]) + 1
    lab.shared.put(f"{LEDGER}{slot:020d}.json", HOSTILE_JSON[what])
    assert lab.run(lab.session("bob", target_steps=40)).exit_code == Exit.OK
    (told,) = [one for one in lab.state().incidents if one.cause == "passed-over"]
    assert told.text.startswith(f"slot {slot}, sha256 ")
