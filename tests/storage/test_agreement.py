"""Memory and local agree on every sequence of verbs, so that what is simulated on one holds on the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from storage.base import Store, StoreError
from storage.local import LocalStore
from storage.memory import MemoryStore

NAMES = st.sampled_from(["a", "a/b", "a/b/c", "a/d", "b", "b-1", "b/1", "b.x/y", "b0", "../a", "A"])
PREFIXES = st.sampled_from(["", "a", "a/", "a/b", "b", "b/", "b.x/", "c", "/"])
DATA = st.binary(max_size=20)


class Agreement(RuleBasedStateMachine):
    """Every verb gives the same value or the same kind of error on both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.stores: list[Store] = [MemoryStore(), LocalStore(Path(self.folder) / "store")]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def agree(self, verb: Callable[[Store], object]) -> None:
        memory, local = (_outcome(verb, store) for store in self.stores)
        assert memory == local

    @rule(name=NAMES, data=DATA)
    def put(self, name: str, data: bytes) -> None:
        self.agree(lambda store: store.put(name, data))

    @rule(name=NAMES, data=DATA)
    def put_if_absent(self, name: str, data: bytes) -> None:
        self.agree(lambda store: store.put_if_absent(name, data))

    @rule(name=NAMES, limit=st.none() | st.integers(0, 20))
    def get(self, name: str, limit: int | None) -> None:
        self.agree(lambda store: store.get(store.ref(name), limit=limit))

    @rule(name=NAMES, start=st.integers(-1, 25), length=st.integers(-1, 25))
    def read_range(self, name: str, start: int, length: int) -> None:
        self.agree(lambda store: store.read_range(store.ref(name), start, length))

    @rule(name=NAMES)
    def stat(self, name: str) -> None:
        self.agree(lambda store: (store.stat(store.ref(name)).name, store.stat(store.ref(name)).size))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.agree(lambda store: store.delete(store.ref(name)))

    @rule(prefix=PREFIXES, after=st.none() | NAMES)
    def list(self, prefix: str, after: str | None) -> None:
        self.agree(lambda store: [(stat.name, stat.size) for stat in store.list(prefix, after=after)])


def _outcome(verb: Callable[[Store], object], store: Store) -> object:
    try:
        return verb(store)
    except (StoreError, ValueError) as error:
        return type(error)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=35, stateful_step_count=30, deadline=None)
