"""Does on the product, a real ledger in a real store, what a step of the model does; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from relay.core.checkpoint.manifest import encode
from relay.core.checkpoint.retention import decide_files, going
from relay.core.errors import BadData, Fenced
from relay.core.ledger.chain import Intent, Unsettled
from relay.core.ledger.state import RunState
from relay.core.names import MANIFEST
from storage.base import Ref, Stat, Store, Unavailable
from storage.memory import MemoryStore
from storage.slots import slot_name
from storage.wrapper import Wrapper
from tests.core.making import NAMES, Client
from tests.model import product
from tests.model.product import NOBODY, OTHER, Change, File, View
from tests.model.step import Step
from tests.model.world import World


class Patchy(MemoryStore):
    """Loses the answer to one append: after it has landed, or with the entry still under way."""

    def __init__(self) -> None:
        super().__init__()
        self.lose = ""
        """"landed" or "away" while answers are lost."""
        self.away: tuple[str, bytes] | None = None

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        if self.lose == "landed":
            super().put_if_absent(name, data)
        if self.lose:
            self.away = (name, data)
            raise Unavailable("no answer")
        return super().put_if_absent(name, data)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if self.lose and self.away and ref == self.ref(self.away[0]):
            raise Unavailable("no answer")
        return super().read_range(ref, start, length)


class Blurred(Wrapper):
    """Some slots cannot be read as entries, on any connection, and the store knows no better."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.names: set[str] = set()

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._blurred(ref, super().read_range(ref, start, length))

    def get(self, ref: Ref, limit: int | None = None) -> bytes:
        return self._blurred(ref, super().get(ref, limit=limit))

    def stat(self, ref: Ref) -> Stat:
        found = super().stat(ref)
        return replace(found, size=found.size // 2, sha256=None) if str(ref) in self.names else found

    def _blurred(self, ref: Ref, data: bytes) -> bytes:
        return data[: len(data) // 2] if str(ref) in self.names else data


@dataclass
class Person:
    """One living session."""

    client: Client
    eyes: Blurred
    intents: dict[str, Intent[Any]] = field(default_factory=dict)
    """By kind: of entries whose outcome it does not know."""


class Replay:
    """A store and the sessions on it, led by the model."""

    def __init__(self, world: World) -> None:
        self.store, self.people, self.born = Patchy(), dict[int, Person](), 0
        self.away: dict[tuple[int, Change], tuple[str, bytes]] = {}
        """By sender: what is under way to the next slot."""
        founder = Client(self.store, 0)
        founder.begin()
        founder.lease()
        self.move_files(frozenset(), world.files)
        founder.commit(1)
        founder.commit(2)
        founder.release()

    def state(self) -> RunState:
        """What a newcomer reads."""
        return Client(self.store, 999).ledger.read().state

    def view(self) -> View:
        """The same in the model's terms."""
        state = self.state()
        holders = {person.client.session: who for who, person in self.people.items()}
        holder = holders.get(state.holder.session, OTHER) if state.holder else NOBODY
        return product.seen(state)._replace(holder=holder)

    def slots(self) -> int:
        return sum(1 for _ in self.store.list(NAMES.ledger))

    def take(self, before: World, step: Step) -> None:
        """One step."""
        self._do(before, step)
        if step.landed:
            self.away.clear()  # the slot is taken

    def _do(self, before: World, step: Step) -> None:
        who, after = step.who, step.world
        self.move_files(before.files, after.files)
        if who == OTHER and not step.landed:
            return
        if step.landed and step.text.endswith("lands late"):
            self.store.put_if_absent(*self.away[who, step.landed.change])
            return
        old, new = before.sessions[who], after.sessions[who]
        sent = step.landed.change if step.landed else None if old.unsure else new.unsure
        if old.phase == "idle":
            self.born += 1
            eyes = Blurred(self.store)
            self.people[who] = Person(Client(eyes, self.born), eyes)
        if new.over and new.over != old.over:  # from now on
            self.people[who].eyes.names.add(slot_name(NAMES.ledger, self.slots() - 1))
        if old.phase == "idle":
            self.people[who].client.ledger.read()
        elif "later epoch" in step.text:
            self.expect(who, BadData)
        elif sent:
            self.send(who, sent, step, new.unsure)
        elif old.unsure and step.text.startswith("reads that") and not new.over:
            self.append(who, old.unsure)
        elif step.text.startswith("gives up"):
            self.people[who].intents.clear()
        elif "fenced" in step.text:
            self.expect_fenced(who)
        if new.phase == "idle":
            self.people.pop(who, None)
            self.away = {(OTHER if sender == who else sender, what): sent for (sender, what), sent in self.away.items()}

    def send(self, who: int, change: Change, step: Step, unsure: Change | None) -> None:
        """Append; or lose the answer to it."""
        if unsure is None:
            self.append(who, change)
            return
        self.store.lose = "landed" if step.landed else "away"
        try:
            self.append(who, change)
        except Unsettled as unsettled:
            self.people[who].intents[change.kind] = unsettled.intent
            self.away[who, change] = self.store.away or ("", b"")
        else:
            raise AssertionError("an append without an answer cannot be sure of itself")
        finally:
            self.store.lose, self.store.away = "", None

    def append(self, who: int, change: Change) -> None:
        """Land one change by the product's own way, under the intent of an earlier attempt if there was one."""
        person = self.people[who]
        client, epoch = person.client, None if change.kind == "lease" else person.client.epoch
        client.ledger.append(
            change.kind,
            lambda state: said_by(state, change),
            session=client.session,
            account=client.account,
            epoch=epoch,
            intent=person.intents.get(change.kind),
        )
        person.intents.pop(change.kind, None)
        client.epoch = change.epoch

    def expect_fenced(self, who: int) -> None:
        """Whatever it tries, it writes nothing."""
        client, slots = self.people[who].client, self.slots()
        for kind in ("commit", "retire", "release"):
            change = Change(kind, client.epoch, ((99, client.epoch),))
            try:
                client.append(kind, partial(said_by, change=change))
            except Fenced:
                continue
            raise AssertionError(f"a {kind} of a session that lost its lease was not refused")
        assert self.slots() == slots

    def expect(self, who: int, error: type[Exception]) -> None:
        """Its lease is refused so, and it writes nothing."""
        client, slots = self.people[who].client, self.slots()
        with pytest.raises(error):
            client.ledger.append(
                "lease",
                partial(said_by, change=Change("lease", 0)),
                session=client.session,
                account=client.account,
            )
        assert self.slots() == slots

    def listed(self) -> list[Stat]:
        return list(self.store.list(NAMES.checkpoints))

    def move_files(self, old: frozenset[File], new: frozenset[File]) -> None:
        for step, epoch, name in sorted(new - old):
            data = encode(product.manifest((step, epoch))) if name == MANIFEST else b"x"
            self.store.put(NAMES.checkpoint(step, epoch) + name, data)
        for step, epoch, name in sorted(old - new):
            self.store.delete(self.store.ref(NAMES.checkpoint(step, epoch) + name))


def said_by(state: RunState, change: Change) -> Any:
    """The change in the product's words, on a real state."""
    view = product.seen(state)
    return product.said(view if state.holder else view._replace(holder=NOBODY), change)


def deletable_by(state: RunState, listed: list[Stat]) -> tuple[File, ...]:
    """What the product would delete of a real listing."""
    manifests = {c.key: product.manifest(c.key) for c in state.retained}
    judged = decide_files(state, NAMES, listed, manifests, 0.0, short_of_space=True)
    return tuple(place[:3] for stat in going(judged) if (place := NAMES.parse_checkpoint(stat.name)))
