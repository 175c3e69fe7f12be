"""A run with two histories after a slot healed: verify shows both, a person chooses one, and neither is lost."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import Exit
from relay.core.ledger.canonical import digest
from relay.core.ledger.entry import PASSING
from relay.core.ledger.frozen import SILENT
from relay.core.runs import repair
from storage.base import open_store
from tests.app.cli import Desk
from tests.app.repairs import another_machine, told_command
from tests.core.toy import hash_of, state_at
from tests.damage.healed import NAMES, Healed, heal, name, raw

CASES: dict[str, dict[str, Any]] = {
    "a release": {},
    "a commit": {"newest": "commit"},
    "before any session went on": {"third": False},
    "after clean-up": {"cleaned": True, "seconds": (50, 60, 80, 100)},
}
LOADS = {
    "a release": (70, 40),
    "a commit": (70, 20),
    "before any session went on": (40, 60),
    "after clean-up": (None, 100),
}
"""The step that each of the two histories goes on from, the run's own first."""


@pytest.fixture(scope="module")
def hit(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a store that was hit, made once for each case."""
    made: dict[str, Path] = {}

    def of(case: str) -> Path:
        if case not in made:
            made[case] = tmp_path_factory.mktemp("hit")
            heal(made[case], **CASES[case])
        return made[case]

    return of


@pytest.fixture
def here(hit: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Healed]:
    """A copy of such a store that a test may change."""

    def of(case: str) -> Healed:
        desk = Desk(Path(shutil.copytree(hit(case) / "desk", tmp_path / "desk")))
        store = open_store((desk.folder / "relay_store").as_uri())
        slots = sorted(int(stat.name[-25:-5]) for stat in store.list(NAMES.ledger))
        return Healed(desk, store, *split(store, slots))

    return of


def split(store: Any, slots: list[int]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """(the slot that healed, those of the session that passed over it, those after)."""
    accounts = [json.loads(raw(store, seq))["body"]["account"] for seq in slots]
    second = tuple(seq for seq, account in zip(slots, accounts, strict=True) if account == "account_2")
    return second[0] - 1, second, tuple(seq for seq in slots if seq > second[-1])


def content(here: Healed) -> dict[str, bytes]:
    """Every object but the store's own note that it passed its self-test."""
    return {stat.name: here.store.get(stat.ref) for stat in here.store.list("") if "selftest/" not in stat.name}


def kept_as_it_was(here: Healed, before: dict[str, bytes]) -> bool:
    after = content(here)
    fixed = ("checkpoints/", NAMES.ledger)
    return all(after.get(file) == data for file, data in before.items() if file.startswith(fixed))


@pytest.mark.parametrize("case", CASES)
def test_verify_tells_of_both_histories(here: Callable[[str], Healed], case: str) -> None:
    run = here(case)
    found = run.desk("verify", "--run", "r", "--json", code=65).json
    own, other = found["histories"]
    assert (own["name"], other["name"]) == ("A", "B")
    assert tuple(other["slots"]) == run.second and tuple(own["slots"]) == (run.slot, *run.third)
    assert other["accounts"] == ["account_2"] and own["epochs"][:2] == list(other["epochs"][:2])[: len(own["epochs"])]
    (told,) = [one for one in found["incidents"] if one["cause"] == "history"]
    assert told["slot"] == run.second[0] and f"slot {run.slot}" in told["text"]
    assert all(str(step) in told["meaning"] for step in CASES[case].get("seconds", (50, 60)))
    assert ("step_60.e4/manifest.json" in told["meaning"]) == (case in ("a release", "a commit")), "which both name"
    assert bool(set(own["epochs"]) & set(other["epochs"])) == bool(run.third), "an epoch is used twice"
    assert told_command(told["advice"], "repair") == ["repair", "--run", "r"]
    assert not [one for one in found["incidents"] if one["slot"] in run.second[1:]], "listed with the others"


@pytest.mark.parametrize("case", CASES)
def test_repair_shows_both_and_changes_nothing(here: Callable[[str], Healed], case: str) -> None:
    run = here(case)
    before = content(run)
    found = run.desk("repair", "--run", "r", "--json", code=65).json
    assert found["open"] and found["chosen"] is None
    assert found["choices"] == [name for name, step in zip("AB", LOADS[case], strict=True) if step]
    assert tuple(one["goes_on_from"] for one in found["histories"]) == LOADS[case]
    choices = [words[-1] for words in run.desk("repair", "--run", "r", code=65).advised("repair")]
    assert choices == found["choices"]
    assert content(run) == before


@pytest.mark.parametrize("choice", ["A", "B"])
@pytest.mark.parametrize("case", CASES)
def test_after_the_choice_everybody_agrees_and_both_histories_are_there(
    here: Callable[[str], Healed], case: str, choice: str
) -> None:
    run = here(case)
    before = content(run)
    goes_on = dict(zip("AB", LOADS[case], strict=True))[choice]
    if goes_on is None:
        run.desk("repair", "--run", "r", "--choose", choice, code=65)
        assert content(run) == before
        return
    done = run.desk("repair", "--run", "r", "--choose", choice, "--json").json
    assert done["chosen"] == choice and not done["open"]
    entry = run.entry(max(run.second[-1], *run.third, run.slot) + 1)
    assert (entry.kind, entry.format) == ("choose", PASSING), "an older version stops with 78"
    assert kept_as_it_was(run, before)
    other = another_machine(run.desk)
    for desk in (run.desk, other):
        status = desk.status()
        assert (status["step"], status["holder"]) == (run.state().step, None)
        assert not desk("repair", "--run", "r", "--json").json["open"]
    damaged = [
        row for row in run.desk("verify", "--run", "r", "--json", code=None).json["checkpoints"] if not row["ok"]
    ]
    if not damaged:
        assert run.desk("verify", "--run", "r", "--json", code=0).json["ok"]
    run.desk("gc", "--run", "r", "--full")
    assert kept_as_it_was(run, before), "clean-up deletes nothing of either history"
    other("run", "--run", "r", "--account", "account_4", "--target-steps", "120", "checkpoint.keep_last=8")
    state = run.state()
    assert state.head is not None and state.head.state_hash == hash_of(120, state_at(120))
    assert state.links[-1].from_step == goes_on
    epochs = [row["epochs"] for row in done["histories"]]
    assert state.epoch > max(max(one, default=0) for one in epochs), "no epoch is used a third time"
    assert run.desk("verify", "--run", "r", "--json", code=0).json["ok"]
    assert kept_as_it_was(run, before)


@pytest.mark.parametrize(("case", "choice"), [("a release", "B"), ("before any session went on", "A")])
def test_what_was_not_chosen_can_be_forked(here: Callable[[str], Healed], case: str, choice: str) -> None:
    run = here(case)
    run.desk("repair", "--run", "r", "--choose", choice)
    kept = run.state().kept
    assert {k.step for k in kept} == {"B": {50, 60, 70}, "A": {50, 60}}[choice]
    step = max(k.step for k in kept)
    run.desk("gc", "--run", "r", "--full")
    told = run.desk("fork", "--run", "r", "--to", "branch", "--from-step", str(step), "--json").json
    assert told["step"] == step
    first = min(k.step for k in kept)
    assert run.desk("fork", "--run", "r", "--to", "older", "--from-step", str(first), "--json").json["step"] == first
    run.desk.train(step + 5, run="branch")
    assert run.desk.status("branch")["head"]["state_hash"] == hash_of(step + 5, state_at(step + 5))
    refused = run.desk("fork", "--run", "r", "--to", "b", "--from-step", "33", code=65).err
    assert ", ".join(str(k.step) for k in kept) in refused


def test_a_damaged_kept_checkpoint_is_not_forked(here: Callable[[str], Healed]) -> None:
    run = here("before any session went on")
    run.desk("repair", "--run", "r", "--choose", "A")
    (kept,) = [k for k in run.state().kept if k.step == 60]
    run.store.put(kept.manifest, b"{}")
    refused = run.desk("fork", "--run", "r", "--to", "b", "--from-step", "60", code=65).err
    assert kept.manifest in refused
    run.desk("fork", "--run", "r", "--to", "b", "--from-step", "50", "--from-epoch", "3")


def test_a_choice_can_be_made_again(here: Callable[[str], Healed]) -> None:
    run = here("before any session went on")
    run.desk("repair", "--run", "r", "--choose", "A")
    run.desk("run", "--run", "r", "--account", "account_1", "--target-steps", "45")
    assert run.state().step == 45
    run.desk("repair", "--run", "r", "--choose", "B")
    assert run.state().step == 60 and 45 in {k.step for k in run.state().kept}
    assert run.desk("verify", "--run", "r", "--json").json["ok"]
    run.desk("run", "--run", "r", "--account", "account_1", "--target-steps", "70")
    assert run.desk.status()["head"]["state_hash"] == hash_of(70, state_at(70))


def test_a_living_session_refuses_the_choice(here: Callable[[str], Healed]) -> None:
    """The session of the second history is still under way: its release never came, and its heartbeat is young."""
    run = here("before any session went on")
    last = run.second[-1]
    assert run.entry(last).kind == "release"
    run.store.delete(run.store.ref(name(last)))
    run.store.put(NAMES.heartbeat(4), b"{}")
    before = content(run)
    refused = run.desk("repair", "--run", "r", "--choose", "A", code=int(Exit.LEASE_HELD))
    assert "account_2" in refused.err
    assert content(run) == before


def test_a_session_that_was_gone_is_taken_over_by_the_choice(tmp_path: Path) -> None:
    run = heal(tmp_path, third=False, ttl_s=1.0)
    run.store.delete(run.store.ref(name(run.second[-1])))
    time.sleep(1.5)  # on a machine of any speed: no sign of life for the lease's time
    run.desk("repair", "--run", "r", "--choose", "B")
    state = run.state()
    assert state.holder is None and state.links[-1].end == SILENT and state.deaths == 1


def test_an_unknown_choice_is_refused(here: Callable[[str], Healed]) -> None:
    run = here("a release")
    for choice in ("C", "store"):
        assert "A, B" in run.desk("repair", "--run", "r", "--choose", choice, code=2).err


def test_who_writes_first_wins_over_the_choice(here: Callable[[str], Healed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session appends between the listing and the choice: a choice among outdated histories is refused."""
    run = here("before any session went on")
    look = repair.look

    def slow(*args: Any, **more: Any) -> Any:
        found = look(*args, **more)
        monkeypatch.undo()
        another_machine(run.desk)("repair", "--run", "r", "--choose", "B")
        return found

    monkeypatch.setattr("relay.app.commands.runs.repairing.look", slow)
    tail = run.second[-1]
    run.desk("repair", "--run", "r", "--choose", "A", code=65)
    assert run.entry(tail + 1).kind == "choose" and run.state().step == 60
    assert name(tail + 2) not in content(run)


def test_slots_that_do_not_read_the_same_twice_are_not_chosen_from(
    here: Callable[[str], Healed], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = here("before any session went on")
    look = repair.look

    def flickering(*args: Any, **more: Any) -> Any:
        found = look(*args, **more)
        run.store.put(name(run.slot), raw(run.store, run.slot)[:500])
        return found

    monkeypatch.setattr("relay.app.commands.runs.repairing.look", flickering)
    refused = run.desk("repair", "--run", "r", "--choose", "B", code=69).err
    assert name(run.slot) in refused
    assert run.entry(run.second[-1]).kind != "choose" and name(run.second[-1] + 1) not in content(run)


def test_a_run_with_one_history_has_nothing_to_repair(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.train(20)
    before = {path: path.read_bytes() for path in desk.folder.rglob("*.json")}
    found = desk("repair", "--run", "r", "--json", code=0).json
    assert (found["open"], found["choices"], found["histories"]) == (False, [], [])
    assert {path: path.read_bytes() for path in desk.folder.rglob("*.json")} == before
    desk("repair", "--run", "r", "--choose", "B", code=2)
    assert {path: path.read_bytes() for path in desk.folder.rglob("*.json")} == before


def test_the_digest_of_a_history_ties_the_decision_to_it(here: Callable[[str], Healed]) -> None:
    """A history whose newest entry is another one than that decided about is open again."""
    run = here("before any session went on")
    run.desk("repair", "--run", "r", "--choose", "A")
    entry = run.entry(run.second[-1] + 1)
    assert [(one["seq"], one["digest"]) for one in entry.change["others"]] == [
        (run.second[-1], digest(raw(run.store, run.second[-1])))
    ]
    assert "40" in entry.change["why"], "the step that the run goes on from"


def test_verify_names_what_a_passed_over_entry_of_the_registry_had_entered(tmp_path: Path) -> None:
    """The newest entry of the registry was unreadable to the next command, and can be read again."""
    desk = Desk(tmp_path, {"RELAY_LEASE_TTL_S": "1"})
    desk.train(10)
    desk("register", "lost_one", "Ana's workstation", "--yes")
    newest = max((desk.folder / "relay_store" / "registry" / "ledger").glob("*.json"))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:200])
    desk("register", "other_one", "Ben's workstation", "--yes")
    newest.write_bytes(whole)
    (told,) = [one for one in desk("verify", "--run", "r", "--json").json["incidents"] if one["cause"] == "registry"]
    assert "account lost_one" in told["text"] and told_command(told["advice"], "accounts") == ["accounts", "list"]
    assert "lost_one" not in desk("accounts", "list").out
    desk("register", "lost_one", "Ana's workstation", "--yes")
    assert "lost_one" in desk("accounts", "list").out
    desk.train(20)


@pytest.mark.parametrize(("typed", "step"), [("b", 60), ("", 40)])
def test_at_a_terminal_it_asks(
    here: Callable[[str], Healed], monkeypatch: pytest.MonkeyPatch, typed: str, step: int
) -> None:
    run = here("before any session went on")
    monkeypatch.setattr("relay.app.commands.runs.repairing._at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda text, **_: typed if "A, B" in text else "?")
    before = content(run)
    done = run.desk("repair", "--run", "r", code=0 if typed else 65)
    assert [words[-1] for words in done.advised("repair")] == ["A", "B"], "both are shown first"
    assert run.ledger().validate().state.step == step and (content(run) == before) == (not typed)
