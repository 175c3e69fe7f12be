"""Opens a notebook's store and settings inside the kernel, the only process that can read its secrets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from relay.app.commands.common import App
from relay.app.commands.people.registering import enrolled
from relay.app.commands.stores import open_stores, writing_accounts
from relay.app.machine.env import Machine
from relay.app.machine.secretchain import Refused
from relay.app.messages.whereabouts import missing
from relay.app.messages.wording import printable
from relay.app.models.registry import MODELS, default_plugin
from relay.app.redact import redact
from relay.app.terminal.mishaps import explain
from relay.core.checkpoint.local import local_folder_of
from relay.core.errors import BadConfig, RelayError, store_errors
from relay.core.lease.host import FileHostLocks, MachineSessions, default_folder
from relay.core.ledger.state import RunState
from relay.core.runs.opening import Pair, absent, begins_by_itself, open_run, require_run
from relay.core.settings.config import Resolved
from relay.people.account import Account
from storage.base import StoreError
from storage.kinds import lacking
from storage.mounts import evaporates


@dataclass
class Opened:
    """An open store and the settings."""

    app: App
    resolved: Resolved[BaseModel]
    stores: Pair
    state: RunState | None
    """The run's state at that time; None if it has not begun."""
    person: Account | None = None
    """The account that trains here, once it is enrolled."""
    new: bool = False
    """Whether it was registered by this notebook."""

    @property
    def machine(self) -> Machine:
        """The machine that this notebook runs on."""
        return self.app.machine

    def enrol(self, name: str, account: str = "") -> str:
        """Return the id of the account of person `name`, here or `account`; registers it if it is new.

        Raises AnotherMachine, AnotherOwner, OneTooMany (77), IdTaken, NotItsPerson (78).
        """
        with store_errors(self.stores.ledger):
            known = writing_accounts(self.app, self.resolved)
            self.person, self.new = enrolled(known, self.machine.provider, name, account)
        return self.person.id

    def text(self) -> str:
        """Return account, run, store and names of secrets as text; never a secret's value."""
        settings, state = self.resolved.settings, self.state
        where = self.resolved.origins.get("storage.url", "no setting: a folder here")
        found = ", ".join(sorted(set(self.app.chain.found) - {"RELAY_STORE"}))
        progress = f"at step {state.step:,} of {state.target_steps:,}" if state else self._not_begun()
        lines = [
            f"Account: {self._who()}",
            f"Run: {settings.run}, {progress}",
            f"Store: {self.stores.ledger.address} ({where})",
        ]
        lines += [f"Secrets: {found} ({self.app.chain.title})"] if found else []
        return redact("\n".join([*map(printable, lines), *self.app.chain.advice]), self.app.secrets)

    def _who(self) -> str:
        person, settings = self.person, self.resolved.settings
        if person is None:
            return settings.account
        if self.new:
            return f"{person.id} ({person.label}), owner {person.owner}: registered now"
        return (
            f"{person.id} ({person.label}), owner {person.owner}: registered before. If that is not you, type a longer "
            f"name in YOUR_NAME and run this cell again"
        )

    def _not_begun(self) -> str:
        """Return the other runs of the store too: the name may be mistyped."""
        settings = self.resolved.settings
        there = missing(
            settings.project, settings.run, self.stores.registry().runs(), absent(self.stores.ledger.address)
        )
        return f"not begun: this session begins it ({there})"

    def unsent(self) -> list[str]:
        """Return everything that would be lost with this machine, one sentence each.

        These are a store on its own disk, a running session, and checkpoints of any run here that the store may lack
        or that cannot be compared with it. Reads every file of a checkpoint that may be unsent.
        """
        return [redact(line, self.app.secrets) for line in (*self._vanishing(), *self._running(), *self._waiting())]

    def _vanishing(self) -> Iterator[str]:
        for address in sorted({self.stores.ledger.address, self.stores.checkpoints.address}):
            parts = urlsplit(address)
            if parts.scheme == "file" and evaporates(unquote(parts.path)):
                yield f"the store is a folder on this machine, {unquote(parts.path)}, and would be lost with it."

    def _running(self) -> Iterator[str]:
        for other in MachineSessions(FileHostLocks(default_folder()), self.app.root).living():
            yield f"a session still runs here (process {other.who.pid})."

    def _waiting(self) -> Iterator[str]:
        sync = self.resolved.path(self.resolved.settings.sync_dir)
        for home in sorted(path for path in sync.glob("*/*") if any(path.rglob("step_*.json"))):
            try:
                packed = self._pushable(home)
            except (RelayError, StoreError) as error:
                yield f"checkpoints in {home} cannot be compared with the store: {explain(error)[1]}"
                continue
            if packed:
                yield f"{packed}; to send it, run the training cell again."

    def _pushable(self, home: Path) -> str:
        project, run = home.parent.name, home.name
        opened = open_run(self.stores, project, run)
        if opened is None:
            return f"checkpoints of {project}/{run}, which this store does not hold, are in {home} only"
        state = opened.view.state
        packed = local_folder_of(home, state.run_id).pushable(state)
        return f"step {packed.step:,} of {run} is in {home} only" if packed else ""


def open_here(folder: Path, environ: MutableMapping[str, str], trial: bool, install: Callable[[], None]) -> Opened:
    """Merge the settings, read the secrets and open the store; secrets go into `environ`, for the commands.

    `install` is called if the store's library is missing. Raises RelayError with the fix.
    """
    app = App(plugin=default_plugin(), models=MODELS, environ=dict(environ), cwd=folder, export=environ.update)
    try:
        resolved: Resolved[Any] = app.settle()
        if not resolved.addresses and not trial:
            raise BadConfig(_nowhere(app))
        if lacks(resolved):
            install()
            importlib.invalidate_caches()
        stores = open_stores(app, resolved, read_only=True)
        settings = resolved.settings
        opening = open_run if begins_by_itself(stores.ledger) else require_run
        opened = opening(stores, settings.project, settings.run)
    except (RelayError, StoreError) as error:
        raise _with_secrets_advice(app, error) from error
    return Opened(app, resolved, stores, opened.view.state if opened else None)


def lacks(resolved: Resolved[Any]) -> bool:
    """Return whether a store's library is not installed."""
    return lacking(urlsplit(url).scheme for url in (resolved.ledger_url, resolved.checkpoint_url))


def _nowhere(app: App) -> str:
    how = "" if app.chain.advice else f" {_how_to_set_it(app)}"
    return f"No store is set, so the run would be lost with this machine.{how} For a trial, tick TRIAL in cell 2."


def _how_to_set_it(app: App) -> str:
    """Return how to set the store's address; the chain reports nothing about a secret that does not exist."""
    if app.chain.vault is None:
        return "Type its address in STORE of cell 2, or set the variable RELAY_STORE."
    try:
        app.chain.vault.get("RELAY_STORE")
    except Refused as refused:
        return refused.advice
    return "The secret RELAY_STORE exists now: run this cell again."


def _with_secrets_advice(app: App, error: RelayError | StoreError) -> RelayError:
    """Return the error, with the fixes for secrets that could not be read."""
    text = explain(error)[1]
    missing = [line for line in dict.fromkeys(app.chain.advice) if line not in text]
    return RelayError(printable(redact(" ".join([text, *missing]), app.secrets)))
