"""The hint of a log is advice: a damaged one costs a few reads, and only an intact one is evidence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.errors import BadData
from relay.core.ledger.canonical import ZEROS
from storage.memory import MemoryStore
from tests.core.making import NAMES
from tests.damage.harms import HARMS, HOSTILE_JSON
from tests.damage.ledgers import reader, worked

HINT = NAMES.ledger.removesuffix("/") + ".hint"


def hinted(seq: int = 3) -> tuple[MemoryStore, bytes]:
    store, client = worked()
    client.ledger.chain.log.publish_hint(seq, ZEROS)
    return store, store.get(store.ref(HINT))


def test_no_flipped_bit_of_a_hint_is_taken_for_a_lost_entry() -> None:
    """A flip can turn one digit into another, so that the hint names a slot that never was."""
    store, data = hinted(seq=1)
    for at in range(len(data)):
        for bit in range(8):
            store.put(HINT, data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
            assert reader(store).read().state.step == 20, (at, bit)


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_hint_is_ignored(harm: str) -> None:
    store, data = hinted()
    changed = HARMS[harm](data)
    if changed is None:
        store.delete(store.ref(HINT))
    else:
        store.put(HINT, changed)
    assert reader(store).read().state.step == 20


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_hint_is_ignored(what: str) -> None:
    store, _ = hinted()
    store.put(HINT, HOSTILE_JSON[what])
    assert reader(store).read().state.step == 20


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_no_hint(data: bytes) -> None:
    store, _ = hinted()
    store.put(HINT, data)
    assert reader(store).read().state.step == 20


def test_i1_a_whole_hint_beyond_the_tail_is_evidence_of_a_lost_entry() -> None:
    store, _ = hinted()
    store.put(HINT, store.get(store.ref(HINT)).replace(b'"seq": 3', b'"seq": 9').replace(b"0003.json", b"0009.json"))
    with pytest.raises(BadData, match=r"00000000000000000004[.]json"):
        reader(store).read()
