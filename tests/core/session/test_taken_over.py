"""A session whose run was taken over while it slept reports that for every failure (P5): 76, not 65 or 69."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relay.app.commands.sessions.outcomes import Ended, sentence
from relay.core.errors import Exit
from relay.core.ledger.ledger import LeaseOver
from relay.core.session.context import Context, Outcome
from relay.core.session.session import push, run_session
from storage.base import Denied, Missing, StoreError
from tests.core.lab import PROJECT, RUN, Lab, Session, down, said

HOUR = 3600.0
Begin = Callable[[Context], Outcome]
Met = Callable[[str], StoreError]


def left_unsent(lab: Lab) -> None:
    """Machine a keeps a step that it could not send."""
    first = lab.session("alice", machine="a", target_steps=40, every_steps=1000, patience_s=20.0)
    lab.world.at(lab.world.now + 3, lambda: setattr(first.store, "fail", down))
    assert lab.run(first).unsent is not None
    lab.world.now += HOUR


def sleeps_then_meets(lab: Lab, session: Session, verb: str, part: str, met: Met) -> None:
    """At its first such call the process sleeps for an hour; from then on checkpoints are refused it."""

    def refuse(verb: str, name: str) -> None:
        if name.startswith("checkpoints/") and not verb.startswith("after-"):
            raise met(name)

    def fail(now: str, name: str) -> None:
        if (now, part in name) == (verb, True):
            session.store.fail = refuse
            session.process.suspend(HOUR)
            session.process.sleep(1)

    session.store.fail = fail


def goes_on(lab: Lab, begin: Begin, met: Met, verb: str, part: str, *, alone: bool = False) -> Session:
    """A session on machine a that sleeps at its first such call while bob takes over, unless it is `alone`."""
    session = lab.session("alice", machine="a", target_steps=60)
    sleeps_then_meets(lab, session, verb, part, met)
    session.start(begin)
    if not alone:
        lab.world.at(lab.world.now + 60, lab.session("bob", target_steps=80, wait_s=HOUR).start)
    lab.world.run(to_the_end=True)
    return session


def reports(lab: Lab, epoch: int) -> list[str]:
    """The objects in the store from the session of that epoch."""
    return [one.name for one in lab.shared.list(f"runs/{PROJECT}/{RUN}/sessions/{epoch:020d}")]


@pytest.mark.parametrize("met", [Missing, Denied], ids=["gone", "refused"])
@pytest.mark.parametrize("begin", [run_session, push], ids=["run", "push"])
def test_p5_sending_an_earlier_step(lab: Lab, begin: Begin, met: Met) -> None:
    """Seed 60649 of the simulation: the files that it had just sent were cleared away."""
    left_unsent(lab)
    session = goes_on(lab, begin, met, "after-put", "state.json")
    assert session.outcome.exit_code == Exit.FENCED, said(session.outcome)
    assert type(session.outcome.failure) is LeaseOver, said(session.outcome)
    assert lab.state().step == 80 and not reports(lab, 2), "it wrote nothing more"


def test_p5_a_checkpoint_that_others_have_retired_meanwhile(lab: Lab) -> None:
    lab.run(lab.session("bob", target_steps=40))
    session = goes_on(lab, run_session, Missing, "get", "manifest.json")
    assert session.outcome.exit_code == Exit.FENCED, said(session.outcome)
    assert type(session.outcome.failure) is LeaseOver, said(session.outcome)
    assert session.ctx.local_folder.root.joinpath("reports", "session_e2.json").read_text().count('"fenced"') == 1


@pytest.mark.parametrize("begin", [run_session, push], ids=["run", "push"])
@pytest.mark.parametrize(("met", "code"), [(Missing, Exit.BAD_DATA), (Denied, Exit.STORAGE_UNREACHABLE)])
def test_what_nobody_else_has_done_is_told_as_it_is(lab: Lab, begin: Begin, met: Met, code: Exit) -> None:
    left_unsent(lab)
    session = goes_on(lab, begin, met, "after-put", "state.json", alone=True)
    assert session.outcome.exit_code == code and "step 40" in said(session.outcome)


def test_p6_a_last_step_kept_here_says_too_that_the_lease_is_over(lab: Lab) -> None:
    """Others have gone on without it, so the next session here may not commit it."""
    session = lab.session("alice", machine="a", target_steps=40, every_steps=1000, patience_s=20.0)
    sleeps_then_meets(lab, session, "put", "state.json", Denied)
    session.start()
    lab.world.at(lab.world.now + 60, lab.session("bob", target_steps=80, wait_s=HOUR).start)
    lab.world.run(to_the_end=True)
    assert session.outcome.exit_code == Exit.FENCED and session.outcome.unsent is not None
    assert str(session.outcome.unsent) in said(session.outcome) and "is over" in said(session.outcome)


def test_what_others_trained_meanwhile_is_not_told_as_its_own(lab: Lab) -> None:
    """Its heartbeat saw it first, and so how far they are."""
    session = lab.session("alice", target_steps=60)

    def fail(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("step_20.e1/state.json"):
            session.process.suspend(HOUR)
            session.process.sleep(1.0)
            session.process.sleep(40.0)

    session.store.fail = fail
    session.start()
    lab.world.at(lab.world.now + 60, lab.session("bob", target_steps=80, wait_s=HOUR).start)
    lab.world.run(to_the_end=True)
    outcome = session.outcome
    assert (outcome.exit_code, outcome.commits, outcome.durable_step) == (Exit.FENCED, 1, 80)
    assert "Steps" not in sentence(Ended(outcome, said(outcome))), "only the durable step is told"


def test_a_push_that_waited_while_another_sent_the_step_has_nothing_left_to_do(lab: Lab) -> None:
    """It was reported as a checkpoint that does not fit (65)."""
    left_unsent(lab)
    holder = lab.session("alice", machine="a", target_steps=60)
    late = lab.session("alice", machine="a", wait_s=HOUR)
    late.store.fail = lambda verb, name: late.process.sleep(5.0) if verb == "now" else None
    late.start(push)
    lab.world.at(lab.world.now + 1.0, holder.start)
    lab.world.run(to_the_end=True)
    assert holder.outcome.exit_code == Exit.OK
    assert late.outcome.exit_code == Exit.OK, said(late.outcome)
    assert late.outcome.commits == 0 and lab.state().step == 60


def test_p5_its_own_release_as_its_heartbeat_sees_it_is_no_loss(lab: Lab) -> None:
    """Where no sign of life went through, it looks at the tail: here just as the release has landed."""
    session = lab.session("alice", target_steps=40, every_steps=1000, ttl_s=60.0, patience_s=48.0)

    def fail(verb: str, name: str) -> None:
        if verb == "put" and ("checkpoints/" in name or "heartbeat" in name):
            raise Denied(name)
        if (verb, name[-7:]) == ("put_if_absent", "02.json"):  # genesis, lease, release
            session.process.sleep(14.0)
        if "/sessions/" in name:  # its report takes long enough for the heartbeat
            session.process.sleep(1.0)

    session.store.fail = fail
    outcome = lab.run(session)
    assert lab.kinds() == ["genesis", "lease", "release"]
    assert outcome.exit_code == Exit.UPLOAD_FAILED and "is over" not in said(outcome)
