"""Which run this is: opening one in the stores that it was begun in, and beginning one (P3); knows no session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from relay.core.checkpoint.passedover import guard
from relay.core.clock import Runtime
from relay.core.errors import BadConfig, BadData, RelayError, store_errors
from relay.core.lease.heartbeat import find
from relay.core.ledger.canonical import NotCanonical, digest, dumps, loads
from relay.core.ledger.chain import Chain
from relay.core.ledger.changes import Genesis
from relay.core.ledger.fields import Id, Strict
from relay.core.ledger.ledger import RunLedger, UnknownRun, View
from relay.core.ledger.passing import Look
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import Checkpoint, Origin
from relay.core.names import FRAGMENT, IDENTITY, Names, one_edit_apart
from relay.core.runs.salvage import salvage
from storage.base import Exists, Missing, Store, StoreError, TooLong
from storage.mounts import evaporates
from storage.oserrors import os_errors
from storage.selftest import self_test

# --- Makes sure, once for each address a store is reached at, that it keeps the promises the log rests on (P1) ------


def ensure_tested(store: Store, runtime: Runtime) -> None:
    """Before a first append: run the self-test unless the store says that it passed at this address; one look-up then.

    Raises BadAddress, naming the server, if the store must not hold a run; else what the store raises.
    """
    if find(store, passed(store)) is None:
        self_test(store, token=runtime.token, sleep=runtime.sleep)
        record(store)


def record(store: Store) -> None:
    """Note in the store that the self-test passed at this address."""
    store.put(passed(store), dumps({"format": 1}))


def passed(store: Store) -> str:
    """Name of the note. It holds a digest: the same bucket behind another server is tested anew, no address is kept."""
    return f"selftest/passed.{digest(store.address.encode())[:32]}.json"


# --- Which store this is: addresses that name an identity, and the object in a store that says it (P3) --------------

LIMIT = 1000


class StoreIdentity(Strict):
    """The object that says which store this is."""

    format: Literal[1] = 1
    id: Id


@dataclass(frozen=True)
class Address:
    """Where a store is and, if the address says so, which one it must be."""

    url: str
    id: str | None = None

    def __str__(self) -> str:
        return self.url + (FRAGMENT + self.id if self.id else "")


class BadIdentity(BadConfig):
    """What an address says of the store's identity cannot be one."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}: what follows {FRAGMENT} must be 32 hexadecimal digits.")
        self.text = text


class IdentityDamaged(BadData):
    """The object that says which store this is cannot be read as one."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: {IDENTITY} is damaged, so nobody can tell which store this is.")
        self.address = address


def parse_address(text: str) -> Address:
    """Split `file:///x#id=<32 hex>`. Raises BadIdentity (78)."""
    url, mark, identity = text.partition(FRAGMENT)
    if not mark:
        return Address(text)
    if len(identity) != 32 or set(identity) - set("0123456789abcdef"):
        raise BadIdentity(text)
    return Address(url, identity)


def read_identity(store: Store) -> str | None:
    """The store's identity, or None if nothing was begun in it. Raises IdentityDamaged (65)."""
    with store_errors(store):
        try:
            data = store.get(store.ref(IDENTITY), limit=LIMIT)
        except Missing:
            return None
        except TooLong:
            data = b""
    try:
        loads(data, LIMIT)
        return StoreIdentity.model_validate_json(data).id
    except (NotCanonical, ValidationError) as error:
        raise IdentityDamaged(store.address) from error


def begin_store(store: Store, runtime: Runtime) -> str:
    """The store's identity, given to it now if it has none."""
    found = read_identity(store)
    if found:
        return found
    with store_errors(store), suppress(Exists):  # somebody else's, or our own re-sent: the stored one counts
        store.put_if_absent(IDENTITY, dumps(StoreIdentity(id=runtime.token()).model_dump(mode="json")))
    found = read_identity(store)
    if found is None:
        raise BadData(f"{store.address}: {IDENTITY} was written and is not there. The storage loses files.")
    return found


def begins_by_itself(store: Store) -> bool:
    """Whether a run may begin without `init`: only where nobody else can have meant another store."""
    return urlsplit(store.address).scheme in ("file", "memory", "")


# --- Stores that are folders: where they are, whether anybody has made them yet -------------------------------------


