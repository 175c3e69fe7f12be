"""The end of a seed: the weather clears, a newcomer finishes the run without a person."""

from __future__ import annotations

from relay.ledger import RunLedger
from relay.registry import Registry
from relay.verify import verify
from tests.relay.fake_runtime import Process
from tests.relay.sessions import PROJECT
from tests.relay.toy import state_at
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
    halted, lost = run.state["halted"], _nothing_sound(fleet, run)
    order = Order(1000 + number, fleet.world.now, 0, "fresh", fleet.runs.index(name), "run", 3600.0)
    before = fleet.summary.exits.copy()
    fleet.start(order, calm=True)
    fleet.world.run(to_the_end=True)
    code = next(iter(fleet.summary.exits - before), "none")
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
    fleet.oracle.require(found.ok or bool(run.damaged), f"verify finds damage where none is: {found}")
    for key in run.retained:
        gone = [n for n in run.named[key] if fleet.sky.raw(n) is None and n not in run.damaged]
        fleet.oracle.require(not gone, f"I8: {gone} of the retained step {key} are gone")


def _nothing_sound(fleet: Fleet, run: Run) -> bool:
    good = [(c["step"], c["epoch"]) for c in run.state["retained"] if not c["damaged"]]
    return bool(good) and not any(fleet.oracle.intact(run, key) for key in good)


def _registry(fleet: Fleet) -> None:
    reader = _reader(fleet)
    state = Registry(fleet.sky.store, reader, session=reader.token()).read()
    lost = fleet.registered - set(state.accounts if state else ())
    fleet.oracle.require(not lost, f"registered accounts are gone: {lost}")


def _reader(fleet: Fleet) -> Process:
    return fleet.world.process()
