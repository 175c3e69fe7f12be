"""The product, led along ways of the model, acts like the model, and refuses the actions that the model forbids."""

from __future__ import annotations

import re
from random import Random

import pytest

from relay.core.errors import Fenced
from relay.core.ledger.chain import Chain, Intent
from relay.core.ledger.changes import Refused
from relay.core.ledger.reader import Point
from relay.core.ledger.state import RunState
from tests.facts import raising
from tests.model import product
from tests.model.product import Change
from tests.model.protocol import Protocol
from tests.model.replay import Replay, deletable_by, said_by
from tests.model.step import Bounds, Step, line
from tests.model.world import Faults, World

WALKS, LONGEST = 24, 60
BOUNDS = Bounds(sessions=3, epochs=7, step=8, faults=Faults(answers=3, files=1))
"""Damage stays out: `rewind` and lost entries have their own tests against real bytes."""
KINDS = {
    "starts and reads the ledger", "dies", "fenced and ends", "chooses", "deletes", "stops deleting",
    "appends lease", "appends commit", "appends retire", "appends release", "gets no answer", "lands late",
    "taken and reads on", "has landed", "sends the same", "gives up",
}  # fmt: skip


UNREAD = Bounds(sessions=3, slots=40, step=8, faults=Faults(answers=1, blind=4))
UNREAD_KINDS = {
    "starts and cannot read", "taken and cannot read", "cannot read that its", "passes over the newest", "later epoch",
}  # fmt: skip


def walk(seed: int, bounds: Bounds) -> list[tuple[World, Step]]:
    """A random way through the model; deaths are rarer than they could be, so that work gets done."""
    random, model = Random(seed), Protocol(bounds)
    world = model.first()
    way: list[tuple[World, Step]] = []
    while len(way) < LONGEST:
        steps = [step for step in model.steps(world) if step.text != "dies" or random.random() < 0.1]
        if not steps:
            break
        step = random.choice(steps)
        way.append((world, step))
        world = step.world
    return way


@pytest.mark.parametrize("bounds", [BOUNDS, UNREAD], ids=["read", "unread"])
@pytest.mark.parametrize("seed", range(WALKS))
def test_the_product_goes_the_way_of_the_model(seed: int, bounds: Bounds) -> None:
    way = walk(seed, bounds)
    replay, done = Replay(way[0][0]), []
    for before, step in way:
        done.append(line(step))
        slots = replay.slots()
        replay.take(before, step)
        told = "\n".join(done)
        assert replay.slots() == slots + (step.landed is not None), told
        if step.landed:
            assert replay.view() == step.world.tail, told
            check_fences(replay, step.world)
        if step.landed or step.world.files != before.files:
            going = deletable_by(replay.state(), replay.listed())
            assert going == product.deleting(step.world.tail, step.world.files), told


def check_fences(replay: Replay, world: World) -> None:
    """Only the model's holder may write, by the product's state."""
    for who, session in enumerate(world.sessions):
        if session.epoch and world.tail.holder != who and session.over is None:
            replay.expect_fenced(who)


@pytest.mark.parametrize(("bounds", "kinds"), [(BOUNDS, KINDS), (UNREAD, UNREAD_KINDS)], ids=["read", "unread"])
def test_the_walks_take_every_kind_of_step(bounds: Bounds, kinds: set[str]) -> None:
    texts = {step.text for seed in range(WALKS) for _, step in walk(seed, bounds)}
    assert not [kind for kind in kinds if not any(re.search(kind, text) for text in texts)]


FORBIDDEN = {
    "commit of an old epoch": Change("commit", 2, ((9, 1),)),
    "commit of a later epoch": Change("commit", 2, ((9, 3),)),
    "commit of a step that is not beyond": Change("commit", 2, ((3, 2),)),
    "retire of the head": Change("retire", 2, ((3, 2),)),
    "retire of the one before the head": Change("retire", 2, ((2, 1),)),
    "retire of what is not retained": Change("retire", 2, ((7, 1),)),
    "rewind after a commit": Change("rewind", 2, ((3, 2), (2, 1))),
    "second genesis": Change("genesis", 0),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_the_model_forbids_the_product_refuses(name: str) -> None:
    """By the holder of epoch 2, after its first commit; the log stays as it is."""
    replay = committed()
    change, slots = FORBIDDEN[name], replay.slots()
    with pytest.raises(Refused):
        replay.append(0, change)
    assert replay.slots() == slots


@pytest.mark.parametrize("epoch", [0, 1, 2, 4])
def test_an_epoch_grows_by_one_or_not_at_all(epoch: int) -> None:
    replay = committed()
    client, slots = replay.people[0].client, replay.slots()
    with pytest.raises((Refused, Fenced)):
        client.ledger.append(
            "lease",
            lambda state: said_by(state, Change("lease", epoch)),
            session="f" * 32,
            account="other",
            epoch=epoch,
        )
    assert replay.slots() == slots


def test_a_product_that_sends_again_unchecked_goes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsearched(chain: Chain[RunState], point: Point[RunState], intent: Intent[RunState]) -> Point[RunState]:
        return chain._newest()

    lost = ("starts", "appends lease", "trains", "stores", "appends commit(epoch 2) step_3.e2 and", "reads that")
    assert led(*lost).view().step == 3
    monkeypatch.setattr(Chain, "_catch_up", unsearched)
    with raising(Refused, "step 3"):
        led(*lost)


def committed() -> Replay:
    """Epoch 2 is held and has committed step 3."""
    return led("starts", "appends lease", "trains", "stores", "appends commit")


def led(*beginnings: str) -> Replay:
    """One session on the way whose steps' texts begin like this."""
    model = Protocol(Bounds(sessions=1, epochs=2, step=3, faults=Faults(answers=1)))
    world = model.first()
    replay = Replay(world)
    for wanted in beginnings:
        step = next(step for step in model.steps(world) if step.text.startswith(wanted))
        replay.take(world, step)
        world = step.world
    return replay
