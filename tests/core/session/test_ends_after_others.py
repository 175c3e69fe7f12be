"""Sessions that sleep past their lease while others archive, delete, halt or take over the run.

Each end is reported once, truly, and with the advice that helps.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relay.app.commands.sessions.attaching import code_of
from relay.app.commands.sessions.outcomes import Ended, sentence
from relay.core.errors import Exit, RelayError
from relay.core.events import Trouble
from relay.core.lease.lease import LeaseRequest, acquire
from relay.core.ledger.changes import Commit, Noted, Release
from relay.core.ledger.frozen import DEAD, LATE, SILENT, TARGET_REACHED, WAIT_S
from relay.core.ledger.ledger import LeaseOver, RunLedger
from relay.core.ledger.state import Failure, RunState
from relay.core.names import Names
from relay.core.runs.archive import archive, mark_deleted, unarchive
from storage.base import Denied
from tests.core.fake_runtime import Process
from tests.core.lab import PROJECT, RUN, Lab, NoLocks, Session, said
from tests.core.toy import ToyWorkload

HOUR = 3600.0
AGAIN = "Run the same command again"


Others = Callable[[RunLedger, Process], None]


def archived(ledger: RunLedger, process: Process) -> None:
    archive(ledger, process, NoLocks(), session="9" * 32)


def deleted(ledger: RunLedger, process: Process) -> None:
    archived(ledger, process)
    process.sleep(WAIT_S)
    mark_deleted(ledger, ledger.store, session="9" * 32)


def took_over(ledger: RunLedger, process: Process) -> None:
    """As a session that trains on from there does it."""
    lease = acquire(ledger, process, NoLocks(), LeaseRequest("7" * 32, "bob", 180.0, 100))
    lease.append("commit", lambda state: committed(state, 80))
    lease.append("release", lambda state: Release(reason="target reached"))


def committed(state: RunState, step: int) -> Commit:
    """A commit of that step by the newest epoch."""
    assert state.head is not None
    key, before = (step, state.epoch), state.head
    manifest = Names(PROJECT, RUN).manifest(*key)
    return Commit(
        checkpoint=before.model_copy(update={"step": step, "epoch": key[1], "manifest": manifest, "next": None})
    )


def brought_back(ledger: RunLedger, process: Process) -> None:
    archived(ledger, process)
    unarchive(ledger, session="9" * 32)


def halted(ledger: RunLedger, process: Process) -> None:
    lease = acquire(ledger, process, NoLocks(), LeaseRequest("8" * 32, "bob", 180.0, 100))
    failed = Failure(cause="crash", step=20, config_hash="a" * 64, fingerprint="b" * 64)
    for _ in range(2):
        lease.note(Noted(cause="crash", text="x", step=20, failure=failed))


FATES: list[tuple[Others, str, str]] = [
    (archived, "was archived on", "runs unarchive chain"),
    (deleted, "was deleted on", "Choose another run name"),
    (halted, "is halted", "resume --anyway"),
    (brought_back, "epoch 1, held by no session", AGAIN),
]


def asleep(lab: Lab, session: Session, verb: str, part: str, others: Others) -> Session:
    """It sleeps for a day and two hours at its first such call, and others act an hour later."""
    other = lab.world.process()

    def fail(now: str, name: str) -> None:
        if (now, part in name) == (verb, True):
            session.store.fail = lambda verb, name: None
            session.process.suspend(WAIT_S + 2 * HOUR)
            session.process.sleep(1.0)

    def act() -> None:
        other.start(lambda: others(RunLedger(lab.shared, PROJECT, RUN, other), other))

    session.store.fail = fail
    session.start()
    lab.world.at(lab.world.now + HOUR, act)
    lab.world.run(to_the_end=True)
    return session


@pytest.mark.parametrize(("others", "what", "helps"), FATES)
def test_a_lost_lease_names_what_helps_and_nothing_that_is_refused(
    lab: Lab, others: Others, what: str, helps: str
) -> None:
    outcome = asleep(lab, lab.session(target_steps=60), "put", "step_20.e1/state.json", others).outcome
    assert outcome.exit_code == Exit.FENCED
    assert what in said(outcome) and helps in said(outcome)
    assert (AGAIN in said(outcome)) == (helps == AGAIN), said(outcome)


@pytest.mark.parametrize("others", [archived, halted])
def test_p10_a_failure_on_record_is_the_end_of_its_session_whoever_came_after(lab: Lab, others: Others) -> None:
    """The release after it met the fence, and the session ended with 76, which advises to run again."""
    session = lab.session(target_steps=60, workload=ToyWorkload(nan_at=15))
    session = asleep(lab, session, "after-put_if_absent", "03.json", others)
    assert lab.kinds()[:4] == ["genesis", "lease", "commit", "incident"]
    outcome = session.outcome
    assert outcome.exit_code == Exit.BAD_DATA, said(outcome)
    assert "step 20 " in said(outcome) and "nan" in said(outcome) and outcome.lost is not None
    kept = session.ctx.local_folder.root / "reports" / "session_e1.json"
    assert '"bad data"' in kept.read_text() and not list(lab.shared.list(f"runs/{PROJECT}/{RUN}/sessions/"))


def test_p5_a_failure_that_others_came_before_is_no_end_of_its_own(lab: Lab) -> None:
    session = lab.session(target_steps=60, workload=ToyWorkload(nan_at=15))
    outcome = asleep(lab, session, "put_if_absent", "03.json", archived).outcome
    assert outcome.exit_code == Exit.FENCED and "loss is nan" not in said(outcome)
    assert "incident" not in lab.kinds()


@pytest.mark.parametrize("others", [archived, deleted])
def test_a_session_that_only_gives_back_too_late_ends_well_and_says_what_others_did(lab: Lab, others: Others) -> None:
    """It reported that the lease runs out by itself in 180 s, a day after others had ended it."""
    session = asleep(lab, lab.session(target_steps=20, every_steps=1000), "after-put_if_absent", "02.json", others)
    assert session.outcome.exit_code == Exit.OK
    assert isinstance(session.outcome.lost, RelayError) and session.outcome.made_step == 20
    assert not [event for event in session.heard.events if isinstance(event, Trouble) and event.doing == "release"]


@pytest.mark.parametrize("others", [archived, deleted])
def test_p6_a_step_kept_here_is_not_promised_to_a_next_session_that_is_refused(lab: Lab, others: Others) -> None:
    session = lab.session(target_steps=40, every_steps=1000, patience_s=20.0)

    def refuse(verb: str, name: str) -> None:
        if name.startswith("checkpoints/") and not verb.startswith("after-"):
            raise Denied(name)

    def meanwhile(ledger: RunLedger, process: Process) -> None:
        session.store.fail = refuse
        others(ledger, process)

    asleep(lab, session, "put", "state.json", meanwhile)
    outcome = session.outcome
    assert outcome.exit_code == Exit.FENCED and str(outcome.unsent) in said(outcome)
    assert "doctor --run chain" in said(outcome)
    assert "push" not in said(outcome) and "next session" not in said(outcome)


def test_what_others_trained_after_its_last_commit_is_not_told_as_its_own(lab: Lab) -> None:
    session = lab.session(target_steps=20, every_steps=1000)
    outcome = asleep(lab, session, "after-put_if_absent", "02.json", took_over).outcome
    assert (outcome.exit_code, outcome.made_step, outcome.durable_step) == (Exit.OK, 20, 80)
    assert (outcome.end, type(outcome.lost)) == (TARGET_REACHED, LeaseOver)
    assert "0 to 20 " in sentence(Ended(outcome, said(outcome)))


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("target reached", Exit.OK),
        ("spot notice: gcp, 30 s", Exit.HANDOFF),
        ("spot notice: gcp, 30 s; last upload did not fit", Exit.UPLOAD_FAILED),
        (SILENT, Exit.FENCED),
        (LATE, Exit.FENCED),
        (DEAD, Exit.UPLOAD_FAILED),
        ("crashed", Exit.BUG),
        ("bad data", Exit.BAD_DATA),
    ],
)
def test_who_looked_on_ends_as_the_session_did(end: str, code: Exit) -> None:
    """One that slept and was taken over, and one that crashed, were reported as a checkpoint that waits here (74)."""
    assert code_of(end) == code