def folder_of(address: str) -> Path | None:
    """The folder that is a store, None for other kinds."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def absent(address: str) -> bool:
    """Whether the store is a folder that nobody has made yet."""
    folder = folder_of(address)
    return folder is not None and not folder.exists()


@contextmanager
def beside(address: str) -> Iterator[Path]:
    """A passing folder on the disk where an absent store would be. Raises Denied where no folder can be made."""
    folder = folder_of(address)
    assert folder is not None
    there = next(path for path in folder.parents if path.exists())
    with ExitStack() as stack:
        with os_errors(folder, reading=False):
            scratch = stack.enter_context(TemporaryDirectory(prefix=".trm-relay-", dir=there))
        yield Path(scratch)


# --- Compares a configuration with the one a run pinned when it began (P3) ------------------------------------------

ABSENT = "(absent)"
CONTENT = "sha256:"
"""How a pinned value begins that names data by its content; nobody can ask for it."""


@dataclass(frozen=True)
class Changed:
    """One setting that differs, as texts."""

    key: str
    pinned: str
    mine: str


class ConfigDiffers(BadConfig):
    """The run pinned other settings when it began."""

    def __init__(self, run: str, changed: Sequence[Changed], overrides: Sequence[str]) -> None:
        """`overrides`: `key=value` for each setting that was asked for, as a new run would be given them."""
        listed = "; ".join(f"{c.key}: the run has {c.pinned}, you asked for {c.mine}" for c in changed)
        super().__init__(f"Run {run} pinned another configuration when it began: {listed}.")
        self.run, self.changed, self.overrides = run, tuple(changed), tuple(overrides)


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a pinned configuration."""
    return digest(dumps(dict(config)))


