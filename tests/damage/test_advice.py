"""Every piece of advice about damage, followed: the run is better for it, whether it is followed at once or late.

Each case damages a run, reads the advice from the command that gives it, follows it, and trains on. Then every code is
0, the bytes are those of an unbroken run, and no step that was durable is gone without a recorded step back.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay.app.checks import verdict
from relay.core.ledger.canonical import digest
from tests.app.repairs import told_command
from tests.core.toy import ToyWorkload, hash_of, state_at
from tests.damage.harms import HARMS
from tests.damage.scene import NAMES, Picture, Scene, content, paint, slot
from tests.damage.test_table import rows

SHORT = {"RELAY_LEASE_TTL_S": "1"}
"""A slot that cannot be read is read again for the lease's time before it is passed over."""
REGISTRY = "registry/ledger/{:020d}.json"
IDENTITY = "trm-relay.store.json"
HINT = NAMES.ledger.removesuffix("/") + ".hint"
FILES = [NAMES.checkpoint(step, epoch) + "state.json" for step, epoch in ((10, 1), (20, 2), (30, 3))]
BACK = frozenset({"rewind", "step-back", "passed-over", "repaired"})
"""Causes of incidents that record a step back."""

Act = Callable[[Scene], object]


@dataclass(frozen=True)
class Case:
    """One kind of damage, and the advice that a person gets."""

    harm: Act
    follow: Act
    row: str = ""
    """The row of docs/contributing/damage.md that gives this advice, by its first words."""
    verdict: str = ""
    """The function of relay/app/checks/verdict.py that gives it."""
    by: str = ""
    """A command that gives it."""
    fact: str = ""
    """A fact in the output besides the verdict: a file, a step, a command."""
    stops: int = 0
    """Exit code of a session before a person followed the advice."""
    run: str = "hurt"
    """The run that goes on."""
    whole: bool = True
    """Whether verify finds nothing wrong with it in the end."""
    disk: bool = False
    """Whether this machine trained the run before."""
    durable: int = 30
    """The newest step before the harm."""
    late: bool = True
    """Whether the advice can be followed after another session: not where that session is the advice."""


def harmed(name: str, how: str = "middle") -> Act:
    return lambda here: here.harm(name, HARMS[how])


def put_back(*names: str) -> Act:
    """From a backup: exactly the files that were there."""

    def act(here: Scene) -> None:
        for name in names:
            here.store.put(name, here.picture.store[name])

    return act


def nothing(here: Scene) -> None:
    return None


def both(*acts: Act) -> Act:
    def act(here: Scene) -> None:
        for one in acts:
            one(here)

    return act


def newest_is_the_commit(here: Scene) -> None:
    """The newest session died before its release."""
    here.store.delete(here.store.ref(slot(NAMES, 9)))


def newest_is_the_lease(here: Scene) -> None:
    """The newest session died before its first commit, whose files had begun to arrive."""
    for number in (8, 9):
        here.store.delete(here.store.ref(slot(NAMES, number)))


def command(*words: str) -> Act:
    return lambda here: here.command(*words, code=0)


def advised(source: str, verb: str) -> Act:
    """The command that `verify` or `doctor` advises."""

    def act(here: Scene) -> None:
        rest = told_command(here.command(source, code=65).out, verb)
        here.desk(*rest, code=0)

    return act


def hint_of_a_lost_slot(here: Scene) -> None:
    hint = {"seq": 12, "ref": slot(NAMES, 12), "digest": "0" * 64}
    here.store.put(HINT, json.dumps(hint).encode())


def from_the_address(here: Scene) -> None:
    """The address that people were given ends in the store's identity."""
    found = json.loads(here.picture.store[IDENTITY])["id"]
    here.store.put(IDENTITY, json.dumps({"format": 1, "id": found}, separators=(",", ":")).encode())


def account_object(here: Scene) -> str:
    (name,) = [name for name in here.picture.store if name.startswith("registry/accounts/account_1/")]
    return name


