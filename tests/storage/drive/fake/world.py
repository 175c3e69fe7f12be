"""Users, OAuth clients, tokens and what a token lets one see of the fake Drive; knows no routes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.storage.drive.fake import answers
from tests.storage.drive.fake.faults import Fault
from tests.storage.drive.fake.schema import SCOPE
from tests.storage.drive.fake.tree import FOLDER, File, Tree, at_least
from tests.storage.drive.fake.uploads import Uploads
from tests.storage.fakes.faults import Faults

CLIENT = "101010101010-relay.apps.googleusercontent.com"
SECRET = "GOCSPX-not-a-secret"
WHOLE = {SCOPE + name for name in ("drive", "drive.readonly", "drive.metadata", "drive.metadata.readonly")}
"""Scopes that show every file of the user; drive.file shows what the client made."""


@dataclass
class Account:
    """A user."""

    name: str
    root: str
    quota: int = 15 << 30
    service: bool = False
    """Whether this is a service account, which owns no storage."""
    faults: Faults[Fault] = field(default_factory=Faults)
    counts: Counter[str] = field(default_factory=Counter)
    received: int = 0
    """Bytes of media that were taken."""
    latency: float = 0.0
    """Seconds before each answer."""
    rate: float = 0.0
    """Bytes a second of one connection; 0 is as fast as it goes."""
    list_lag: float = 0.0
    """Seconds that lists lag behind."""
    name_lag: float = 0.0
    """Seconds that searches by name lag behind."""
    lists_stand: int | None = None
    """The number of changes after which lists show nothing more."""
    page_cap: int = 0
    """A list's page is no longer than this, whatever was asked."""
    incomplete: bool = False
    """Whether lists leave out every second file and say incompleteSearch."""
    token_life: int = 3599

    @property
    def email(self) -> str:
        return f"{self.name}@{'relay.iam.gserviceaccount.com' if self.service else 'example.com'}"

    @property
    def permission_id(self) -> str:
        return str(int(hashlib.sha256(self.name.encode()).hexdigest()[:15], 16)).zfill(20)

    @cached_property
    def key(self) -> rsa.RSAPrivateKey:
        """What a service account signs with."""
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def pem(self) -> str:
        """The private key as its JSON file holds it."""
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


@dataclass
class Grant:
    """What a user allowed a client to do; lives on in a refresh token."""

    account: Account
    client: str
    scopes: tuple[str, ...]
    revoked: bool = False


@dataclass
class SharedDrive:
    """A shared drive; its root folder has its id and holds its members as permissions."""

    id: str
    name: str
    created: float


