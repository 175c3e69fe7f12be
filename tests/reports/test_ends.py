"""How sessions end and what is told of it: a preemption is no failure, a step has one number, secrets stay secret."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder
from relay.core.errors import Exit
from relay.core.ledger.frozen import SILENT, TERMINATED
from storage.base import Denied, QuotaExceeded, StoreError, Throttled, Unavailable
from tests.app.cli import Desk
from tests.core.checkpoint.test_outbox import keep, story
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload, hash_of, state_at

SECRETS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "HF_TOKEN": "hf_" + "abcdefghij" * 3,
    "RELAY_CACHE_KEY": "c0ffee" * 8,
}


def test_a_preempted_session_is_no_failed_one_however_often(lab: Lab) -> None:
    """Deaths and requests to end are counted apart: neither is a failure, and no number of them halts a run."""
    for turn in range(6):
        session = lab.session(f"account_{turn}", target_steps=5000, wait_s=600.0, ttl_s=30.0).start()
        if turn % 2:
            lab.world.at(lab.world.now + 3.0, session.process.kill)
        else:
            lab.world.at(lab.world.now + 15.0, lambda s=session: s.ctx.signal.ask("sigterm"))
        lab.world.run()
        lab.world.now += 60
    state = lab.state()
    assert state.halted is None and state.failures == ()
    assert not [incident for incident in state.incidents if incident.cause in ("crash", "non-finite")]
    ends = [link.end for link in state.links]
    assert set(ends) <= {TERMINATED, SILENT, "open"} and {TERMINATED, SILENT} <= set(ends), ends


def test_a_failure_is_recorded_as_one_and_not_as_a_death(lab: Lab) -> None:
    session = lab.session(target_steps=100, workload=ToyWorkload(nan_at=15))
    assert lab.run(session).exit_code == Exit.BAD_DATA
    state = lab.state()
    assert (len(state.failures), state.deaths, state.links[-1].end) == (1, 0, "bad data")


def test_the_only_axis_is_the_runs_own_step(lab: Lab) -> None:
    """Progress, links and commits of five sessions form one line: nothing restarts, nothing counts twice."""
    reported: list[int] = []
    for turn in range(5):
        session = lab.session(f"account_{turn}", target_steps=20 * (turn + 1))
        session.ctx.listener.progress = lambda progress: reported.append(progress.step)
        lab.run(session)
    beside_uploads = {11, 31, 51, 71, 91}
    """The step after a commit within a session, whose numbers nobody waits for."""
    assert reported == [step for step in range(1, 101) if step not in beside_uploads]
    assert [(link.from_step, link.to_step) for link in lab.state().links] == [(20 * n, 20 * n + 20) for n in range(5)]


def test_resuming_takes_no_time_that_grows_with_the_step(lab: Lab) -> None:
    """No step is run, and nothing is skipped through, before the first one that is new."""
    lab.run(lab.session(target_steps=500, every_steps=100))
    began = lab.world.now
    session = lab.session("bob", target_steps=501)
    first: list[float] = []
    session.ctx.listener.progress = lambda progress: first.append(lab.world.now - began)
    lab.run(session)
    assert session.workload.trained[0] == 501 and first[0] < 5.0


@pytest.mark.parametrize(
    "error", [Unavailable("no answer"), Throttled("busy", 20.0), Denied("expired credentials"), QuotaExceeded("full")]
)
def test_an_upload_that_fails_for_a_while_neither_ends_nor_falsifies_a_session(lab: Lab, error: StoreError) -> None:
    session = lab.session(target_steps=1200, every_steps=100)

    def fail(verb: str, name: str) -> None:
        if verb == "put" and name.startswith("checkpoints"):
            raise error

    lab.world.at(lab.world.now + 15.0, lambda: setattr(session.store, "fail", fail))
    seen: list[int] = []
    lab.world.at(lab.world.now + 80.0, lambda: seen.append(lab.state().step))
    lab.world.at(lab.world.now + 80.0, lambda: setattr(session.store, "fail", lambda verb, name: None))
    assert lab.run(session).exit_code == Exit.OK
    assert seen[0] <= 200, "what did not arrive was not said to be durable"
    assert lab.held() == hash_of(1200, state_at(1200))


def test_a_save_cut_at_any_byte_is_never_sent(tmp_path: Path) -> None:
    """Whatever a kill, a full disk or a lost cache leaves of a checkpoint on this machine."""
    state, local_folder = story(), LocalFolder(tmp_path / "sync")
    packed: LocalCheckpoint = keep(local_folder, state, 35)
    assert local_folder.pushable(state) == packed
    description = local_folder.root / "step_35.e1.json"
    for path in (*sorted(local_folder.folder(packed.key).iterdir()), description):
        data = path.read_bytes()
        for cut in range(len(data)):
            path.write_bytes(data[:cut])
            assert local_folder.pushable(state) is None, f"{path.name} cut at {cut}"
        path.write_bytes(data)
    assert local_folder.pushable(state) == packed


def test_no_command_prints_or_logs_a_secret(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", dict(SECRETS))
    pasted = f"mine {SECRETS['HF_TOKEN']}"
    told = [desk("register", "account_1", pasted, "--owner", "John", "--provider", "local", code=78)]
    desk("register", "account_1", "mine", "--owner", "John", "--provider", "local")
    told += [desk("accounts", "edit", "account_1", "--label", pasted, code=78)]
    told += [desk.train(3), desk.train(6)]
    for command in ("report", "status", "next", "verify", "doctor", "gc --dry-run", "config show", "accounts list"):
        run = [] if command.startswith("accounts") else ["--run", "r"]
        told += [desk(*command.split(), *run), desk(*command.split(), *run, "--json")]
    logging.shutdown()
    texts = [part for result in told for part in (result.out, result.err)]
    texts += [path.read_text() for path in (desk.folder / "sync" / "logs").iterdir()]
    assert [name for name, secret in SECRETS.items() if any(secret in text for text in texts)] == []