def check_config(ledger: RunLedger, view: View, config: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises ConfigDiffers (78) if `config` is not what the run pinned (P3).

    `asked` are the settings that `config` was made from: where a run pins data by its content, they name its source.
    """
    if view.state.config_hash == config_hash(config):
        return
    changed = difference(ledger.genesis().config, config)
    wishes = dict(_flat(asked))
    mine = {c.key: wishes[c.key] if c.mine.startswith(CONTENT) else c.mine for c in changed if c.mine != ABSENT}
    raise ConfigDiffers(ledger.names.run, changed, [f"{key}={value}" for key, value in mine.items()])


def difference(pinned: Mapping[str, Any], mine: Mapping[str, Any]) -> tuple[Changed, ...]:
    """The settings that differ, by dotted key in alphabetical order."""
    ours, theirs = dict(_flat(mine)), dict(_flat(pinned))
    return tuple(
        Changed(key, theirs.get(key, ABSENT), ours.get(key, ABSENT))
        for key in sorted({*ours, *theirs})
        if theirs.get(key, ABSENT) != ours.get(key, ABSENT)
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else dumps(value).decode()


# --- Which run this is: opening one in the stores that it was begun in, and beginning one (P3) ----------------------


@dataclass(frozen=True)
class RunHandle:
    """A run whose identity was checked."""

    ledger: RunLedger
    registry: Registry
    view: View
    begun: bool = False
    """Whether this call began it."""
    others: tuple[tuple[str, str], ...] = ()
    """Project and name of the store's newest other runs, where this call began it."""
    passing: tuple[str, ...] = ()
    """Addresses on disks that are gone when this machine ends, where this call began it."""

    @property
    def names(self) -> Names:
        """Where the run's objects lie."""
        return self.ledger.names


class NameTaken(BadConfig):
    """The name of a run that a fork or an import would begin is another's."""

    def __init__(self, run: str, by: Literal["fork", "import"]) -> None:
        super().__init__(f"There is a run {run} already.")
        self.run, self.by = run, by


class SimilarName(BadConfig):
    """A new run's name is one edit away from that of a run that there is."""

    def __init__(self, project: str, run: str, other_project: str, other: str) -> None:
        super().__init__(
            f"There is no run {run} in project {project}, but {other_project}/{other} differs by one character."
        )
        self.project, self.run, self.other_project, self.other = project, run, other_project, other


class PassingDisk(BadConfig):
    """A new run would be on a disk that does not outlive this machine."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is on a disk that is gone when this machine ends, and the run with it.")
        self.address = address


class AnotherStore(BadConfig):
    """The store is not the one that the address names by its identity; `found`: its own, None if it has none."""

    def __init__(self, address: str, expected: str, found: str | None) -> None:
        there = f"it is store {found}" if found else "nothing was ever begun in it"
        super().__init__(f"{address} is not the store that your address names ({FRAGMENT}{expected}): {there}.")
        self.address, self.expected, self.found = address, expected, found


class RunOfAnotherStore(BadConfig):
    """The run was begun with another `kind` of store (ledger, checkpoint) than this one; `found`: its identity."""

    def __init__(self, run: str, kind: str, pinned: str, address: str, found: str | None) -> None:
        there = f"store {found}" if found else "a store without an identity"
        super().__init__(f"Run {run} began with {kind} store {pinned}, but {address} is {there}.")
        self.run, self.kind, self.pinned, self.address, self.found = run, kind, pinned, address, found


@dataclass(frozen=True)
class Pair:
    """The two stores of a run, which may be one, and who asks them."""

    ledger: Store
    checkpoints: Store
    runtime: Runtime
    session: str
    """32 random hexadecimal digits, new for each process (P5)."""
    expected: str | None = None
    """The ledger store's identity, where the address names it."""
    expected_checkpoints: str | None = None
    """The same of the checkpoints' store."""
    patience_s: float = 180.0
    """How long a slot that cannot be read is read again before it is passed over: at least the lease's TTL."""
    notice: Callable[[Look], None] = lambda look: None
    """Told meanwhile."""

    @property
    def both(self) -> list[Store]:
        """Each store once."""
        same = self.ledger.address == self.checkpoints.address
        return [self.ledger] if same else [self.ledger, self.checkpoints]

    def registry(self) -> Registry:
        """The log of what the ledger's store holds."""
        registry = Registry(self.ledger, self.runtime, session=self.session)
        self._set_up(registry.chain)
        return registry

    def run_ledger(self, project: str, run: str) -> RunLedger:
        """The log of a run, begun or not."""
        ledger = RunLedger(self.ledger, project, run, self.runtime)
        self._set_up(ledger.chain)
        guard(ledger, self.checkpoints)
        return ledger

    def _set_up(self, chain: Chain[Any]) -> None:
        chain.prover.patience_s, chain.prover.notice = self.patience_s, self.notice

    def ensure_tested(self) -> None:
        """Before a first append. Raises BadAddress if one of them must not hold a run."""
        for store in self.both:
            ensure_tested(store, self.runtime)


def open_run(stores: Pair, project: str, run: str) -> RunHandle | None:
    """The run, or None if it (or the store) has not begun; writes nothing.

    Raises BadConfig (78) if the store or the run is another one than expected, and what the ledger raises.
    """
    identity = read_identity(stores.ledger)
    check_expected(stores.ledger, stores.expected, identity)
    ledger = stores.run_ledger(project, run)
    view = ledger.peek()
    if view is None:
        if expected := stores.expected_checkpoints:
            check_expected(stores.checkpoints, expected, read_identity(stores.checkpoints))
        return None
    _check_stores(stores, view, identity)
    return RunHandle(ledger, stores.registry(), view)


def require_run(stores: Pair, project: str, run: str) -> RunHandle:
    """The run. Raises UnknownRun (78) with the runs there are, if it has not begun."""
    found = open_run(stores, project, run)
    if found is None:
        raise unknown_run(stores, project, run, stores.registry().runs())
    return found


@contextmanager
def taking_name(stores: Pair, project: str, run: str, by: Literal["fork", "import"]) -> Iterator[NameTaken]:
    """Around what makes a run under a name that must be free; yields what to raise if it is not.

    Raises that (78) too where anything fails after another has begun the run, whose sessions may have cleared what
    was stored for this one.
    """
    refused = NameTaken(run, by)
    if open_run(stores, project, run):
        raise refused
    try:
        yield refused
    except (RelayError, StoreError) as error:
        if error is not refused and _is_begun(stores, project, run):
            raise refused from error
        raise


def _is_begun(stores: Pair, project: str, run: str) -> bool:
    """Whether that can be seen; what hinders the look is told by the failure that led to it."""
    try:
        return open_run(stores, project, run) is not None
    except (RelayError, StoreError):
        return False


def salvaged_run(stores: Pair, project: str, run: str) -> RunHandle | None:
    """A run whose ledger has lost an entry, as far as it can still be read: to look at and to fork from.

    None if nothing of it can be. Raises as `open_run` does, but for the hole.
    """
    identity = read_identity(stores.ledger)
    check_expected(stores.ledger, stores.expected, identity)
    ledger = stores.run_ledger(project, run)
    view = salvage(ledger)
    if view is None:
        return None
    _check_stores(stores, view, identity)
    return RunHandle(ledger, stores.registry(), view)


def begin_run(
    stores: Pair,
    project: str,
    run: str,
    config: Mapping[str, Any],
    *,
    new: bool = False,
    ephemeral: bool = False,
    init: bool = False,
    origin: Origin | None = None,
    head: Checkpoint | None = None,
) -> RunHandle:
    """The run, begun now if it has not: store identities, then the registry, then the genesis (P3).

    `config` is pinned as it is, plain values. `init` allows a store that does not begin by itself, `new` a name one
    edit away from an existing one, `ephemeral` a disk that evaporates; a fork brings `origin` and `head`.
    Raises BadConfig (78), BadAddress for a store that fails its self-test, and what registry and ledger raise.
    """
    found = open_run(stores, project, run)
    if found:
        found.ledger.check_epochs(stores.checkpoints)
        stores.ensure_tested()
        return found
    registry = stores.registry()
    known = registry.runs()
    if not (init or begins_by_itself(stores.ledger)):
        raise unknown_run(stores, project, run, known)
    if not new:
        check_similar(project, run, known)
    ledger = stores.run_ledger(project, run)
    ledger.check_unused(stores.checkpoints)
    passing = _passing(stores)
    if passing and not ephemeral:
        raise PassingDisk(passing[0])
    stores.ensure_tested()
    view, begun = _write(stores, registry, ledger, config, origin, head)
    if not begun:
        return RunHandle(ledger, registry, view)
    others = tuple(other for other in known[-10:] if other != (project, run))
    return RunHandle(ledger, registry, view, begun, others, passing)


def _write(
    stores: Pair,
    registry: Registry,
    ledger: RunLedger,
    config: Mapping[str, Any],
    origin: Origin | None,
    head: Checkpoint | None,
) -> tuple[View, bool]:
    """What begins a run, in an order in which whoever breaks off can be followed by anybody."""
    identity = begin_store(stores.ledger, stores.runtime)
    checkpoint_identity = begin_store(stores.checkpoints, stores.runtime)
    registry.begin(identity)
    names = ledger.names
    genesis = Genesis(
        project=names.project,
        run=names.run,
        run_id=registry.enter_run(names.project, names.run, stores.runtime.token()),
        ledger_store=identity,
        checkpoint_store=checkpoint_identity,
        config_hash=config_hash(config),
        config=dict(config),
        origin=origin,
        head=head,
    )
    view, begun = ledger.begin(genesis, session=stores.session)
    _check_stores(stores, view, identity)
    return view, begun


def unknown_run(stores: Pair, project: str, run: str, known: Sequence[tuple[str, str]]) -> UnknownRun:
    """The error for a run that is not in the store, with what its user may want to know of the store."""
    address = stores.ledger.address
    needs_init = not begins_by_itself(stores.ledger)
    return UnknownRun(address, project, run, known, absent=absent(address), needs_init=needs_init)


def check_similar(project: str, run: str, known: Sequence[tuple[str, str]]) -> None:
    """Raises SimilarName (78) for a new name that is one edit away from that of a run that there is."""
    if (project, run) in known:
        return
    for other_project, other in known:
        if one_edit_apart(f"{project}/{run}", f"{other_project}/{other}"):
            raise SimilarName(project, run, other_project, other)


def _passing(stores: Pair) -> tuple[str, ...]:
    """The addresses that are on a disk which is gone when this machine ends."""
    folders = {store.address: folder_of(store.address) for store in stores.both}
    return tuple(sorted(address for address, folder in folders.items() if folder and evaporates(folder)))


def check_expected(store: Store, expected: str | None, identity: str | None) -> None:
    """Raises AnotherStore (78) if the store is not the one that the address names."""
    if expected and identity != expected:
        raise AnotherStore(store.address, expected, identity)


def _check_stores(stores: Pair, view: View, identity: str | None) -> None:
    """The run was begun in these two stores, and not copied from others.

    identity: the ledger's store, as it was before the view was read. Where that had none, another may have begun both
    since, the store first.
    """
    identity = identity or read_identity(stores.ledger)
    same = stores.checkpoints.address == stores.ledger.address
    checkpoint_identity = identity if same else read_identity(stores.checkpoints)
    for kind, store, is_id, pinned in (
        ("ledger", stores.ledger, identity, view.state.ledger_store),
        ("checkpoint", stores.checkpoints, checkpoint_identity, view.state.checkpoint_store),
    ):
        if is_id != pinned:
            raise RunOfAnotherStore(view.state.run, kind, pinned, store.address, is_id)