class World:
    """Everything there is. Its lock is held while anything in it is read or changed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}
        self.clients = {CLIENT: SECRET}
        self.refresh: dict[str, Grant] = {}
        self.tokens: dict[str, tuple[Grant, float]] = {}
        self.consents: dict[str, tuple[Grant, str, str]] = {}
        """By code: the grant, the challenge of PKCE ("" without), the redirect. A code is good once."""
        self.tree = Tree()
        self.drives: dict[str, SharedDrive] = {}
        self.uploads = Uploads()
        self.pages: dict[str, list[File]] = {}
        self.ids = "anyone"
        """Who may use a generated id: "anyone", or only the "owner" who was given it."""
        self.sees = "client"
        """What drive.file shows: files this client made for any "client" user, or only those of the same "user"."""
        self.race = "finish"
        """When a resumable upload to an id that is taken learns it: at the "start" too, or only at the "finish"."""
        self.ahead = 0.0
        """Seconds that this service's clock is ahead of the machine's."""

    def now(self) -> float:
        return time.time() + self.ahead

    def account(self, name: str, service: bool = False) -> Account:
        """The account of a name, made at its first mention, with an empty My Drive."""
        if name not in self.accounts:
            account = self.accounts[name] = Account(name, self.tree.new_id("0A", 19), service=service)
            now = self.now()
            root = File(account.root, "My Drive", FOLDER, account.email, None, (), "", account.email, now, now, 1)
            self.tree.put(root)
        return self.accounts[name]

    def by_email(self, email: str) -> Account | None:
        return next((account for account in self.accounts.values() if account.email == email), None)

    def grant(self, account: Account, client: str, scopes: tuple[str, ...]) -> tuple[str, str]:
        """A refresh token and an access token that does not expire by itself."""
        grant = Grant(account, client, scopes)
        refresh = f"1//0{account.name}-{len(self.refresh):06d}-refresh"
        self.clients.setdefault(client, SECRET)
        self.refresh[refresh] = grant
        return refresh, self.token(grant, float("inf"))

    def token(self, grant: Grant, life: float) -> str:
        """A fresh access token of a grant."""
        token = f"ya29.{grant.account.name}-{len(self.tokens):08d}-access"
        self.tokens[token] = (grant, self.now() + life)
        return token

    def of_token(self, token: str) -> Grant | None:
        """Whose token it is; None if nobody's, or not any more."""
        grant, until = self.tokens.get(token, (None, 0.0))
        return grant if grant and not grant.revoked and self.now() < until else None

    def used(self, account: Account, trashed: bool = False) -> int:
        """Bytes that count against an account: of every file it owns, in the trash or not."""
        owned = (file for file in self.tree.files.values() if file.owner == account.email)
        return sum(file.size for file in owned if not trashed or self.tree.is_trashed(file))

    def check_room(self, owner: str | None, more: int) -> None:
        """Raises Refused if a user's storage cannot take so many more bytes; a shared drive always can."""
        account = self.by_email(owner) if owner else None
        if account and account.service:
            raise answers.service_account_quota()
        if account and more > 0 and self.used(account) + more > account.quota:
            raise answers.quota_exceeded()


@dataclass(frozen=True)
class Access:
    """A grant at work: who asks, by which client, with which scopes."""

    world: World
    grant: Grant
    all_drives: bool
    """Whether the request said supportsAllDrives."""

    @property
    def user(self) -> str:
        return self.grant.account.email

    @property
    def tree(self) -> Tree:
        return self.world.tree

    def by_scope(self, file: File) -> bool:
        """Whether the token's scopes show a file, if the user may see it."""
        if WHOLE & set(self.grant.scopes):
            return True
        return file.client == self.grant.client and (self.world.sees == "client" or file.maker == self.user)

    def sees(self, file: File) -> bool:
        """Whether a read finds a file, shared drives aside."""
        return self.tree.role(self.user, file) is not None and self.by_scope(file)

    def resolve(self, file_id: str) -> str:
        """An id, for which `root` may stand."""
        return self.grant.account.root if file_id == "root" else file_id

    def find(self, file_id: str) -> File:
        """The file of an id. Raises Refused if the asker cannot see it."""
        file = self.tree.files.get(self.resolve(file_id))
        if file is None or not self.sees(file) or (file.drive and not self.all_drives):
            raise answers.not_found(file_id)
        return file

    def change(self, file_id: str, least: str = "writer", in_drive: str = "writer") -> File:
        """The file of an id, if the asker may change it. Raises Refused."""
        file = self.tree.files.get(self.resolve(file_id))
        role = self.tree.role(self.user, file) if file else None
        if file and role and not self.by_scope(file) and (not file.drive or self.all_drives):
            raise answers.app_not_authorized(self.grant.client, file_id)
        file = self.find(file_id)
        if not at_least(role, in_drive if file.drive else least):
            raise answers.no_permission(file_id)
        return file

    def parent(self, file_id: str) -> File:
        """A folder in which the asker may put something. Raises Refused."""
        folder = self.tree.files.get(self.resolve(file_id))
        role = self.tree.role(self.user, folder) if folder else None
        if folder is None or role is None or (folder.drive and not self.all_drives):
            raise answers.not_found(file_id)
        if not at_least(role, "writer") or not (self.by_scope(folder) or folder.id == self.grant.account.root):
            raise answers.no_parent_permission()
        if folder.mime != FOLDER:
            raise answers.Refused(403, "parentNotAFolder", "The specified parent is not a folder.")
        return folder


def scopes(names: Any) -> tuple[str, ...]:
    """Scopes by their last parts."""
    return tuple(name if "/" in name else SCOPE + name for name in names)