def another_programs_file(here: Scene) -> None:
    """Step 30 is of a newer version, which this one cannot load."""
    load = ToyWorkload.load

    def picky(self: ToyWorkload, folder: Path) -> None:
        load(self, folder)
        if self.step == 30:
            raise ValueError("a field that this version does not know")

    here.patch.setattr(ToyWorkload, "load", picky)  # type: ignore[attr-defined]


def forged_pair(here: Scene) -> None:
    """Two entries that fit each other, but not the ledger."""
    data = here.picture.store[slot(NAMES, 8)].replace(b'"step":30', b'"step":31')
    here.store.put(slot(NAMES, 10), data)


def moved_out(*names: str) -> Act:
    """Out of the store, to a folder next to it."""

    def act(here: Scene) -> None:
        for name in names:
            kept = here.desk.folder / "kept" / name.replace("/", "_")
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(here.store.get(here.store.ref(name)))
            here.store.delete(here.store.ref(name))

    return act


def older_copy(here: Scene) -> None:
    """The whole store, as it was two sessions before; this machine trained all three."""
    for name in content(here.store):
        place = NAMES.parse_checkpoint(name)
        late = name.startswith(NAMES.ledger) and int(name[-25:-5]) > 3
        if late or (place and place.epoch > 1) or name.startswith(NAMES.home + "heartbeat"):
            here.store.delete(here.store.ref(name))


def newer_files(here: Scene) -> None:
    for name, data in here.picture.store.items():
        if name not in content(here.store):
            here.store.put(name, data)


def trained_on_another_machine(here: Scene) -> None:
    here.desk("run", "--run", "hurt", "--account", "account_2", "--target-steps", "35", code=0)


STRAY = slot(NAMES, 50)
LATE = NAMES.checkpoint(40, 9) + "state.json"

