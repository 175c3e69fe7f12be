"""Which store, which run: beginning, joining, and every way to be in the wrong place (P3)."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from relay.app.messages.errors import paragraph
from relay.app.messages.whereabouts import new_run, unknown_run
from relay.core.errors import BadConfig, BadData, Exit
from relay.core.ledger.ledger import EntryLost, UnknownRun
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import Origin
from relay.core.names import IDENTITY, Names
from relay.core.runs import opening
from relay.core.runs.opening import (
    ABSENT,
    Address,
    AnotherStore,
    ConfigDiffers,
    PassingDisk,
    RunHandle,
    RunOfAnotherStore,
    SimilarName,
    begin_run,
    begin_store,
    check_config,
    config_hash,
    difference,
    open_run,
    parse_address,
    read_identity,
    require_run,
)
from storage.base import Exists, Missing, Ref, Store
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.making import QuietRuntime, checkpoint, id_of, pair_of
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore

CONFIG = {"lr": 0.1, "arch": {"hidden": 32, "layers": 2}, "task": "sudoku4"}


def begin(store: Store, run: str = "run_a", seed: int = 1, **more: Any) -> RunHandle:
    pair = more.pop("pair", pair_of(store, seed=seed))
    return begin_run(pair, "proj", run, CONFIG, **more)


class Remote(Wrapper):
    """A store that does not begin by itself."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.address = "s3://bucket/folder"


def test_an_address_may_carry_the_store_s_identity() -> None:
    assert parse_address("file:///x") == Address("file:///x")
    full = f"file:///x#id={id_of(255)}"
    assert parse_address(full) == Address("file:///x", id_of(255))
    assert str(parse_address(full)) == full
    for wrong in ("file:///x#id=", "file:///x#id=abc", f"file:///x#id={'G' * 32}", f"{full}0"):
        with pytest.raises(BadConfig, match="32 hexadecimal"):
            parse_address(wrong)


def test_a_store_gets_one_identity_whoever_comes_first() -> None:
    store = MemoryStore()
    assert read_identity(store) is None
    assert begin_store(store, QuietRuntime(1)) == begin_store(store, QuietRuntime(2)) == read_identity(store)
    lossy = FaultyStore(MemoryStore())
    lossy.script("put_if_absent", Exists("our own, sent twice"))
    lossy.inner.put(IDENTITY, store.get(store.ref(IDENTITY)))
    lossy.script("get", Missing("not yet"))
    assert begin_store(lossy, QuietRuntime(3)) == read_identity(store)


