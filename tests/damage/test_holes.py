"""A missing entry is damage and never the end of the log, for every reader (I1)."""

from __future__ import annotations

import pytest

from relay.core.errors import BadData, Exit
from relay.core.ledger.canonical import ZEROS
from tests.core.making import NAMES, Client, overwrite, raw
from tests.damage.ledgers import reader, worked


def test_i1_a_hole_is_damage_never_a_tail() -> None:
    for missing in range(4):
        store, client = worked()
        for step in (30, 40, 50):
            client.commit(step)
        behind = reader(store)
        behind.read()
        store.delete(store.ref(f"{NAMES.ledger}{missing:020d}.json"))
        if missing == 0:
            store.delete(store.ref(NAMES.ledger.removesuffix("/") + ".hint"))
        fresh = reader(store)
        try:
            assert fresh.read().state.step == 50, "a hole far below may go unseen by a cheap read, but is no tail"
        except BadData as error:
            assert f"{missing:020d}" in str(error)
        with pytest.raises(BadData, match=f"{missing:020d}"):
            list(fresh.walk(6))


def test_i1_a_lost_newest_entry_is_noticed_by_who_knew_it_and_by_a_hint() -> None:
    store, client = worked()
    store.delete(store.ref(f"{NAMES.ledger}{3:020d}.json"))
    before = [stat.name for stat in store.list("")]
    for act in (client.ledger.read, lambda: client.commit(30)):
        with pytest.raises(BadData, match=f"{3:020d}") as error:
            act()
        assert error.value.exit_code == Exit.BAD_DATA
    client.ledger.chain.log.publish_hint(3, ZEROS)
    with pytest.raises(BadData, match=f"{3:020d}"):
        reader(store).read()
    assert [s.name for s in store.list("") if not s.name.endswith(".hint")] == [
        name for name in before if not name.endswith(".hint")
    ]


def test_i1_a_slot_beyond_the_tail_proves_a_hole() -> None:
    store, _ = worked()
    overwrite(store, 9, raw(store, 3))
    with pytest.raises(BadData, match=f"{4:020d}"):
        reader(store).read()


def test_i1_a_hole_is_not_filled_by_a_session_that_read_the_log_long_ago() -> None:
    store, client = worked()
    behind = Client(store, 2)
    seen = behind.ledger.validate().seq
    client.commit(30)
    client.commit(40)
    store.delete(store.ref(f"{NAMES.ledger}{seen + 1:020d}.json"))
    with pytest.raises(BadData, match=f"{seen + 1:020d}"):
        behind.lease()
    assert not any(stat.name.endswith(f"{seen + 1:020d}.json") for stat in store.list(NAMES.ledger))
