"""The log that lists a store's runs and accounts, without names or contacts of people (P3, P4, P12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError

from relay.core.clock import Runtime
from relay.core.errors import BadConfig
from relay.core.ledger.canonical import ZEROS, NotCanonical, dumps
from relay.core.ledger.chain import AlreadyBegun, AnyChange, Chain, View
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.fields import Claim, Digest, Exact, Id, Passed, Sparing, Strict, Time
from relay.core.ledger.frozen import ADDED, MAX_CLAIMS, MAX_REGISTERED, MAX_RUNS
from relay.core.ledger.reader import Machine
from relay.core.names import REGISTRY_LEDGER, Name
from storage.base import Store

Declared = Literal["ready", "cooling", "paused", "quota_exceeded", "blocked", "retired"]
"""Declared states of an account; relay/people/accountstate.py has their effects. New rows are never 'cooling'."""
Status = Declared | Literal["forgotten"]


class Row(Sparing):
    """One account: the place of its object, and its state."""

    added: ClassVar[tuple[str, ...]] = ADDED["Row"]

    sha256: Digest
    """Of the object's bytes; zeros once forgotten. Also part of the object's name."""
    ref: Exact | None = None
    """The object's Ref, if it is not its name."""
    state: Status = "ready"
    until: Time | None = None
    """When the state is expected to end, store's clock."""
    claims: Annotated[tuple[Claim, ...], Field(max_length=MAX_CLAIMS)] = ()
    """Digests of every owner and provider that it has trained under; they stay when it is edited or forgotten."""


class RunRow(Strict):
    """One run, entered before its genesis."""

    run_id: Id
    begun: Time


RunKey = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}/[a-z0-9][a-z0-9_-]{0,63}$")]


class RegistryState(Strict):
    """All runs and accounts of a store."""

    format: Literal[1] = 1
    store: Id
    updated: Time
    accounts: dict[Name, Row] = Field(default={})
    runs: dict[RunKey, RunRow] = Field(default={})
    """By 'project/run'."""
    voids: int = 0
    """Number of invalid entries."""


class Begin(Strict):
    """Begins the registry of a store."""

    store: Id


class EnterRun(Strict):
    """A run is about to begin."""

    project: Name
    run: Name
    run_id: Id


class PutAccount(Sparing):
    """A new or edited account object. `replaces` is the digest of the edited one, so that no edit is lost."""

    added: ClassVar[tuple[str, ...]] = ADDED["PutAccount"]

    id: Name
    sha256: Digest
    ref: Exact | None = None
    replaces: Digest | None = None
    claim: Claim | None = None
    """The owner and provider after training; a forgotten account comes back only with a claim that it holds."""


class SetStatus(Strict):
    """A declared state."""

    id: Name
    state: Declared
    until: Time | None = None


class Forget(Strict):
    """The account's object was emptied; its id and its claims stay."""

    id: Name


RegistryChange = Begin | EnterRun | PutAccount | SetStatus | Forget

KINDS: Mapping[str, type[RegistryChange]] = {
    "genesis": Begin,
    "run": EnterRun,
    "account": PutAccount,
    "status": SetStatus,
    "forget": Forget,
}


def apply(
    state: RegistryState | None,
    kind: str,
    change: Mapping[str, Any],
    by: By,
    voids: Sequence[int] = (),
    passed: Passed | None = None,
) -> RegistryState:
    """The registry after a change; slots passed over are counted. Raises Refused (65)."""
    try:
        parsed = KINDS[kind].model_validate_json(dumps(dict(change)))
    except (ValidationError, NotCanonical) as error:
        raise Refused(f"{kind}: malformed: {error}") from error
    if isinstance(parsed, Begin):
        if state is not None:
            raise Refused("genesis: the registry has begun already")
        return RegistryState(store=parsed.store, updated=by.at, voids=len(voids))
    if state is None:
        raise Refused(f"{kind}: the registry has not begun")
    after = _RULES[kind](state, parsed, by)
    return after.model_copy(update={"updated": by.at, "voids": state.voids + len(voids)})


def succeeds(before: RegistryState, after: RegistryState) -> None:
    """Raises Refused if `after` can never follow `before`: runs and accounts are never removed."""
    if before.store != after.store or before.runs.keys() - after.runs.keys():
        raise Refused("its state is of another store, or has lost a run")
    if before.accounts.keys() - after.accounts.keys():
        raise Refused("its state has lost an account")


def _run(state: RegistryState, change: EnterRun, by: By) -> RegistryState:
    key = f"{change.project}/{change.run}"
    if key in state.runs:
        raise Refused(f"run: {key} is entered already")
    if len(state.runs) >= MAX_RUNS:
        raise Refused(f"run: this store lists {MAX_RUNS} runs already; use another store for more")
    return state.model_copy(update={"runs": {**state.runs, key: RunRow(run_id=change.run_id, begun=by.at)}})


