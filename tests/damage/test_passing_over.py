"""A newest entry that one session cannot read for a while: passed over after proof only, and for ever (P4, P6)."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.errors import Exit, StorageUnreachable
from relay.core.ledger.canonical import digest
from relay.core.ledger.entry import NewerFormat, decode
from relay.core.ledger.fields import Kept
from relay.core.ledger.frozen import MAX_KEPT, NOT_KEPT, PASSING, STEP_BACK, TARGET, not_kept
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.passing import Look
from relay.core.ledger.verified import FileMark
from storage.base import Ref
from tests.core.lab import PROJECT, RUN, Lab, Session
from tests.core.making import NAMES, Client, forged, overwrite, raw
from tests.core.toy import hash_of, state_at
from tests.damage.harms import HARMS
from tests.damage.ledgers import entry, passing, reader, worked

LEDGER = f"runs/{PROJECT}/{RUN}/ledger/"
TTL = 180.0


def newest(lab: Lab) -> str:
    return max(stat.name for stat in lab.shared.list(LEDGER))


def commit_without_release(lab: Lab) -> tuple[str, bytes]:
    """A session that dies once step 20 is committed. Returns the name and the bytes of the newest entry, the commit."""
    session = lab.session(target_steps=1000)

    def die(verb: str, name: str) -> None:
        if verb == "after-put_if_absent" and name.startswith(LEDGER) and lab.state().step == 20:
            session.process.kill()

    session.store.fail = die
    session.start()
    lab.world.run()
    assert lab.kinds()[-1] == "commit" and lab.state().step == 20
    return newest(lab), lab.shared.get(Ref(newest(lab)))


def check_run(lab: Lab, step: int) -> None:
    """Every way of reading shows the same run, no epoch is used twice, and no key of a checkpoint."""
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    state = ledger.read().state
    assert state.step == step and state.head.state_hash == hash_of(step, state_at(step))
    walked = list(ledger.walk(ledger.read().seq))
    assert walked[-1].state == state == ledger.validate().state
    entries = [decode(lab.shared.get(stat.ref), MACHINE.kinds, seq) for seq, stat in enumerate(lab.shared.list(LEDGER))]
    epochs = [entry.epoch for entry in entries if entry.kind == "lease"]
    assert epochs == sorted(set(epochs)), "an epoch is used twice"
    manifests = [entry.change["checkpoint"]["manifest"] for entry in entries if entry.kind == "commit"]
    assert len(manifests) == len(set(manifests)), "a key is used twice"


@pytest.mark.parametrize("harm", ["half", "middle", "one byte left"])
def test_i6_an_entry_that_is_whole_again_takes_no_later_commit_back(lab: Lab, harm: str) -> None:
    name, whole = commit_without_release(lab)
    lab.damage(name, HARMS[harm])
    assert lab.run(lab.session("bob", target_steps=60, wait_s=900)).exit_code == Exit.OK
    before = {stat.name: lab.shared.get(stat.ref) for stat in lab.shared.list("checkpoints/")}
    lab.shared.put(name, whole)
    check_run(lab, 60)
    assert lab.run(lab.session("carol", target_steps=80, wait_s=900)).exit_code == Exit.OK
    check_run(lab, 80)
    after = {stat.name: lab.shared.get(stat.ref) for stat in lab.shared.list("checkpoints/")}
    assert not {key for key in before if key in after and after[key] != before[key]}, "a key was written twice"
    causes = [incident.cause for incident in lab.state().incidents if incident.cause != TARGET]
    assert causes == ["passed-over", "step-back"], "the step back is recorded"


@pytest.mark.parametrize("dies_after", ["lease", "commit"])
def test_an_entry_that_passes_over_stands_though_its_base_is_damaged_too(lab: Lab, dies_after: str) -> None:
    session = lab.session(target_steps=1000)

    def die(verb: str, name: str) -> None:
        if verb == "after-put_if_absent" and name.startswith(LEDGER) and lab.kinds()[-1] == dies_after:
            session.process.kill()

    session.store.fail = die
    session.start()
    lab.world.run()
    slot = int(newest(lab)[-25:-5])
    lab.damage(newest(lab), HARMS["half"])
    assert lab.run(lab.session("bob", target_steps=60, wait_s=900)).exit_code == Exit.OK
    lab.damage(f"{LEDGER}{slot - 1:020d}.json", HARMS["half"])
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    told = {(damage.slot, damage.rotted) for point in ledger.walk(ledger.read().seq) for damage in point.damage}
    assert told >= {(slot, False), (slot - 1, True)} and {number for number, _ in told} == {slot - 1, slot}
    assert ledger.read().state.step == 60


def test_i8_the_checkpoint_of_a_passed_over_commit_survives_every_cleaning(lab: Lab) -> None:
    name, _ = commit_without_release(lab)
    lab.damage(name, HARMS["half"])
    session = lab.session("bob", target_steps=200, wait_s=900)
    assert lab.run(session).exit_code == Exit.OK
    lab.world.now += 10 * 86_400
    assert lab.run(lab.session("carol", target_steps=400, wait_s=900)).exit_code == Exit.OK
    (kept,) = lab.state().kept
    assert (kept.key, digest(lab.shared.get(Ref(kept.ref)))) == ((20, 1), kept.sha256)
    assert {stat.name.rsplit("/", 1)[1] for stat in lab.shared.list("checkpoints/") if "/step_20.e1/" in stat.name} == {
        "manifest.json",
        "state.json",
        "ema.json",
    }


class Unreliable:
    """Bad reads of one name, the first `bad` of them: of the object's length, or shortened."""

    def __init__(self, session: Session, name: str, bad: float, *, short: bool = False) -> None:
        self.left, self.name, self.times = bad, name, []
        whole, part, process = session.store.get, session.store.read_range, session.process

        def spoilt(ref: Ref, data: bytes) -> bytes:
            if ref != name:
                return data
            self.times.append(process.monotonic())
            self.left -= 1
            return data if self.left < 0 else data[:-9] if short else spoil(data)

        def get(ref: Ref, *, limit: int | None = None) -> bytes:
            return spoilt(ref, whole(ref, limit=limit))

        def read_range(ref: Ref, start: int, length: int) -> bytes:
            return spoilt(ref, part(ref, start, length))

        session.store.get, session.store.read_range = get, read_range  # type: ignore[method-assign]