CASES: dict[str, Case] = {
    "an older checkpoint, put back": Case(
        harmed(FILES[0], "missing"), put_back(FILES[0]), "a checkpoint behind the newest one", "damaged_checkpoint"
    ),
    "an older checkpoint, left": Case(
        harmed(FILES[0], "missing"),
        nothing,
        "a checkpoint behind the newest one",
        "damaged_checkpoint",
        "verify",
        whole=False,
    ),
    "the newest checkpoint": Case(
        harmed(FILES[2]),
        advised("verify", "run"),
        verdict="damaged_checkpoint",
        by="verify",
        fact="20",
        late=False,
    ),
    "the newest checkpoint, found before": Case(
        both(harmed(FILES[2]), trained_on_another_machine),
        nothing,
        verdict="known_damage",
        by="verify",
    ),
    "every checkpoint, one put back": Case(
        both(*(harmed(file) for file in FILES)),
        put_back(FILES[1]),
        "every retained checkpoint",
        "damaged_checkpoint",
        "verify",
        FILES[1],
        65,
        whole=False,
    ),
    "every checkpoint, a machine with a copy": Case(
        both(*(harmed(file) for file in FILES)),
        both(lambda here: here.with_disk(), command("fork", "--to", "second", "--from-step", "30")),
        "every retained checkpoint",
        "damaged_checkpoint",
        "verify",
        "fork --run hurt",
        65,
        run="second",
    ),
    "the checkpoint of a fork": Case(
        harmed(FILES[1]),
        command("fork", "--to", "second", "--from-step", "10"),
        "the checkpoint that `export`, `evaluate` or `fork` is to read",
        run="second",
    ),
    "a checkpoint of a newer version": Case(
        another_programs_file,
        command("fork", "--to", "second", "--from-step", "20"),
        "a tensor file with every hash right that this program cannot use",
        stops=65,
        run="second",
    ),
    "an entry below": Case(
        harmed(slot(NAMES, 5)),
        put_back(slot(NAMES, 5)),
        "an entry of the ledger below intact ones",
        "rotted_entry",
        "verify",
    ),
    "an entry below, left": Case(harmed(slot(NAMES, 5)), nothing, verdict="rotted_entry", whole=False),
    "the newest commit, put back": Case(
        both(newest_is_the_commit, harmed(slot(NAMES, 8))),
        put_back(slot(NAMES, 8)),
        "the newest entry: a commit",
        "invalid_entry",
        "verify",
    ),
    "the newest commit, left": Case(
        both(newest_is_the_commit, harmed(slot(NAMES, 8))), nothing, "the newest entry: a commit", "passed_over"
    ),
    "the newest release": Case(
        harmed(slot(NAMES, 9)),
        lambda here: here.train(40, "--wait", "5", code=0),
        "the newest entry: a release",
        verdict="damaged_slot",
        by="doctor",
        fact=" verify",
    ),
    "the newest release, put back": Case(harmed(slot(NAMES, 9)), put_back(slot(NAMES, 9)), verdict="invalid_entry"),
    "the newest lease, put back": Case(
        both(newest_is_the_lease, harmed(slot(NAMES, 7))),
        put_back(slot(NAMES, 7)),
        "the newest entry: a lease",
        "beyond",
        "doctor",
        "repair --run hurt",
        65,
        durable=20,
    ),
    "the newest lease, lost": Case(
        both(newest_is_the_lease, harmed(slot(NAMES, 7))),
        command("repair", "--choose", "store"),
        "the newest entry: a lease",
        "beyond",
        stops=65,
        durable=20,
    ),
    "a missing entry, put back": Case(
        harmed(slot(NAMES, 4), "missing"),
        put_back(slot(NAMES, 4)),
        "an entry missing below others",
        "hole",
        "doctor",
        f"{4:020d}.json",
        65,
    ),
    "a missing entry, lost": Case(
        harmed(slot(NAMES, 4), "missing"),
        advised("verify", "fork"),
        "an entry missing below others",
        "hole",
        stops=65,
        run="hurt_2",
    ),
    "the oldest entries, put back": Case(
        both(harmed(slot(NAMES, 0), "missing"), harmed(slot(NAMES, 1), "missing")),
        put_back(slot(NAMES, 0), slot(NAMES, 1)),
        verdict="oldest_lost",
        by="verify",
        stops=65,
    ),
    "a stray slot": Case(
        lambda here: here.store.put(STRAY, b"hello"),
        moved_out(STRAY),
        "a file in the ledger's folder",
        "stray",
        "doctor",
        STRAY,
        65,
    ),
    "a stray checkpoint file": Case(
        lambda here: here.store.put(LATE, b"{}"),
        command("repair", "--choose", "store"),
        "a checkpoint file or a heartbeat of an epoch",
        "beyond",
        "verify",
        "repair --run hurt",
        65,
    ),
    "a stray heartbeat": Case(
        lambda here: here.store.put(NAMES.heartbeat(9), b"{}"),
        command("repair", "--choose", "store"),
        "a checkpoint file or a heartbeat of an epoch",
        "beyond",
        "doctor",
        "repair --run hurt",
        65,
    ),
    "two forged entries": Case(forged_pair, command("repair"), "several forged entries", "invalid_entry"),
    "a hint of a lost slot, put back": Case(
        both(lambda here: here.store.put(HINT, hint(9)), harmed(slot(NAMES, 9), "missing")),
        put_back(slot(NAMES, 9)),
        "a whole hint that names a slot beyond the newest",
        "beyond",
        stops=65,
    ),
    "a hint of a lost slot": Case(
        hint_of_a_lost_slot,
        command("repair", "--choose", "store"),
        "a whole hint that names a slot beyond the newest",
        "beyond",
        "doctor",
        "repair --run hurt",
        65,
    ),
    "an entry of the registry, missing": Case(
        harmed(REGISTRY.format(2), "missing"),
        put_back(REGISTRY.format(2)),
        "an entry of the registry missing below others",
        "registry_hole",
        "verify",
        REGISTRY.format(2),
        65,
    ),
    "the identity, put back": Case(
        harmed(IDENTITY, "half"),
        put_back(IDENTITY),
        "the store's identity",
        by="status",
        fact=IDENTITY,
        stops=65,
    ),
    "the identity, from the address": Case(
        harmed(IDENTITY, "half"),
        from_the_address,
        "the store's identity",
        by="status",
        fact=IDENTITY,
        stops=65,
    ),
    "an account's object": Case(
        lambda here: here.harm(account_object(here), HARMS["middle"]),
        lambda here: here.desk("register", "account_1", "John's Colab", code=0),
        "an account's object",
        stops=65,
    ),
    "the note of a fork": Case(
        lambda here: here.store.put(NAMES.checkpoints.replace("/hurt/", "/second/") + "fork", b"x"),
        both(
            lambda here: here.command("fork", "--to", "second", code=78),
            command("fork", "--to", "third"),
        ),
        "the note of a fork that broke off",
        run="third",
    ),
    "a store rolled back, put back": Case(
        older_copy, newer_files, "the whole store, replaced by an older copy", stops=65, disk=True
    ),
    "a store rolled back": Case(
        older_copy,
        command("repair", "--choose", "store"),
        "the whole store, replaced by an older copy",
        by="doctor",
        fact="repair --run hurt",
        stops=65,
        disk=True,
    ),
}

