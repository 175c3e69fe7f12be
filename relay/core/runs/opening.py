"""Opens runs and creates them, and checks that stores and configuration are the run's own (P3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from relay.core.checkpoint.passedover import guard
from relay.core.clock import Runtime, chance
from relay.core.errors import BadConfig, BadData, RelayError, StoreDamaged, store_errors
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
from storage.base import Missing, Store, StoreError, TooLong, check_address
from storage.meeting import Pace, meet
from storage.mounts import evaporates
from storage.oserrors import os_errors
from storage.retry import put_once
from storage.selftest import FEW, races, self_test

# --- Runs the self-test of a store, once for each address (P1) ------------------------------------------------------


def ensure_tested(store: Store, runtime: Runtime) -> None:
    """Before a first append: run the self-test, unless the store holds a note that it passed at this address. On an
    untried file system, also race with the machine that uses the store now.

    Raises BadAddress, naming the server, if the store must not hold a run, and errors of the store.
    """
    if find(store, passed(store)) is None:
        self_test(store, token=runtime.token, sleep=runtime.sleep)
        record(store)
    meet(store, Pace(runtime.token, runtime.sleep, runtime.monotonic), runtime.spawn)


def record(store: Store) -> None:
    """Store a note that the self-test passed at this address."""
    store.put(passed(store), dumps({"format": 1}))


def passed(store: Store) -> str:
    """Name of the note. Holds a digest of the address: the same bucket behind another server is tested again.

    It holds the number of races too where that is not the usual one: a store that passed fewer is tested again.
    """
    raced = races(store)
    tested = store.address if raced == FEW else f"{store.address} {raced} races"
    return f"selftest/passed.{digest(tested.encode())[:32]}.json"


# --- The identity of a store: in its address, and as an object in the store (P3) ------------------------------------

LIMIT = 1000


class StoreIdentity(Strict):
    """The object with the store's identity."""

    format: Literal[1] = 1
    id: Id


@dataclass(frozen=True)
class Address:
    """A store's URL and, if the address contains it, the store's identity."""

    url: str
    id: str | None = None

    def __str__(self) -> str:
        return self.url + (FRAGMENT + self.id if self.id else "")


class BadIdentity(BadConfig):
    """The identity in an address is malformed."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}: {FRAGMENT} must be followed by 32 hexadecimal digits.")
        self.text = text


class IdentityDamaged(BadData):
    """The object with the store's identity cannot be parsed."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: {IDENTITY} is damaged, so the store's identity is unknown.")
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
    return _identity(data, store.address)


def _identity(data: bytes, address: str) -> str:
    try:
        loads(data, LIMIT)
        return StoreIdentity.model_validate_json(data).id
    except (NotCanonical, ValidationError) as error:
        raise IdentityDamaged(address) from error


def begin_store(store: Store, runtime: Runtime) -> str:
    """The store's identity, created now if it has none."""
    found = read_identity(store)
    if found:
        return found
    mine = dumps(StoreIdentity(id=runtime.token()).model_dump(mode="json"))
    try:
        with store_errors(store):
            stored = put_once(store, IDENTITY, mine, limit=LIMIT, sleep=runtime.sleep, jitter=partial(chance, runtime))
    except StoreDamaged as error:
        if isinstance(error.error, TooLong):
            raise IdentityDamaged(store.address) from error
        raise BadData(f"{store.address}: {IDENTITY} was written but is missing. The storage loses files.") from error
    return _identity(stored, store.address)


def begins_by_itself(store: Store) -> bool:
    """Whether a run may begin without `init`: only in stores on this machine, whose address cannot be mistyped."""
    return urlsplit(store.address).scheme in ("file", "memory", "")


# --- Stores that are folders ----------------------------------------------------------------------------------------