def spoil(data: bytes) -> bytes:
    return data[:-9] + b"#" + data[-8:]


def test_a_link_that_shortens_a_slot_is_no_reason_to_pass_over(lab: Lab) -> None:
    """The store reports a larger size: the session writes nothing, at once, without waiting for the lease's time."""
    name, _ = commit_without_release(lab)
    entries = len(lab.kinds())
    session = lab.session("bob", target_steps=60, wait_s=900)
    Unreliable(session, name, bad=float("inf"), short=True)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.STORAGE_UNREACHABLE and isinstance(outcome.failure, StorageUnreachable)
    assert len(lab.kinds()) == entries


@pytest.mark.parametrize("left_s", [170.0, 100.0, 10.0])
def test_readings_that_differ_are_no_reason_to_pass_over(lab: Lab, left_s: float) -> None:
    """The slot becomes readable while it is read again: the session writes nothing, the next one goes on from it."""
    name, _ = commit_without_release(lab)
    entries = len(lab.kinds())
    session = lab.session("bob", target_steps=60, wait_s=900)
    unreliable = Unreliable(session, name, bad=float("inf"))

    def heal(look: Look) -> None:
        unreliable.left = 0 if look.left_s <= left_s else unreliable.left

    session.ctx.ledger.chain.prover.notice = heal
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.STORAGE_UNREACHABLE and name in str(outcome.failure)
    assert len(lab.kinds()) == entries, "nothing was written"
    assert lab.run(lab.session("bob", target_steps=60, wait_s=900)).exit_code == Exit.OK
    check_run(lab, 60)
    assert {one.cause for one in lab.state().incidents} <= {TARGET}, "no step was lost"


def test_a_slot_is_read_over_the_whole_ttl_before_it_is_passed_over(lab: Lab) -> None:
    name, whole = commit_without_release(lab)
    session = lab.session("bob", target_steps=60, wait_s=900)
    unreliable = Unreliable(session, name, bad=float("inf"))
    assert lab.run(session).exit_code == Exit.OK
    taken = [n for n, kind in enumerate(lab.kinds()) if kind == "lease"][1]
    sent = session.store.calls.index(("put_if_absent", f"{LEDGER}{taken:020d}.json"))
    assert sent > 0 and unreliable.times[-1] - unreliable.times[0] >= TTL
    entry = decode(lab.shared.get(Ref(f"{LEDGER}{taken:020d}.json")), MACHINE.kinds, taken)
    assert (entry.format, entry.base, entry.passed.digests) == (PASSING, taken - 2, (digest(spoil(whole)),))
    check_run(lab, 60)


