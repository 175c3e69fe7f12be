"""The registry of runs and accounts: the same log, its own rules (P3, P4, P12)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.entry import Entry, encode
from relay.core.ledger.frozen import MAX_ENTRY_BYTES, MAX_REGISTERED, MAX_RUNS
from relay.core.ledger.registry import (
    Begin,
    EnterRun,
    Forget,
    PutAccount,
    Registry,
    RegistryState,
    Row,
    SetStatus,
    StoreNotBegun,
    apply,
)
from storage.memory import MemoryStore
from tests.core.making import QuietRuntime, id_of
from tests.facts import raising

BY = By(id_of(1), None, 0, 1.7e9)


def do(state: RegistryState | None, kind: str, change: BaseModel) -> RegistryState:
    return apply(state, kind, change.model_dump(mode="json"), BY)


def begun() -> RegistryState:
    return do(None, "genesis", Begin(store=id_of(5)))


def put(state: RegistryState, account: str, sha256: str, replaces: str | None = None) -> RegistryState:
    return do(state, "account", PutAccount(id=account, sha256=sha256, replaces=replaces))


def registry(store: MemoryStore, number: int) -> Registry:
    return Registry(store, QuietRuntime(number), session=id_of(number))


def test_an_edit_made_from_an_older_object_is_refused() -> None:
    state = put(begun(), "ana", "a" * 64)
    for replaces in (None, "c" * 64):
        with raising(Refused, "ana"):
            put(state, "ana", "b" * 64, replaces)
    with pytest.raises(Refused):
        put(begun(), "ana", "b" * 64, "a" * 64)
    assert put(state, "ana", "b" * 64, "a" * 64).accounts["ana"].sha256 == "b" * 64


def test_a_state_is_declared_and_survives_an_edit() -> None:
    state = put(begun(), "ana", "a" * 64)
    state = do(state, "status", SetStatus(id="ana", state="quota_exceeded", until=1.8e9))
    state = put(state, "ana", "b" * 64, "a" * 64)
    assert (state.accounts["ana"].state, state.accounts["ana"].until) == ("quota_exceeded", 1.8e9)
    with raising(Refused, "ben"):
        do(state, "status", SetStatus(id="ben", state="ready"))


def test_a_claim_stays_whatever_happens_and_lets_its_holder_back() -> None:
    state = put(begun(), "ana", "a" * 64)
    claimed = PutAccount(id="ana", sha256="a" * 64, replaces="a" * 64, claim="0" * 16)
    state = do(do(state, "account", claimed), "account", claimed)
    state = do(state, "status", SetStatus(id="ana", state="retired"))
    state = put(state, "ana", "b" * 64, "a" * 64)
    assert (state.accounts["ana"].claims, state.accounts["ana"].state) == (("0" * 16,), "retired")
    gone = do(state, "forget", Forget(id="ana"))
    assert gone.accounts["ana"].claims == ("0" * 16,)
    back = PutAccount(id="ana", sha256="c" * 64, replaces="0" * 64)
    for claim in (None, "1" * 16):
        with raising(Refused, "ana"):
            do(gone, "account", back.model_copy(update={"claim": claim}))
    revived = do(gone, "account", back.model_copy(update={"claim": "0" * 16})).accounts["ana"]
    assert (revived.state, revived.sha256, revived.claims) == ("ready", "c" * 64, ("0" * 16,))


def test_what_says_nothing_new_is_written_as_before() -> None:
    """So that registries of earlier versions stay the same bytes, and their readers read them."""
    row = put(begun(), "ana", "a" * 64).accounts["ana"]
    assert row.model_dump(mode="json") == {"sha256": "a" * 64, "ref": None, "state": "ready", "until": None}
    assert set(PutAccount(id="ana", sha256="a" * 64).model_dump(mode="json")) == {"id", "sha256", "ref", "replaces"}
    old = {"sha256": "a" * 64, "ref": None, "state": "cooling", "until": 1.7e9}
    assert Row.model_validate_json(dumps(old)).model_dump(mode="json") == old


def test_a_forgotten_id_stays_taken_and_empty() -> None:
    state = do(put(begun(), "ana", "a" * 64), "forget", Forget(id="ana"))
    assert (state.accounts["ana"].state, state.accounts["ana"].sha256) == ("forgotten", "0" * 64)
    for again in (lambda: put(state, "ana", "b" * 64), lambda: do(state, "forget", Forget(id="ana")),
                  lambda: do(state, "status", SetStatus(id="ana", state="ready"))):  # fmt: skip
        with pytest.raises(Refused):
            again()


@pytest.mark.parametrize("kind", ["genesis", "run", "account", "status", "forget"])
def test_a_malformed_change_is_refused(kind: str) -> None:
    plain: tuple[dict[str, Any], ...] = ({}, {"id": "../x"}, {"id": "a", "sha256": "x"}, {"more": float("inf")})
    for change in plain:
        with pytest.raises(Refused):
            apply(None if kind == "genesis" else begun(), kind, change, BY)


def test_1000_accounts_and_all_runs_fit_into_an_entry() -> None:
    state = begun()
    for number in range(MAX_REGISTERED):
        state = put(state, f"a-participant-with-a-long-id-{number:04d}", f"{number:064x}")
    worst = {"claims": ("0" * 16,), "state": "quota_exceeded", "until": 1_712_345_678.25}
    rows = {key: row.model_copy(update=worst) for key, row in state.accounts.items()}
    state = state.model_copy(update={"accounts": rows})
    with raising(Refused, MAX_REGISTERED):
        put(state, "one_more", "0" * 64)
    runs = {f"sudoku_pretrain_multiaccount/sudoku_rotation_{n:03d}": {"run_id": id_of(n), "begun": 1.7e9 + n / 7}
            for n in range(MAX_RUNS)}  # fmt: skip
    state = RegistryState.model_validate_json(dumps(state.model_dump(mode="json") | {"runs": runs}))
    with pytest.raises(Refused, match="another store"):
        do(state, "run", EnterRun(project="p", run="r", run_id=id_of(1)))
    plain = {"seq": 1, "base": 0, "parent": "f" * 64, "nonce": id_of(1), "kind": "run", "session": id_of(2)}
    rest = {"account": None, "epoch": 0, "at": 1.7e9, "change": {}, "state": state.model_dump(mode="json")}
    assert 150_000 < len(encode(Entry.model_validate_json(dumps(plain | rest)))) <= MAX_ENTRY_BYTES


def test_a_registry_begins_once_and_lists_runs_in_order() -> None:
    store = MemoryStore()
    first, second = registry(store, 1), registry(store, 2)
    assert first.read() is None and first.runs() == []
    with raising(StoreNotBegun, store.address):
        first.enter_run("p", "r", id_of(7))
    assert first.begin(id_of(5)) == second.begin(id_of(6))
    assert first.enter_run("p", "zeta", id_of(7)) == id_of(7)
    assert second.enter_run("p", "alpha", id_of(8)) == id_of(8)
    assert first.enter_run("p", "alpha", id_of(9)) == id_of(8), "the run keeps the id it was entered under"
    assert second.runs() == [("p", "zeta"), ("p", "alpha")]


def test_a_void_entry_in_the_registry_changes_nothing() -> None:
    store = MemoryStore()
    mine = registry(store, 1)
    mine.begin(id_of(5))
    store.put(f"registry/ledger/{1:020d}.json", b"garbage")
    mine.enter_run("p", "r", id_of(7))
    state = registry(store, 2).read()
    assert state and state.voids == 1 and list(state.runs) == ["p/r"]
