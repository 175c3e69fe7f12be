"""A machine that lacks threads, open files or memory ends its own session (78); the run and other machines go on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from relay.core import resources
from relay.core.errors import BadData, Exit, StorageUnreachable, UploadFailed, of_store
from relay.core.events import Trouble
from relay.core.ledger.atrest import RunHalted
from relay.core.resources import OutOfResource, exhausted, nearest_limit, try_files, try_threads
from storage.base import Unavailable
from tests.core.fake_runtime import World
from tests.core.lab import Lab, Session
from tests.core.toy import ToyWorkload, hash_of, state_at

pytestmark = pytest.mark.slow

THREADS, FILES, MEMORY = "threads or processes", "open files", "memory"


def system(number: int) -> OSError:
    """An error as the system raises it."""
    return OSError(number, os.strerror(number))


MET: dict[str, tuple[Callable[[], Exception], str]] = {
    "thread": (lambda: RuntimeError("can't start new thread"), THREADS),
    "fork": (lambda: system(errno.EAGAIN), THREADS),
    "C++ thread": (lambda: RuntimeError("Resource temporarily unavailable"), THREADS),
    "files": (lambda: system(errno.EMFILE), FILES),
    "files of all": (lambda: system(errno.ENFILE), FILES),
    "memory": (lambda: MemoryError("at /home/someone"), MEMORY),
    "fork's memory": (lambda: system(errno.ENOMEM), MEMORY),
    "torch": (lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes"), MEMORY),
}


class OutOfMemoryError(RuntimeError):
    """As an accelerator's library names it."""


@pytest.mark.parametrize("case", MET)
def test_a_limit_in_the_training_loop_ends_that_session_and_never_halts(lab: Lab, case: str) -> None:
    make, resource = MET[case]
    for account in ("alice", "bob", "alice"):
        session = lab.session(account, workload=ToyWorkload(crash={44: make()}))
        outcome = lab.run(session)
        assert isinstance(outcome.failure, OutOfResource) and outcome.failure.resource == resource
        assert outcome.exit_code == Exit.BAD_CONFIG and outcome.durable_step == 40
    state = lab.state()
    assert state.halted is None and state.failures == () and state.holder is None and state.deaths == 0
    assert state.incidents[-1].cause == "machine-limit" and "home" not in state.incidents[-1].text
    assert lab.run(lab.session("carol")).exit_code == Exit.OK


@pytest.mark.parametrize("case", MET)
def test_a_limit_behind_a_commit_is_waited_out(lab: Lab, case: str) -> None:
    missing = {"now": False}

    def before_save() -> None:
        if missing["now"]:
            raise MET[case][0]()

    session = lab.session(workload=ToyWorkload(before_save=before_save), target_steps=600)
    lab.world.at(lab.world.now + 5, lambda: missing.update(now=True))
    lab.world.at(lab.world.now + 30, lambda: missing.update(now=False))
    assert lab.run(session).exit_code == Exit.OK and lab.state().step == 600
    assert any(isinstance(event, Trouble) and event.doing == "commit" for event in session.heard.events)


def test_a_limit_behind_the_last_commit_is_74_and_names_it(lab: Lab) -> None:
    def before_save() -> None:
        if lab.world.now > began + 5:
            raise MemoryError

    began = lab.world.now
    outcome = lab.run(lab.session(workload=ToyWorkload(before_save=before_save), budget_s=30, target_steps=9999))
    assert outcome.exit_code == Exit.UPLOAD_FAILED and outcome.unsent is None
    assert isinstance(outcome.failure, UploadFailed) and lab.state().holder is None


@pytest.mark.parametrize("name", ["heartbeat", "committer", "release", "report", "proposal"])
def test_a_thread_that_cannot_start_never_keeps_the_lease(lab: Lab, name: str) -> None:
    session = lab.session(target_steps=40)
    real = session.process.spawn

    def spawn(called: str, body: Callable[[], None]) -> object:
        if called == name:
            raise RuntimeError("can't start new thread")
        return real(called, body)

    session.process.spawn = spawn  # type: ignore[method-assign, assignment]
    outcome = lab.run(session)
    assert lab.state().holder is None and lab.state().halted is None
    assert outcome.exit_code == (Exit.BAD_CONFIG if name in ("heartbeat", "committer") else Exit.OK)


def test_a_limit_that_the_heartbeat_meets_does_not_end_it(lab: Lab) -> None:
    session = lab.session(target_steps=900, every_steps=450)
    session.workload.step_s = 1.0
    lab.world.at(lab.world.now + 100, lambda: setattr(session.store, "fail", refuse_heartbeats))
    lab.world.at(lab.world.now + 200, lambda: setattr(session.store, "fail", lambda verb, name: None))
    lab.run(session)
    after = [name for verb, name in session.store.calls if verb == "put" and "heartbeat" in name]
    assert len(after) > 900 / 30 * 0.7, "it beats again"


def refuse_heartbeats(verb: str, name: str) -> None:
    if verb == "put" and "heartbeat" in name:
        raise MemoryError


def test_a_store_that_meets_a_limit_before_the_lease_is_78(lab: Lab) -> None:
    session = lab.session()

    def fail(verb: str, name: str) -> None:
        raise Unavailable("cannot read: Too many open files") from system(errno.EMFILE)

    session.store.fail = fail
    outcome = lab.run(session)
    assert isinstance(outcome.failure, OutOfResource) and outcome.exit_code == Exit.BAD_CONFIG
    assert lab.state().epoch == 0


# --- A halt stops only the surroundings that failed (P10) -----------------------------------------------------------

OURS, THEIRS, THIRD = {"device": "toy"}, {"device": "a bigger card"}, {"device": "an old card"}