def test_every_entry_that_passes_over_nothing_keeps_its_format(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    lab.run(lab.session("bob", target_steps=60))
    for seq, stat in enumerate(lab.shared.list(LEDGER)):
        data = lab.shared.get(stat.ref)
        assert decode(data, MACHINE.kinds, seq).format < PASSING and b"passed" not in data and b"skipped" not in data


def test_the_version_before_stops_at_an_entry_that_passes_over(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = commit_without_release(lab)
    lab.damage(name, HARMS["half"])
    assert lab.run(lab.session("bob", target_steps=60, wait_s=900)).exit_code == Exit.OK
    older = lab.session("carol", target_steps=80, wait_s=900)
    with monkeypatch.context() as patch:
        patch.setattr("relay.core.ledger.entry.FORMAT", PASSING - 1)
        outcome = lab.run(older)
    assert outcome.exit_code == Exit.BAD_CONFIG and type(outcome.failure) is NewerFormat


def test_an_own_entry_that_others_passed_over_has_not_landed(lab: Lab) -> None:
    """Its session learns it from the next reading, not from the answer that it got."""
    name, whole = commit_without_release(lab)
    lab.damage(name, HARMS["half"])
    assert lab.run(lab.session("bob", target_steps=40, wait_s=900)).exit_code == Exit.OK
    lab.shared.put(name, whole)
    entry = decode(whole, MACHINE.kinds, int(name[-25:-5]))
    chain = RunLedger(lab.shared, PROJECT, RUN, lab.world.process()).chain
    intent = chain.intent()
    intent.nonce, intent.tried_on = entry.nonce, chain.reader.through(chain.reader.claimed(0), entry.base)
    chain._catch_up(intent.tried_on, intent)
    assert not intent.landed


def test_two_thousand_junk_slots_cost_few_requests(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    tail = int(newest(lab)[-25:-5])
    for seq in range(tail + 1, tail + 2001):
        lab.shared.put(f"{LEDGER}{seq:020d}.json", b"x")
    session = lab.session("bob", target_steps=40, wait_s=900)
    view = session.ctx.ledger
    calls: list[Any] = session.store.calls
    session.process.start(lambda: view.read())  # type: ignore[arg-type, return-value]
    lab.world.run()
    assert len(calls) < 60, "a status"
    session = lab.session("bob", target_steps=40, wait_s=900)
    assert lab.run(session).exit_code == Exit.OK
    assert len(session.store.calls) < 600, "a session"
    assert lab.state().step == 40 and "passed-over" in {one.cause for one in lab.state().incidents}
    again = lab.session("carol", target_steps=60, wait_s=900)
    assert lab.run(again).exit_code == Exit.OK and len(again.store.calls) < 600


def test_the_mark_of_a_passed_over_entry_is_no_sign_of_a_rolled_back_store(lab: Lab, tmp_path: Any) -> None:
    name, whole = commit_without_release(lab)
    seen = lab.session("alice")
    seen.ctx.ledger.chain.mark = FileMark(tmp_path / "judged.json")
    seen.ctx.ledger.validate()
    lab.damage(name, HARMS["half"])
    assert lab.run(lab.session("bob", target_steps=40, wait_s=900)).exit_code == Exit.OK
    for data in (whole[:500], whole):
        lab.shared.put(name, data)
        session = lab.session("alice", target_steps=60, wait_s=900)
        session.ctx.ledger.chain.mark = FileMark(tmp_path / "judged.json")
        assert session.ctx.ledger.validate().state.step >= 40


@pytest.mark.parametrize("rotted", [1, 2, 3])
def test_i5_rot_below_a_healed_slot_is_judged_alike_by_whoever_has_read_that(tmp_path: Any, rotted: int) -> None:
    """A machine's mark, or a session's own reading, ends just at a slot that a later entry passes over."""
    store, client = worked()
    client.commit(30)
    whole = raw(store, 4)
    marked, along = reader(store), reader(store)
    marked.chain.mark = FileMark(tmp_path / "judged.json")
    marked.validate()
    along.read()
    overwrite(store, 4, whole[:300])
    other = Client(store, 2, "bob")
    other.lease()
    for step in (25, 35):
        other.commit(step)
    overwrite(store, 4, whole)
    overwrite(store, rotted, b"rot")
    again = reader(store)
    again.chain.mark = FileMark(tmp_path / "judged.json")
    state = reader(store).validate().state
    assert (state.step, state.epoch) == (35, 5)
    assert again.validate().state == along.read().state == list(reader(store).walk(7))[-1].state == state


def test_i5_a_base_that_rotted_lets_nobody_in(tmp_path: Any) -> None:
    """Slot 4 is garbage; slot 5 claims an older state and builds on slot 4's former bytes; slot 7 builds on slot 5."""
    store, client = worked()
    good = client.ledger.read().state
    marked = reader(store)
    marked.chain.mark = FileMark(tmp_path / "judged.json")
    marked.validate()
    evil = good.model_copy(update={"step": 10, "holder": None}).model_dump(mode="json")
    for slot, claimed in ((4, None), (5, evil), (6, None)):
        fields = {"seq": 5, "base": 4, "parent": "f" * 64, "state": claimed}
        overwrite(store, slot, forged(raw(store, 3), entry(store, 3), **fields) if claimed else b"garbage")
    passing(store, entry(store, 5), 7, epoch=7)
    again = reader(store)
    again.chain.mark = FileMark(tmp_path / "judged.json")
    for ledger in (again, reader(store), client.ledger):
        assert ledger.validate().state == good
    assert list(reader(store).walk(7))[-1].state == good


def test_checkpoints_that_find_no_room_are_told() -> None:
    """The newest are kept; an incident notes that there are more, and while it does, no file of their epoch goes."""
    store, _ = worked()
    overwrite(store, 4, b"rot")
    other = Client(store, 2, "bob")
    found = [
        Kept(slot=4, step=step, epoch=1, manifest=name, ref=name, sha256="a" * 64)
        for step in range(30, 33 + MAX_KEPT)
        for name in [NAMES.manifest(step, 1)]
    ]
    other.ledger.chain.prover.keep = lambda state, slots: found
    state = other.lease().state
    assert [kept.step for kept in state.kept] == list(range(33, 33 + MAX_KEPT))
    (told,) = [one for one in state.incidents if one.cause == NOT_KEPT]
    assert told.text == not_kept(3) and state.may_have_committed(1)
    assert STEP_BACK in [one.cause for one in state.incidents]
    assert reader(store).validate().state == state


def test_a_strangers_file_in_the_next_slot_ends_the_session_after_a_leases_time(lab: Lab) -> None:
    """Hours that it could not commit would be lost with its machine, and no other session could train."""
    session = lab.session(machine="A", target_steps=10**6, every_steps=100, budget_s=6 * 3600)
    met: list[float] = []

    def junk(verb: str, name: str) -> None:
        if verb == "after-put_if_absent" and name.startswith(LEDGER) and lab.state().step == 200 and not met:
            met.append(session.process.monotonic())
            lab.shared.put(f"{LEDGER}{int(newest(lab)[-25:-5]) + 1:020d}.json", b"a stranger's")

    session.store.fail = junk
    outcome = lab.run(session)
    assert (outcome.exit_code, outcome.durable_step) == (Exit.UPLOAD_FAILED, 200) and outcome.unsent
    assert TTL <= outcome.train_s < TTL + 300, "neither at once nor hours later"
    made = max(packed.step for packed in session.ctx.local_folder.all())
    after = lab.session(machine="A", target_steps=made, wait_s=900)
    assert lab.run(after).exit_code == Exit.OK and lab.state().step == made
    assert f"{made:,}" in after.told[0], "the checkpoint that the session before left here"


def test_a_signal_ends_the_wait_and_nothing_is_passed_over(lab: Lab) -> None:
    name, _ = commit_without_release(lab)
    lab.damage(name, HARMS["half"])
    before = [stat.name for stat in lab.shared.list(LEDGER)]
    session = lab.session("bob", target_steps=60, wait_s=900)
    asked: list[float] = []

    def ask(look: Look) -> None:
        if look.left_s < 100 and not asked:
            asked.append(session.process.monotonic())
            session.ctx.signal.ask("sigint")

    session.ctx.ledger.chain.prover.notice = ask
    assert lab.run(session).exit_code == Exit.SIGINT
    assert session.process.monotonic() - asked[0] < 10 and [stat.name for stat in lab.shared.list(LEDGER)] == before


def test_a_budget_that_ends_during_the_wait_passes_nothing_over(lab: Lab) -> None:
    """A lease that begins after its own end would only keep the others waiting."""
    name, _ = commit_without_release(lab)
    lab.damage(name, HARMS["half"])
    before = [stat.name for stat in lab.shared.list(LEDGER)]
    outcome = lab.run(lab.session("bob", target_steps=60, wait_s=900, budget_s=250))
    assert outcome.exit_code == Exit.STORAGE_UNREACHABLE and name in str(outcome.failure)
    assert [stat.name for stat in lab.shared.list(LEDGER)] == before