def test_a_run_that_another_begins_while_it_is_opened_is_that_run() -> None:
    """Found by twenty sessions at once: the store had no identity when it was asked, and a run a moment later."""

    class Late(Wrapper):
        begun = False

        def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
            try:
                return super().get(ref, limit=limit)
            finally:
                if not self.begun and ref == self.ref(IDENTITY):
                    self.begun = True
                    begin(self.inner, seed=2)

    found = open_run(pair_of(Late(MemoryStore())), "proj", "run_a")
    assert found and not found.begun and found.view.state.step == 0


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format":1,"id":"x"}', b"\xff", b"[" * 500, b"x" * 5000])
def test_a_damaged_identity_is_65(data: bytes) -> None:
    store = MemoryStore()
    store.put(IDENTITY, data)
    with pytest.raises(BadData, match="is damaged"):
        read_identity(store)


def test_a_local_run_begins_by_itself_and_says_so() -> None:
    store = MemoryStore()
    first = begin(store)
    assert first.begun and len(new_run(first)) == 1 and "run_a" in new_run(first)[0]
    assert first.view.state.config_hash == config_hash(CONFIG)
    second = begin(store, "another", seed=2)
    (told,) = new_run(second)
    assert "another" in told and "run_a" in told
    again = begin(store, seed=3)
    assert (again.begun, new_run(again), again.view.state.run_id) == (False, [], first.view.state.run_id)


def test_a_run_is_in_the_registry_before_its_genesis() -> None:
    class Stops(Wrapper):
        def put_if_absent(self, name: str, data: bytes) -> Any:
            if name.startswith("runs/"):
                raise KeyboardInterrupt
            return super().put_if_absent(name, data)

    inner = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        begin(Stops(inner))
    rows = Registry(inner, QuietRuntime(5), session=id_of(5)).read()
    assert rows and list(rows.runs) == ["proj/run_a"]
    later = begin(inner, seed=6)
    assert later.begun and later.view.state.run_id == rows.runs["proj/run_a"].run_id


def test_two_sessions_beginning_one_run_join_one() -> None:
    store = MemoryStore()

    class Beaten(Wrapper):
        beaten = False

        def put_if_absent(self, name: str, data: bytes) -> Any:
            if name.startswith("runs/") and not self.beaten:
                self.beaten = True
                begin(store, seed=9)
            return super().put_if_absent(name, data)

    mine = begin(Beaten(store))
    assert not mine.begun and mine.view == begin(store, seed=7).view


def test_a_name_one_edit_away_needs_new() -> None:
    store = MemoryStore()
    begin(store, "sudoku_rotation")
    with pytest.raises(SimilarName) as error:
        begin(store, "sudoku_rotatoin")
    assert error.value.other == "sudoku_rotation"
    assert begin(store, "sudoku_rotatoin", new=True).begun
    assert begin(store, "other").begun


def test_elsewhere_only_init_begins() -> None:
    store = Remote(MemoryStore())
    with pytest.raises(UnknownRun) as error:
        begin(store)
    assert (error.value.exit_code, error.value.known, error.value.needs_init) == (Exit.BAD_CONFIG, [], True)
    assert (error.value.project, error.value.run) == ("proj", "run_a") and "init" in unknown_run(error.value)
    assert begin(store, init=True).begun
    with pytest.raises(UnknownRun) as error:
        begin(store, "run_b")
    assert error.value.known == [("proj", "run_a")] and "run_a?" in unknown_run(error.value)
    assert not begin(store, seed=4).begun


def test_opening_writes_nothing() -> None:
    inner = MemoryStore()
    store = CountingStore(inner)
    assert open_run(pair_of(store), "proj", "run_a") is None
    begin(inner)
    found = open_run(pair_of(store), "proj", "run_a")
    assert found and found.view.state.step == 0 and found.names == Names("proj", "run_a")
    assert not {"put", "put_if_absent", "delete", "now"} & set(store.counts)
    with pytest.raises(UnknownRun) as error:
        require_run(pair_of(store), "proj", "run_x")
    assert (error.value.run, error.value.known, error.value.needs_init) == ("run_x", [("proj", "run_a")], False)


def test_an_address_of_another_store_is_78() -> None:
    store = MemoryStore()
    mine = begin(store).view.state.ledger_store
    assert begin(store, pair=pair_of(store, expected=mine)).view
    for other in (MemoryStore(), store):
        with pytest.raises(AnotherStore):
            begin(other, pair=pair_of(other, expected=id_of(99)))
    assert read_identity(other) == mine


def test_another_checkpoint_store_is_78() -> None:
    ledger, checkpoints = MemoryStore("ledger-a"), MemoryStore("checkpoints-a")
    begin(ledger, pair=pair_of(ledger, checkpoints))
    assert read_identity(ledger) != read_identity(checkpoints)
    assert not begin(ledger, pair=pair_of(ledger, checkpoints)).begun
    for other in (MemoryStore("checkpoints-b"), ledger):
        with pytest.raises(RunOfAnotherStore) as error:
            begin(ledger, pair=pair_of(ledger, other))
        assert (error.value.run, error.value.pinned) == ("run_a", read_identity(checkpoints))


def test_a_lost_lease_shows_when_a_session_begins() -> None:
    store = MemoryStore()
    begin(store)
    store.put(Names("proj", "run_a").checkpoint(10, 4) + "x", b"")
    with pytest.raises(EntryLost) as error:
        begin(store, seed=2)
    assert error.value.epoch == 4
    assert open_run(pair_of(store), "proj", "run_a")


def test_a_disk_that_evaporates_needs_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "evaporates", lambda path: str(path) == os.fspath(tmp_path / "store"))
    store = LocalStore(tmp_path / "store")
    with pytest.raises(PassingDisk):
        begin(store)
    assert not (tmp_path / "store").exists()
    opened = begin(store, ephemeral=True)
    assert opened.passing == (store.address,) and store.address in new_run(opened)[-1]
    assert not begin(store, seed=2).begun, "a run that is there is joined without a word"


def test_a_fork_begins_at_its_own_copy() -> None:
    origin = Origin(project="p", run="r", entry="e" * 64, step=50, state_hash="b" * 64)
    opened = begin(MemoryStore(), origin=origin, head=checkpoint(50, 0))
    assert (opened.view.state.step, opened.view.state.origin) == (50, origin)


def test_another_configuration_is_78_with_the_difference_and_the_fork_command() -> None:
    pinned = begin(MemoryStore()).ledger.genesis().config
    check_config("run_a", pinned, {"task": "sudoku4", "arch": {"layers": 2, "hidden": 32}, "lr": 0.1}, CONFIG)
    mine = {**CONFIG, "lr": 0.2, "arch": {"hidden": 32}, "seed": 3}
    with pytest.raises(ConfigDiffers) as error:
        check_config("run_a", pinned, mine, mine)
    changed = {one.key: (one.pinned, one.mine) for one in error.value.changed}
    assert changed == {"lr": ("0.1", "0.2"), "arch.layers": ("2", ABSENT), "seed": (ABSENT, "3")}
    assert shlex.split(paragraph(error.value))[-6:] == ["--run", "run_a", "--to", "run_a_2", "lr=0.2", "seed=3"]


def test_difference_lists_changed_settings_only() -> None:
    assert difference(CONFIG, CONFIG) == ()
    changed = difference({"a": {"b": 1, "c": [1]}, "d": None}, {"a": {"b": 1.5, "c": [1]}, "e": "x"})
    assert [(c.key, c.pinned, c.mine) for c in changed] == [
        ("a.b", "1", "1.5"),
        ("d", "null", "(absent)"),
        ("e", "(absent)", "x"),
    ]
