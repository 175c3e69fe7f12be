"""A session leaves a report of itself: what it says, where it lies, and that it costs the session nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.canonical import digest, dumps
from relay.errors import Exit
from relay.phases import ORDER, Spent, phases
from relay.recording import FOLDER, KEPT, WAIT_S, keep
from relay.sessionreport import MAX_BYTES, MAX_CHECKPOINTS, Made, Newer, SessionReport, decode, encode, parse
from relay.sessiontext import agrees, markdown, plain, read_report
from relay.startup import Startup
from storage.base import Unavailable
from tests.relay.runs import NAMES
from tests.relay.sessions import PROJECT, RUN, Lab, Session, down
from tests.relay.toy import ToyWorkload


def stored(lab: Lab, epoch: int = 1) -> SessionReport | None:
    """What the store holds of the session of that epoch."""
    found = [one for one in lab.shared.list(f"runs/{PROJECT}/{RUN}/sessions/") if int(one.name[-25:-5]) == epoch]
    return decode(lab.shared.get(found[0].ref)) if found else None


def on_disk(session: Session, epoch: int = 1) -> SessionReport:
    """What its own machine holds."""
    return parse(json.loads((session.ctx.outbox.root / FOLDER / f"session_e{epoch}.json").read_text()))


def adds_up(report: SessionReport) -> None:
    assert sum(report.phases.values()) == pytest.approx(report.wall_s, abs=1e-6)
    assert all(seconds >= 0 for seconds in report.phases.values())


def test_it_says_what_the_ledger_says_and_more(lab: Lab) -> None:
    toy = ToyWorkload(environment={"device": "cuda", "gpu": "NVIDIA L4", "torch": "2.13", "python": "3.11"})
    session = lab.session("ana", workload=toy, target_steps=40, evaluate_every=1, every_s=1e9)
    lab.run(session)
    report, link = stored(lab), lab.state().links[0]
    assert report is not None and on_disk(session) == report
    assert agrees(report, link)
    assert (report.account, report.epoch, report.from_step, report.to_step) == ("ana", 1, 0, 40)
    assert (report.gpu, report.environment["torch"]) == ("L4", "2.13")
    assert [made.step for made in report.checkpoints] == [10, 20, 30, 40]
    assert report.checkpoints[-1].state_hash == lab.state().head.state_hash
    assert (report.exit_code, report.end, report.next) == (0, "target reached", None)
    assert report.validated_step == 40 and report.started == link.started
    adds_up(report)
    assert {"train", "evaluate", "upload", "release"} <= report.phases.keys()
    assert report.phases["train"] == pytest.approx(session.outcome.train_s)


def test_the_next_one_says_whom_it_follows_and_how_exactly(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20))
    lab.run(lab.session("ben", target_steps=40))
    report = stored(lab, 2)
    assert report and (report.follows, report.certified, report.from_step) == (1, "exact", 20)
    adds_up(report)


def kill_upload(session: Session) -> None:
    session.store.fail = lambda verb, name: down(verb, name) if "step_" in name else None


def term(session: Session) -> None:
    session.process.world.at(session.process.world.now + 3.0, lambda: session.ctx.signal.ask("sigterm"))


ENDS: dict[str, tuple[Callable[[Session], None], int, str]] = {
    "upload failed": (kill_upload, Exit.UPLOAD_FAILED, "last upload failed"),
    "terminated": (term, Exit.SIGTERM, "terminated (SIGTERM)"),
}


@pytest.mark.parametrize("how", ENDS)
def test_it_is_written_however_the_session_ends_under_the_lease(lab: Lab, how: str) -> None:
    hurt, code, end = ENDS[how]
    session = lab.session("ana", target_steps=100, budget_s=60.0, workload=ToyWorkload(step_s=0.5))
    hurt(session)
    lab.run(session)
    report = on_disk(session)
    assert (report.exit_code, report.end) == (code, end)
    assert report.unsent == (how == "upload failed")
    assert stored(lab) == report
    adds_up(report)


def test_a_crash_of_training_is_told_too(lab: Lab) -> None:
    session = lab.session("ana", workload=ToyWorkload(crash={15: ZeroDivisionError("the loop is broken")}))
    with pytest.raises(ZeroDivisionError):
        lab.run(session)
    report = on_disk(session)
    assert (report.exit_code, report.end) == (Exit.BUG, "crashed")
    assert [one.cause for one in report.incidents] == ["crash"] and report.to_step == 10


def test_a_session_that_lost_its_lease_writes_nothing_to_the_store(lab: Lab) -> None:
    early = lab.session("ana", workload=ToyWorkload(step_s=1.0), target_steps=2000, every_steps=2000).start()
    lab.world.at(lab.world.now + 30, lambda: early.process.suspend(400))
    late = lab.session("ben", workload=ToyWorkload(step_s=1.0), target_steps=30, wait_s=4000)
    lab.world.at(lab.world.now + 40, late.start)
    lab.world.run(to_the_end=True)
    assert early.outcome.exit_code == Exit.FENCED
    assert (on_disk(early).exit_code, on_disk(early).end) == (76, "fenced")
    assert stored(lab, 1) is None and stored(lab, 2) is not None


def test_a_store_that_hangs_or_refuses_costs_the_session_seconds_and_nothing_else(lab: Lab) -> None:
    def fail(verb: str, name: str) -> None:
        if "/sessions/" in name and not verb.startswith("after-"):
            session.process.sleep(1000)
            raise Unavailable("no answer")

    whole = lab.session("ana", target_steps=20)
    lab.run(whole)
    session = lab.session("ben", target_steps=40)
    session.store.fail = fail
    began = lab.world.now
    assert lab.run(session).exit_code == Exit.OK
    assert lab.world.now - began < whole.outcome.total_s + WAIT_S + 3
    assert lab.state().holder is None, "the lease had been given back before"
    assert stored(lab, 2) is None and on_disk(session, 2).to_step == 40


def test_a_full_disk_costs_nothing_but_the_report(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relay.recording.keep", full)
    assert lab.run(lab.session("ana", target_steps=20)).exit_code == Exit.OK


def test_a_second_interrupt_leaves_no_report(lab: Lab) -> None:
    session = lab.session("ana", workload=ToyWorkload(step_s=1.0))
    for _ in range(2):
        lab.world.at(lab.world.now + 5, lambda: session.ctx.signal.ask("sigint"))
    lab.run(session)
    assert session.ctx.signal.at_once
    assert stored(lab) is None


def report(**changes: object) -> SessionReport:
    plain = {
        "project": NAMES.project, "run": NAMES.run, "run_id": "1" * 32, "epoch": 3, "account": "ana",
        "config_hash": "c" * 64, "started": 1.7e9, "wall_s": 100.0, "lease_s": 90.0, "phases": {"train": 100.0},
        "from_step": 0, "to_step": 10, "goodput": 0.9, "commits": 1, "certified": "exact", "exit_code": 75,
        "end": "budget used", "at_risk_s": 5.0,
    }  # fmt: skip
    return SessionReport.model_validate_json(json.dumps({**plain, **changes}))


def test_this_machine_keeps_a_bounded_number(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("not a report")
    for epoch in range(1, KEPT + 4):
        keep(tmp_path, report(epoch=epoch), "words")
    epochs = sorted(int(path.stem.removeprefix("session_e")) for path in tmp_path.glob("session_e*.md"))
    assert epochs == list(range(4, KEPT + 4))
    assert len(list(tmp_path.iterdir())) == 2 * KEPT + 1


def test_the_largest_report_fits() -> None:
    wide = "\U0001f600" * 500
    big = report(
        environment={f"{'k' * 30}_{chr(97 + n)}": wide for n in range(20)},
        checkpoints=[{"step": 2**53 - 1, "state_hash": "f" * 64, "bytes": 2**53 - 1}] * MAX_CHECKPOINTS,
        stall_s=[1 / 3] * MAX_CHECKPOINTS,
        metrics={f"{n:064d}": 1 / 3 for n in range(32)},
        incidents=[{"at": 1.7e9 + 1 / 3, "step": 2**53 - 1, "cause": wide, "text": wide}] * 20,
        why=wide,
        end=wide,
    )
    assert 20_000 < len(encode(big)) <= MAX_BYTES
    assert decode(encode(big)) == big


HOSTILE: dict[str, Callable[[dict[str, object]], object]] = {
    "an unknown field": lambda told: told | {"host": "h"},
    "a number as text": lambda told: told | {"epoch": "3"},
    "a negative time": lambda told: told | {"wall_s": -1.0},
    "an endless time": lambda told: told | {"wall_s": 1e300},
    "an unknown phase": lambda told: told | {"phases": {"mining": 1.0}},
    "too many checkpoints": lambda told: told | {"checkpoints": [{"step": 1, "state_hash": "f" * 64, "bytes": 1}] * 51},
    "another schema": lambda told: told | {"schema": "relay.run/1"},
    "a path as a provider": lambda told: told | {"provider": "/home/ana"},
}


def sealed(document: object) -> bytes:
    """As a store holds it, its hash right."""
    return dumps({"report": document, "sha256": digest(dumps(document))})


def test_a_flipped_bit_anywhere_is_seen() -> None:
    good = encode(report())
    for at in range(len(good)):
        with pytest.raises(ValueError, match=r"."):
            decode(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


@pytest.mark.parametrize("how", HOSTILE)
def test_what_no_session_writes_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(sealed(HOSTILE[how](report().document())))


def test_a_newer_one_says_upgrade() -> None:
    with pytest.raises(Newer, match="upgrade"):
        decode(sealed(report().document() | {"format": 2, "schema": "relay.session/2"}))


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


def test_a_report_of_another_run_or_epoch_is_left_aside(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20))
    names, state = lab.session("ben").ctx.names, lab.state()
    good = stored(lab)
    assert good and read_report(lab.shared, names, state, 1) == (good, "")
    for change in ({"run_id": "2" * 32}, {"epoch": 2}, {"run": "other"}):
        lab.shared.put(names.session(1), encode(good.model_copy(update=change)))
        found, why = read_report(lab.shared, names, state, 1)
        assert found is None and "another session" in why
    lab.shared.put(names.session(1), b"x" * (MAX_BYTES + 1))
    assert "left aside" in read_report(lab.shared, names, state, 1)[1]
    assert "no report" in read_report(lab.shared, names, state, 7)[1]


EVIL = "\x1b[31mred\u202e]8;;http://evil\x07[click](http://evil) <b>|`rm -rf` \u200b*bold*"


def test_no_mark_of_a_stranger_is_obeyed() -> None:
    text = markdown(
        report(why=EVIL, certified="not-exact", end=EVIL, environment={"torch": EVIL},
               incidents=[{"at": 1.7e9, "step": 1, "cause": EVIL, "text": EVIL}]),
        label=EVIL,
        to_type="x`y`",
    )  # fmt: skip
    assert not set(text) & set("\x1b\x07\u202e\u200b")
    assert "[click]" not in text.replace("\\[click\\]", "") and "<b>" not in text.replace("\\<b\\>", "")
    assert plain("a|b`c") == "a\\|b\\`c"
    assert "http://" not in text and plain("see www.evil or WWW.evil") == "see www\\.evil or WWW\\.evil", (
        "no link either"
    )


@given(
    marks=st.dictionaries(
        st.sampled_from(["import", "data", "lease", "restore", "cache", "first_step"]), st.floats(0, 1e4)
    ),
    inside=st.dictionaries(st.sampled_from(["compile", "capture"]), st.floats(0, 1e4)),
    spent=st.dictionaries(st.sampled_from(["evaluate", "snapshot", "upload", "release"]), st.floats(0, 1e4)),
    train_s=st.floats(0, 1e5),
    rest=st.floats(0, 1e4),
)
def test_phases_add_up(
    marks: dict[str, float], inside: dict[str, float], spent: dict[str, float], train_s: float, rest: float
) -> None:
    start = Startup(0.0, inside=lambda: inside, phases=dict(marks))
    before = sum(seconds for phase, seconds in marks.items() if phase != "first_step")
    wall = before + train_s + sum(spent.values()) + rest
    found = phases(start, spent, train_s, wall)
    assert sum(found.values()) == pytest.approx(wall)
    assert [name for name in ORDER if name in found] == list(found)


def test_what_waits_beside_something_else_is_counted_once(lab: Lab) -> None:
    process = lab.world.process()
    spent = Spent(process)

    def body() -> None:
        with spent.on("upload"):
            process.sleep(2)
            with spent.on("evaluate"):
                process.sleep(3)
            process.sleep(1)

    process.start(body)
    lab.world.run()
    assert spent.seconds == {"evaluate": pytest.approx(3, abs=0.01), "upload": pytest.approx(3, abs=0.01)}


def test_the_newest_checkpoints_are_told_and_the_others_counted() -> None:
    text = markdown(report(commits=60, checkpoints=[Made(step=1, state_hash="f" * 64, bytes=5).model_dump()]))
    assert "## Checkpoints (60)" in text and "59 older ones not listed" in text


def test_who_is_next_is_told_unless_nothing_is_left_to_train(lab: Lab) -> None:
    for reason, target, next_one in (("stop", 100, "ben"), ("", 40, None)):
        session = lab.session("ana", workload=ToyWorkload(step_s=0.5), target_steps=target)
        session.ctx.successor = lambda state: "ben"
        if reason:
            lab.world.at(lab.world.now + 5, lambda: session.ctx.signal.ask("stop"))  # noqa: B023 (called at once)
        lab.run(session)
        told = on_disk(session, lab.state().epoch)
        assert told.next == next_one
        assert ("nothing left to train" in markdown(told)) == (next_one is None)
    assert "## Next, as ben\n\n```sh\ngo\n```" in markdown(report(next="ben"), to_type="go")
