"""The end of a seed: the weather clears, a newcomer finishes the run without a person."""

from __future__ import annotations

from relay.app.checks.verify import verify
from relay.core.ledger.atrest import halted_elsewhere, surroundings_of
from relay.core.ledger.canonical import dumps
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from tests.core.fake_runtime import Process
from tests.core.lab import PROJECT
from tests.core.toy import ToyWorkload, state_at
from tests.simulation.fleet import Fleet, Order
from tests.simulation.oracle import Run


def reckon(fleet: Fleet) -> None:
    """Raises Violation if a run cannot be finished, or if anything acknowledged is gone."""
    fleet.sky.clear()
    fleet.world.now += 24 * 3600.0
    for number, name in enumerate(fleet.runs):
        _finish(fleet, name, number)
    _registry(fleet)


def _finish(fleet: Fleet, name: str, number: int) -> None:
    run = fleet.oracle.runs[PROJECT, name]
    if run.state.get("deleted") is not None:
        _stays_deleted(fleet, run, number)
        return
    if run.state.get("archived") is not None:
        _calmly(fleet, name, number + 2000, "run", "77")
        _calmly(fleet, name, number + 3000, "unarchive", "unarchive-0")
    elsewhere, lost = _halted_elsewhere(run), _nothing_sound(fleet, run)
    halted = run.state["halted"] and not elsewhere
    order = Order(1000 + number, fleet.world.now, 0, "fresh", fleet.runs.index(name), "run", 3600.0)
    before = fleet.summary.exits.copy()
    fleet.start(order, calm=True)
    fleet.world.run(to_the_end=True)
    code = next(iter(fleet.summary.exits - before), "none")
    if elsewhere and code in ("1", "65"):  # it resumed the run, and what fails everywhere failed again
        return
    expected = "65" if halted or (lost and run.state["step"] < fleet.pace.target) else "0"
    fleet.oracle.require(code == expected, f"liveness: a newcomer to {name} ended with {code}, not {expected}")
    if expected != "0":
        return
    step = run.state["step"]
    fleet.oracle.require(step >= fleet.pace.target, f"liveness: {name} is at step {step}")
    if not run.strange:
        head = run.state["head"]
        truth = run.values[head["step"], head["epoch"]] == state_at(step)
        fleet.oracle.require(truth, f"I7: the end of {name} is not that of an unbroken run")
    found = verify(RunLedger(fleet.sky.store, PROJECT, name, _reader(fleet)), fleet.sky.store)
    excused = bool(run.damaged) or fleet.oracle.passed_over(run)
    fleet.oracle.require(found.ok or excused, f"verify finds damage where none is: {found}")
    for key in run.retained:
        gone = [n for n in run.named[key] if fleet.sky.raw(n) is None and n not in run.damaged]
        fleet.oracle.require(not gone, f"I8: {gone} of the retained step {key} are gone")


def _halted_elsewhere(run: Run) -> bool:
    """Whether a newcomer resumes the run, because only machines of other surroundings failed (P10)."""
    state = RunState.model_validate_json(dumps(run.state))
    return halted_elsewhere(state, surroundings_of(ToyWorkload().fingerprint()))


def _stays_deleted(fleet: Fleet, run: Run, number: int) -> None:
    """No session begins it again, and the next clean-up removes the files that zombies left of it."""
    _calmly(fleet, run.name, number + 2000, "run", "77")
    _calmly(fleet, run.name, number + 3000, "push", "77")
    _calmly(fleet, run.name, number + 4000, "delete", "delete-0")
    left = [stat.name for stat in fleet.sky.store.list(run.prefix) if "/step_" in stat.name]
    fleet.oracle.require(not left, f"0013: {left} of a deleted run are left")


def _calmly(fleet: Fleet, name: str, number: int, verb: str, expected: str) -> None:
    before = fleet.summary.exits.copy()
    fleet.start(Order(number, fleet.world.now, 0, "fresh", fleet.runs.index(name), verb, 3600.0), calm=True)
    fleet.world.run(to_the_end=True)
    code = next(iter(fleet.summary.exits - before), "none")
    fleet.oracle.require(code == expected, f"{verb} of {name}, which rests, ended with {code}, not {expected}")


def _nothing_sound(fleet: Fleet, run: Run) -> bool:
    good = [(c["step"], c["epoch"]) for c in run.state["retained"] if not c["damaged"]]
    return bool(good) and not any(fleet.oracle.intact(run, key) for key in good)


def _registry(fleet: Fleet) -> None:
    reader = _reader(fleet)
    state = Registry(fleet.sky.store, reader, session=reader.token()).read()
    lost = fleet.registered - set(state.accounts if state else ()) - fleet.oracle.unregistered
    fleet.oracle.require(not lost, f"registered accounts are gone: {lost}")


def _reader(fleet: Fleet) -> Process:
    return fleet.world.process()