def folder_of(address: str) -> Path | None:
    """The folder of a store; None for other kinds."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def of_one_machine(address: str) -> bool:
    """Whether the store is a folder, or in the memory of a process. Raises BadAddress for an unknown kind."""
    check_address(address)
    return urlsplit(address).scheme in ("file", "memory")


def absent(address: str) -> bool:
    """Whether the store is a folder that does not exist yet."""
    folder = folder_of(address)
    return folder is not None and not folder.exists()


@contextmanager
def beside(address: str) -> Iterator[Path]:
    """A temporary folder on the disk where an absent store would be. Raises Denied if it cannot be created."""
    folder = folder_of(address)
    assert folder is not None
    there = next(path for path in folder.parents if path.exists())
    with ExitStack() as stack:
        with os_errors(folder, reading=False):
            scratch = stack.enter_context(TemporaryDirectory(prefix=".trm-relay-", dir=there))
        yield Path(scratch)


# --- Compares a configuration with the run's pinned one (P3) --------------------------------------------------------

ABSENT = "(absent)"
CONTENT = "sha256:"
"""Prefix of a pinned value that names data by its content. A user cannot ask for such a value."""


@dataclass(frozen=True)
class Changed:
    """One setting that differs, with both values as text."""

    key: str
    pinned: str
    mine: str


class NewerSettings(BadConfig):
    """A newer version began the run."""

    def __init__(self, run: str, keys: Sequence[str]) -> None:
        super().__init__(f"Run {run} pins settings that this version does not know: {', '.join(keys)}.")
        self.run, self.keys = run, tuple(keys)


SHOWN = 3
"""Differences that a message lists."""


class ConfigDiffers(BadConfig):
    """Settings were given that differ from those that the run pinned when it began."""

    def __init__(self, run: str, changed: Sequence[Changed], overrides: Sequence[str]) -> None:
        """`overrides`: `key=value` for each requested setting, as for a new run."""
        listed = "; ".join(f"{c.key}: the run has {c.pinned}, you asked for {c.mine}" for c in changed[:SHOWN])
        more = f"; and {len(changed) - SHOWN:,} more" if len(changed) > SHOWN else ""
        super().__init__(f"Run {run} pinned other settings when it began: {listed}{more}.")
        self.run, self.changed, self.overrides = run, tuple(changed), tuple(overrides)


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a pinned configuration."""
    return digest(dumps(dict(config)))