ELSEWHERE = {
    "nothing in the store": "test_bad_reads::test_i6_a_good_checkpoint_that_arrives_wrong_twice_is_not_left",
    "a file that the server sends": "test_bad_reads::test_a_file_that_its_server_hands_out_against_its_own_hash_stops",
    "an intact entry of an unknown kind": "upgrading is no command of this version",
    "a history object": "test_store_objects::test_a_damaged_history_hides_only_the_oldest_sessions",
    "a link in place of an object": "test_a_link_is_replaced_by_the_real_file, below",
    "an entry that passed over slots which": "test_overlooked::test_after_the_choice_the_run_goes_on_from_the_commits",
    "two histories in one ledger": "test_histories::test_after_the_choice_everybody_agrees_and_both_histories",
    "a packed CSV": "it is no file of a run",
}
"""Rows whose advice is followed by another test, or cannot be followed here."""
NOTHING = ("nothing", "find out which program writes there", "follow the message")


def hint(seq: int) -> bytes:
    return json.dumps({"seq": seq, "ref": slot(NAMES, seq), "digest": "0" * 64}).encode()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """Sessions whose leases last a second, so that a dead one is taken over at once."""
    return paint(tmp_path_factory.mktemp("short"), **SHORT)


@pytest.fixture
def scene(short: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    here = Scene.of(short, tmp_path / "desk", "local")
    here.desk.environ |= SHORT
    here.patch = monkeypatch  # type: ignore[attr-defined]
    return here


def durable(here: Scene, run: str = "hurt") -> int:
    return int(here.desk.status(run)["step"])


def trained(here: Scene, run: str, target: int, code: int | None = 0) -> None:
    words = ("run", "--run", run, "--account", "account_1", "--new-target", str(target), "--wait", "1")
    here.desk(*words, "checkpoint.keep_last=8", code=code)


@contextmanager
def reached() -> Iterator[set[str]]:
    """The names of the verdicts that commands reach."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name, real in inspect.getmembers(verdict, inspect.isfunction):

            def note(*args: Any, name: str = name, real: Callable[..., Any] = real, **more: Any) -> Any:
                names.add(name)
                return real(*args, **more)

            patch.setattr(verdict, name, note)
        yield names


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("name", CASES)
def test_the_advice_leaves_the_run_better(scene: Scene, name: str, late: bool) -> None:
    case = CASES[name]
    steps = [case.durable]
    if case.disk:
        scene.with_disk()
    case.harm(scene)
    before = content(scene.store)
    if case.by:
        with reached() as verdicts:
            said = scene.command(case.by, code=None)
        assert case.fact in said.out + said.err
        assert not case.verdict or case.verdict in verdicts
    if case.stops:
        trained(scene, "hurt", 40, case.stops)
        now = {name: data for name, data in content(scene.store).items() if not name.startswith("selftest/")}
        assert not [file for file, data in now.items() if before.get(file, data) != data], "nothing is changed"
    elif late and case.late:
        trained(scene, "hurt", 35)
        steps.append(35)
    case.follow(scene)
    trained(scene, case.run, 60)
    state = scene.state(case.run)
    assert state.head is not None and state.head.state_hash == hash_of(60, state_at(60))
    if case.run == "hurt" and state.links[-1].from_step < max(steps):
        assert BACK & {one.cause for one in state.incidents}, f"step {max(steps)} is gone without a word"
    found = scene.desk("verify", "--run", case.run, "--json", code=None).json
    assert found["ok"] == case.whole, found["incidents"]
    after = content(scene.store)
    lost = [file for file in before if file.startswith("checkpoints/") and file not in after and file != STRAY]
    assert not lost, "nothing of a checkpoint is deleted"


@pytest.mark.parametrize("seq", [8, 9])
def test_an_entry_put_back_late_changes_nothing(scene: Scene, seq: int) -> None:
    """The advice of an earlier version: a session passed over the entry, then a person restores it."""
    if seq == 8:
        newest_is_the_commit(scene)
    scene.harm(slot(NAMES, seq), HARMS["half"])
    trained(scene, "hurt", 40)
    kept = {k.step for k in scene.state().kept}
    assert kept == ({30} if seq == 8 else set())
    put_back(slot(NAMES, seq))(scene)
    state, step = scene.state(), durable(scene)
    assert (state.step, step) == (40, 40)
    found = scene.verify(code=0)
    (told,) = [one for one in found["incidents"] if one["cause"] == "history"]
    assert str(seq) in told["text"] and [one["slots"] for one in found["histories"]][1] == [seq]
    trained(scene, "hurt", 60)
    assert scene.state().head.state_hash == hash_of(60, state_at(60))  # type: ignore[union-attr]
    if seq == 8:
        scene.command("fork", "--to", "second", "--from-step", "30", "--from-epoch", "3", code=0)


def test_a_step_that_was_passed_over_counts_until_it_is_trained_again(scene: Scene) -> None:
    """Between the passing and the training verify names the step, and repair takes the run back to it."""
    newest_is_the_commit(scene)
    scene.harm(slot(NAMES, 8), HARMS["half"])
    trained(scene, "hurt", 25)
    put_back(slot(NAMES, 8))(scene)
    (told,) = [one for one in scene.verify(code=65)["incidents"] if one["cause"] == "history"]
    assert "step 30" in told["meaning"]
    fork = told_command(told["advice"], "fork")
    assert scene.desk(*fork, "--json").json["step"] == 30
    scene.desk(*told_command(told["advice"], "repair"), "--choose", "B")
    assert durable(scene) == 30 and scene.verify(code=0)["ok"]
    trained(scene, "hurt", 60)
    assert scene.state().head.state_hash == hash_of(60, state_at(60))  # type: ignore[union-attr]


def test_the_sha256_that_is_named_is_that_of_the_file(scene: Scene) -> None:
    """The values that a person compares before putting a file back."""
    for number, how in ((4, "missing"), (5, "middle")):
        here = slot(NAMES, number)
        scene.harm(here, HARMS[how])
        told = " ".join(str(one["advice"]) for one in scene.verify(code=65)["incidents"])
        assert digest(scene.picture.store[here])[:16] in told
        put_back(here)(scene)
    assert scene.verify(code=0)["ok"]


def test_a_link_is_replaced_by_the_real_file(scene: Scene) -> None:
    path = scene.desk.folder / "shared" / FILES[2]
    data = path.read_bytes()
    path.unlink()
    path.symlink_to(scene.desk.folder / "elsewhere")
    assert str(path) in scene.train(40, code=69).err
    path.unlink()
    path.write_bytes(data)
    trained(scene, "hurt", 60)
    assert scene.state().head.state_hash == hash_of(60, state_at(60))  # type: ignore[union-attr]


def test_every_piece_of_advice_has_a_case() -> None:
    known = [case.row for case in CASES.values() if case.row] + list(ELSEWHERE)
    for row in rows():
        if not row[3].startswith(NOTHING):
            assert [one for one in known if row[0].startswith(one)], f"nobody follows: {row[0]}: {row[3]}"
    assert not [one for one in known if not [row for row in rows() if row[0].startswith(one)]], "a row that is gone"


def test_every_verdict_has_a_case() -> None:
    said = {
        name for name, made in inspect.getmembers(verdict, inspect.isfunction) if made.__module__ == verdict.__name__
    }
    helpers = {"put_back", "_newer_from_backup"}
    elsewhere = {"history", "healed", "rolled_back"}
    assert said - helpers - elsewhere == {case.verdict for case in CASES.values() if case.verdict}