def _account(state: RegistryState, change: PutAccount, by: By) -> RegistryState:
    row = state.accounts.get(change.id)
    if row and row.state == "forgotten" and change.claim not in row.claims:
        raise Refused(f"account: {change.id} was forgotten; only who trained as it may register it again")
    if (row.sha256 if row else None) != change.replaces:
        raise Refused(f"account: {change.id} is not what this change was made from")
    if row is None and len(state.accounts) >= MAX_REGISTERED:
        raise Refused(f"account: this store lists {MAX_REGISTERED} accounts already; use another store for more")
    row = row or Row(sha256=ZEROS)
    claims = row.claims if change.claim in (None, *row.claims) else (*row.claims, change.claim)
    if len(claims) > MAX_CLAIMS:
        raise Refused(
            f"account: {change.id} has trained under {MAX_CLAIMS} descriptions already; set the owner and the provider "
            f"of one of them, or let its person register another id where no limit bars it"
        )
    status = "ready" if row.state == "forgotten" else row.state
    return _with_row(state, change.id, row, sha256=change.sha256, ref=change.ref, state=status, claims=claims)


def _status(state: RegistryState, change: SetStatus, by: By) -> RegistryState:
    return _with_row(state, change.id, _row(state, change.id), state=change.state, until=change.until)


def _forget(state: RegistryState, change: Forget, by: By) -> RegistryState:
    row = _row(state, change.id)
    return _with_row(state, change.id, row, sha256=ZEROS, ref=None, state="forgotten", until=None)


def _row(state: RegistryState, account: str) -> Row:
    row = state.accounts.get(account)
    if row is None or row.state == "forgotten":
        raise Refused(f"no account {account} is registered")
    return row


def _with_row(registry: RegistryState, account: str, row: Row, **update: Any) -> RegistryState:
    return registry.model_copy(update={"accounts": {**registry.accounts, account: row.model_copy(update=update)}})


_RULES: Mapping[str, Callable[[RegistryState, Any, By], RegistryState]] = {
    "run": _run,
    "account": _account,
    "status": _status,
    "forget": _forget,
}

MACHINE = Machine(kinds=frozenset(KINDS), model=RegistryState, apply=apply, succeeds=succeeds)


class Registry:
    """The registry of one store. All methods raise BadData (65), StorageUnreachable (69), NewerFormat (78)."""

    def __init__(self, store: Store, runtime: Runtime, *, session: str) -> None:
        self.store = store
        self.runtime = runtime
        self.session = session
        self.chain = Chain(store, REGISTRY_LEDGER, MACHINE, runtime)

    def read(self) -> RegistryState | None:
        """The newest state, or None if nothing was ever registered or begun in this store."""
        view = self.chain.read()
        return view.state if view else None

    def runs(self) -> list[tuple[str, str]]:
        """(project, run) of every run, oldest first."""
        state = self.read()
        rows = sorted(state.runs.items(), key=lambda item: (item[1].begun, item[0])) if state else []
        return [(key.split("/")[0], key.split("/")[1]) for key, _ in rows]

    def begin(self, store_id: str) -> RegistryState:
        """Begin the registry unless it has begun."""

        def build(state: RegistryState | None) -> AnyChange:
            if state is not None:
                raise AlreadyBegun
            return Begin(store=store_id)

        try:
            return self._append("genesis", build).state
        except AlreadyBegun:
            return self._must_exist(self.read())

    def enter_run(self, project: str, run: str, run_id: str) -> str:
        """Enter a run before its genesis. Returns its id, which another session may have entered first."""

        def build(state: RegistryState) -> AnyChange:
            row = state.runs.get(f"{project}/{run}")
            if row:
                raise AlreadyEntered(row.run_id)
            return EnterRun(project=project, run=run, run_id=run_id)

        try:
            self.append("run", build)
        except AlreadyEntered as error:
            return error.run_id
        return run_id

    def append(self, kind: str, build: Callable[[RegistryState], AnyChange]) -> RegistryState:
        """Land one change; `build(state)` is called again on every rebase. Raises Unsettled (74) as a ledger does."""
        return self._append(kind, lambda state: build(self._must_exist(state))).state

    def _append(self, kind: str, build: Callable[[RegistryState | None], AnyChange]) -> View[RegistryState]:
        return self.chain.append(kind, build, session=self.session)

    def _must_exist(self, state: RegistryState | None) -> RegistryState:
        if state is None:
            raise StoreNotBegun(self.store.address)
        return state


class StoreNotBegun(BadConfig):
    """The store has no registry: no run has begun in it."""

    def __init__(self, address: str) -> None:
        super().__init__(f"No run has begun in {address}.")
        self.address = address


class AlreadyEntered(Exception):
    """The run is already in the registry."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id
