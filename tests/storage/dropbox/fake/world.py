"""Accounts, tokens and who sees which namespace under which path on the fake Dropbox; knows no routes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dropbox import common, files
from dropbox.auth import AuthError, TokenScopeError

from tests.storage.dropbox.fake.faults import Fault
from tests.storage.dropbox.fake.tree import Namespace, Refused
from tests.storage.dropbox.fake.uploads import Uploads
from tests.storage.fakes.faults import Faults

SCOPES = ("files.metadata.read", "files.content.read", "files.content.write", "account_info.read")


class Unauthorized(Exception):
    """401 with an AuthError."""

    def __init__(self, error: object) -> None:
        super().__init__(error)
        self.error = error


class NoSuchRoot(Exception):
    """422 with a PathRootError."""


@dataclass
class Account:
    """A person with an app connected; `home` is what the app sees as its root (the app folder, or all of Dropbox)."""

    name: str
    home: Namespace
    quota: int = 2 << 30
    scopes: tuple[str, ...] = SCOPES
    mounts: dict[str, str] = field(default_factory=dict)
    """Namespace id by the lower-case path at which a shared folder is mounted."""
    shared: set[str] = field(default_factory=set)
    faults: Faults[Fault] = field(default_factory=Faults)
    counts: Counter[str] = field(default_factory=Counter)
    received: int = 0
    """Bytes of uploaded content that was taken."""
    latency: float = 0.0
    """Seconds before each answer."""
    rate: float = 0.0
    """Bytes a second of one connection; 0 is as fast as it goes."""
    list_lag: float = 0.0
    """Seconds that lists lag behind."""
    token_life: int = 14400
    revoked: bool = False

    @property
    def refresh_token(self) -> str:
        return f"refresh-{self.name}-0123456789"

    @property
    def app_key(self) -> str:
        return f"key-{self.name}"


@dataclass(frozen=True)
class Place:
    """A path inside a namespace, and how the asker sees the namespace's root (None: not mounted)."""

    namespace: Namespace
    path: str
    root: str | None

    def shown(self, path: str) -> str | None:
        return None if self.root is None else self.root + path


class World:
    """Everything there is. Its lock is held while anything in it is read or changed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.tokens: dict[str, tuple[str, float]] = {}
        self.consents: dict[str, tuple[Account, str, tuple[str, ...]]] = {}
        """By code: the account, the challenge of PKCE, the scopes. A code is good once."""
        self.uploads = Uploads()
        self.cursors: dict[str, Any] = {}
        self.ahead = 0.0
        """Seconds that this service's clock is ahead of the machine's."""

    def now(self) -> float:
        return time.time() + self.ahead

    def namespace(self, id_: str) -> Namespace:
        return self.namespaces.setdefault(id_, Namespace(id_))

    def account(self, name: str) -> Account:
        """The account of a name, made at its first mention; its static token never expires."""
        if name not in self.accounts:
            self.accounts[name] = Account(name, self.namespace(str(1000 + len(self.accounts))))
            self.tokens[f"sl.static-{name}-0123456789"] = (name, float("inf"))
        return self.accounts[name]

    def grant(self, account: Account) -> tuple[str, int]:
        """A fresh access token and its life in seconds."""
        token = f"sl.fresh-{account.name}-{len(self.tokens):08d}"
        self.tokens[token] = (account.name, self.now() + account.token_life)
        return token, account.token_life

    def of_token(self, token: str, scope: str) -> Account:
        """Whose token it is. Raises Unauthorized."""
        name, until = self.tokens.get(token, ("", 0.0))
        if not name or self.accounts[name].revoked:
            raise Unauthorized(AuthError.invalid_access_token)
        if self.now() >= until:
            raise Unauthorized(AuthError.expired_access_token)
        account = self.accounts[name]
        if scope not in account.scopes:
            raise Unauthorized(AuthError.missing_scope(TokenScopeError(required_scope=scope)))
        return account

    def used(self, account: Account) -> int:
        """Bytes that count against an account: its own, and every folder shared with it."""
        return account.home.size + sum(self.namespaces[id_].size for id_ in account.shared)


def resolve(world: World, account: Account, root: common.PathRoot | None, path: str) -> Place:
    """Where a path of a request lies. Raises Refused(LookupError) or NoSuchRoot."""
    visible = {account.home.id} | account.shared
    mounted = {id_: at for at, id_ in account.mounts.items()} | {account.home.id: ""}
    base = account.home
    if root is not None and root.is_namespace_id():
        if root.get_namespace_id() not in visible:
            raise NoSuchRoot
        base = world.namespace(root.get_namespace_id())
        mounted = {base.id: ""}
    if path.startswith("id:"):
        return _by_id(world, visible, mounted, path)
    if path.startswith("ns:"):
        id_, slash, rest = path.removeprefix("ns:").partition("/")
        if id_ not in visible:
            raise Refused(files.LookupError.not_found)
        return Place(world.namespace(id_), slash + rest, mounted.get(id_))
    if path.endswith("/") or "//" in path:
        raise Refused(files.LookupError.malformed_path(None))
    for at, id_ in account.mounts.items() if base is account.home else ():
        if path.lower() == at or path.lower().startswith(at + "/"):
            return Place(world.namespace(id_), path[len(at) :], at)
    return Place(base, path, "")


def _by_id(world: World, visible: set[str], mounted: dict[str, str], id_: str) -> Place:
    for namespace in (world.namespace(n) for n in sorted(visible)):
        path = namespace.path_of(id_)
        if path is not None:
            return Place(namespace, path, mounted.get(namespace.id))
    raise Refused(files.LookupError.not_found)