def crashing(lab: Lab, environment: Mapping[str, str], error: Exception | None = None, **more: object) -> Session:
    toy = ToyWorkload(environment=environment, crash={44: error or ZeroDivisionError("x")})
    return lab.session(workload=toy, **more)  # type: ignore[arg-type]


def crash(lab: Lab, environment: Mapping[str, str], error: Exception | None = None) -> None:
    session = crashing(lab, environment, error).start()
    with pytest.raises(type(error) if error else ZeroDivisionError):
        lab.world.run()
    assert session.process.outcome is None


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), OutOfMemoryError("CUDA out of memory")])
def test_other_surroundings_resume_what_two_equal_failures_halted(lab: Lab, error: Exception) -> None:
    for _ in range(2):
        crash(lab, OURS, error)
    assert lab.state().halted is not None
    refused = crashing(lab, OURS)
    assert lab.run(refused).exit_code == Exit.BAD_DATA and isinstance(refused.outcome.failure, RunHalted)
    assert lab.state().epoch == 2, "it took no lease"
    other = lab.session("carol", workload=ToyWorkload(environment=THEIRS))
    assert lab.run(other).exit_code == Exit.OK
    state = lab.state()
    assert state.halted is None and state.step == 100 and lab.held() == hash_of(100, state_at(100))
    assert [kind for kind in lab.kinds() if kind == "resume"] == ["resume"]


def test_a_state_that_is_not_finite_halts_only_its_surroundings_too(lab: Lab) -> None:
    for nan_at in (44, 46):
        lab.run(lab.session(workload=ToyWorkload(nan_at=nan_at, environment=OURS)))
    assert lab.state().halted
    assert lab.run(lab.session(workload=ToyWorkload(environment=OURS))).exit_code == Exit.BAD_DATA
    assert lab.run(lab.session(workload=ToyWorkload(environment=THEIRS))).exit_code == Exit.OK


def test_surroundings_that_fail_in_turn_come_to_an_end(lab: Lab) -> None:
    """Each gets at most four tries between two commits; without a bound they would undo each other's halt for ever."""
    tries = 0
    for environment in (OURS, THEIRS, THIRD) * 4:
        for _ in range(3):
            session = crashing(lab, environment).start()
            try:
                lab.world.run()
            except ZeroDivisionError:
                tries += 1
            else:
                assert session.outcome.exit_code == Exit.BAD_DATA
    assert tries <= 12 and lab.state().halted


def test_a_session_that_waits_goes_on_where_the_holder_halts_the_run(lab: Lab) -> None:
    crash(lab, OURS)
    second = crashing(lab, OURS).start()
    waiting = lab.session("carol", workload=ToyWorkload(environment=THEIRS), wait_s=300)
    lab.world.at(lab.world.now + 0.2, waiting.start)
    with pytest.raises(ZeroDivisionError):
        lab.world.run()
    lab.world.run()
    assert second.process.outcome is None
    assert waiting.outcome.exit_code == Exit.OK and lab.state().step == 100


# --- What counts as a limit, and which one it is --------------------------------------------------------------------


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        system(errno.ENOSPC),
        RuntimeError("a bug"),
        BlockingIOError(errno.EAGAIN, "write could not complete without blocking"),
        caused(BadData("damaged"), MemoryError()),
        caused(UploadFailed("not sent"), MemoryError()),
        StorageUnreachable("down"),
    ],
)
def test_another_error_keeps_its_meaning(error: Exception) -> None:
    assert exhausted(error) is None


def test_the_cause_of_a_storage_error_counts() -> None:
    error = of_store(caused(Unavailable("no answer"), caused(RuntimeError("pool"), system(errno.EMFILE))))  # type: ignore[arg-type]
    found = exhausted(error)
    assert found is not None and found.resource == FILES


@pytest.mark.parametrize("lines", ["0::/jobs/one\n", "9:pids:/jobs/one\n3:cpu,memory:/jobs/one\n"])
def test_the_smallest_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    groups = tmp_path / "sys/fs/cgroup"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    memory = "memory.max" if lines.startswith("0") else "memory.limit_in_bytes"
    for controller, own in (("pids", "pids.max"), ("memory", memory)):
        folder = groups / ("" if lines.startswith("0") else controller) / "jobs"
        (folder / "one").mkdir(parents=True, exist_ok=True)
        (folder / "one" / own).write_text("max\n")
        (folder / own).write_text("70\n")
    monkeypatch.setattr(resources, "_own", lambda name: 100 if name == "RLIMIT_NOFILE" else None)
    assert nearest_limit(THREADS, tmp_path) == ("the container's pids.max", 70)
    assert nearest_limit(MEMORY, tmp_path) == (f"the container's {memory}", 70)
    assert nearest_limit(FILES, tmp_path) == ("RLIMIT_NOFILE", 100)


def test_a_trial_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    process, ended = world.process(), []
    real = process.spawn

    def spawn(name: str, body: Callable[[], None]) -> object:
        if len(world.fibers) > 5:
            raise RuntimeError("can't start new thread")
        return real(name, lambda: (body(), ended.append(name))[0])

    process.spawn = spawn  # type: ignore[method-assign, assignment]
    process.start(lambda: try_threads(process, 20))
    with pytest.raises(OutOfResource):
        world.run()
    assert len(ended) >= 4
    world.close()

    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OutOfResource):
        monkeypatch.setattr(os, "open", limited(os.open, 5))
        try_files(20)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def limited(real: Callable[..., int], most: int) -> Callable[..., int]:
    left = iter(range(most))

    def opened(*args: object) -> int:
        if next(left, None) is None:
            raise system(errno.EMFILE)
        return real(*args)

    return opened