def check_config(run: str, pinned: Mapping[str, Any], config: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises ConfigDiffers (78) if `config` differs from the run's pinned one (P3).

    `asked`: the settings that `config` was made from. A run pins data by its content; the settings name its source.
    """
    changed = difference(pinned, config)
    if not changed:
        return
    wishes = dict(_flat(asked))
    mine = {c.key: wishes[c.key] if c.mine.startswith(CONTENT) else c.mine for c in changed if c.mine != ABSENT}
    raise ConfigDiffers(run, changed, [f"{key}={value}" for key, value in mine.items()])


def check_given(run: str, differing: Mapping[str, tuple[Any, Any]]) -> None:
    """Raises ConfigDiffers (78) if settings that somebody gave differ from the run's pinned ones (P3).

    `differing`: (pinned value, given value) by dotted key.
    """
    if differing:
        changed = [Changed(key, _text(pinned), _text(mine)) for key, (pinned, mine) in differing.items()]
        raise ConfigDiffers(run, changed, [f"{c.key}={c.mine}" for c in changed])


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
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


# --- Opens and creates runs (P3) ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunHandle:
    """A run whose identity was checked."""

    ledger: RunLedger
    registry: Registry
    view: View
    begun: bool = False
    """Whether this call created it."""
    others: tuple[tuple[str, str], ...] = ()
    """Project and name of the store's newest other runs, if this call created it."""
    passing: tuple[str, ...] = ()
    """Addresses on disks that do not outlive this machine, if this call created it."""

    @property
    def names(self) -> Names:
        """Names of the run's objects."""
        return self.ledger.names


class NameTaken(BadConfig):
    """The name for a fork or an import is taken by another run."""

    def __init__(self, run: str, by: Literal["fork", "import"]) -> None:
        super().__init__(f"There is a run {run} already.")
        self.run, self.by = run, by


class SimilarName(BadConfig):
    """A new run's name is one edit away from an existing run's."""

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
    """The store's identity differs from the one in the address. `found`: its own, None if it has none."""

    def __init__(self, address: str, expected: str, found: str | None) -> None:
        there = f"it is store {found}" if found else "it has no identity yet"
        super().__init__(f"{address} is not the store that your address names ({FRAGMENT}{expected}): {there}.")
        self.address, self.expected, self.found = address, expected, found


class RunOfAnotherStore(BadConfig):
    """The run's ledger or checkpoint store (`kind`) is not this one. `found`: this store's identity."""

    def __init__(self, run: str, kind: str, pinned: str, address: str, found: str | None) -> None:
        there = f"store {found}" if found else "a store without an identity"
        super().__init__(f"Run {run} began with {kind} store {pinned}, but {address} is {there}.")
        self.run, self.kind, self.pinned, self.address, self.found = run, kind, pinned, address, found


@dataclass(frozen=True)
class Pair:
    """The two stores of a run, which may be the same, and the process that uses them."""

    ledger: Store
    checkpoints: Store
    runtime: Runtime
    session: str
    """32 random hexadecimal digits, new for each process (P5)."""
    expected: str | None = None
    """The ledger store's identity, if the address contains it."""
    expected_checkpoints: str | None = None
    """The checkpoint store's identity, if the address contains it."""
    patience_s: float = 180.0
    """How long an unreadable slot is read again before it is passed over; at least the lease's TTL."""
    notice: Callable[[Look], None] = lambda look: None
    """Called at each of these reads."""

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
        """Test both before a first append. Raises BadAddress if one of them must not hold a run."""
        for store in self.both:
            ensure_tested(store, self.runtime)


def open_run(stores: Pair, project: str, run: str) -> RunHandle | None:
    """The run, or None if it (or the store) has not begun; writes nothing.

    Raises BadConfig (78) if the store or the run is not the expected one, and errors of the ledger.
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
    """The run. Raises UnknownRun (78) with the existing runs, if it has not begun."""
    found = open_run(stores, project, run)
    if found is None:
        raise unknown_run(stores, project, run, stores.registry().runs())
    return found


@contextmanager
def taking_name(stores: Pair, project: str, run: str, by: Literal["fork", "import"]) -> Iterator[NameTaken]:
    """Wrap the creation of a run whose name must be free; yields the error to raise if it is not.

    If the creation fails after another process created the run, raises that error (78) too: sessions of the other run
    may have removed files that were stored for this one.
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
    """Whether the run can be read. Errors are ignored: the caller raises the failure that led here."""
    try:
        return open_run(stores, project, run) is not None
    except (RelayError, StoreError):
        return False


def salvaged_run(stores: Pair, project: str, run: str) -> RunHandle | None:
    """A run whose ledger has lost an entry, as far as it is readable, to show it and to fork from it.

    None if nothing is readable. Raises as `open_run`, except for the hole.
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
    """Open the run, or create it: store identities, then the registry, then the genesis (P3).

    `config` (plain values) is pinned unchanged. `init` allows a remote store, `new` a name one edit away from
    an existing run's, `ephemeral` a disk that does not outlive the machine. A fork passes `origin` and `head`.
    Raises BadConfig (78), BadAddress for a store that fails its self-test, and errors of registry and ledger.
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
    """Write everything that creates a run. If it is interrupted, any session can finish it."""
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
    """The error for a run that is not in the store, with facts about the store."""
    address = stores.ledger.address
    needs_init = not begins_by_itself(stores.ledger)
    return UnknownRun(address, project, run, known, absent=absent(address), needs_init=needs_init)


def check_similar(project: str, run: str, known: Sequence[tuple[str, str]]) -> None:
    """Raises SimilarName (78) for a new name that is one edit away from an existing run's."""
    if (project, run) in known:
        return
    for other_project, other in known:
        if one_edit_apart(f"{project}/{run}", f"{other_project}/{other}"):
            raise SimilarName(project, run, other_project, other)


def _passing(stores: Pair) -> tuple[str, ...]:
    """Addresses on a disk that does not outlive this machine."""
    folders = {store.address: folder_of(store.address) for store in stores.both}
    return tuple(sorted(address for address, folder in folders.items() if folder and evaporates(folder)))


def check_expected(store: Store, expected: str | None, identity: str | None) -> None:
    """Raises AnotherStore (78) if the store's identity is not the expected one."""
    if expected and identity != expected:
        raise AnotherStore(store.address, expected, identity)


def _check_stores(stores: Pair, view: View, identity: str | None) -> None:
    """Raises RunOfAnotherStore (78) if the run was created in other stores and copied here.

    identity: of the ledger's store, from before the view was read. If it had none, it is read again: another process
    may have created both since, the store first.
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
