"""Reads missing settings from a notebook's secrets (Colab, Kaggle); shows names, never values.

Order: the environment, the notebook's secrets, then the storage libraries' own credential chains.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol
from urllib.parse import urlsplit

from relay.app.machine.env import Provider
from relay.app.messages.advice import in_a_cell
from storage.kinds import Group, credentials
from storage.packages import IN_CELLS

ADDRESSES = ("RELAY_STORE", "RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE")
OWNER, CACHE_KEY, WANDB_KEY = "RELAY_OWNER", "RELAY_CACHE_KEY", "WANDB_API_KEY"
ASKED = IN_CELLS
"""Set for commands that a notebook's cells run: the kernel has read the secrets already and passes them on."""

NO_KERNEL: tuple[type[Exception], ...] = (AttributeError, RuntimeError, OSError)
"""Errors of Colab's library without an answer; they differ between versions."""


class Refused(Exception):
    """A secret cannot be read."""

    def __init__(self, advice: str, *, silent: bool = False, over: bool = False) -> None:
        """`silent`: it does not exist, which may be intended. `over`: no other secret can be read either."""
        super().__init__(advice)
        self.advice, self.silent, self.over = advice, silent, over


class Vault(Protocol):
    """A notebook's secrets."""

    title: str

    def get(self, name: str) -> str:
        """The value. Raises Refused."""
        ...


class Colab:
    """`google.colab.userdata`, which only the notebook's own process can ask."""

    title = "Colab's secrets"

    def get(self, name: str) -> str:
        """The value. Raises Refused with what to click."""
        if not _in_notebook():
            raise Refused(
                f"Colab's secrets are readable in the notebook only, not from a command behind `!`. Run "
                f"`{in_a_cell('config show')}` in a cell first, which passes them on.",
                over=True,
            )
        from google.colab import userdata

        try:
            return _text(userdata.get(name))
        except _errors(userdata, "SecretNotFoundError") as error:
            text = f"Colab has no secret {name}. Add it under the key in the left margin, or set the variable {name}."
            raise Refused(text, silent=True) from error
        except _errors(userdata, "NotebookAccessError") as error:
            text = f"This notebook has no access to the secret {name}. Switch it on under the key in the left margin."
            raise Refused(text) from error
        except _errors(userdata, "TimeoutException") + NO_KERNEL as error:
            text = (
                "Colab's secrets do not answer. They need a notebook that is open in Colab's own page, not in another "
                "editor or a scheduled copy. Set the variables in a cell instead (os.environ)."
            )
            raise Refused(text, over=True) from error


class Kaggle:
    """`kaggle_secrets.UserSecretsClient`, which asks Kaggle over the internet."""

    title = "Kaggle's secrets"

    def get(self, name: str) -> str:
        """The value. Raises Refused with what to click."""
        try:
            import kaggle_secrets
        except ImportError as error:
            raise Refused("This Python has no kaggle_secrets. Use the notebook's own Python.", over=True) from error
        try:
            return _text(kaggle_secrets.UserSecretsClient().get_secret(name))
        except _errors(kaggle_secrets, "BackendError", "NotFoundError") as error:
            text = (
                f"No secret {name} is attached to this notebook. Tick it in the editor under Add-ons > Secrets (a "
                f"copied or pushed notebook has none attached)."
            )
            raise Refused(text, silent=True) from error
        except _errors(kaggle_secrets, "CredentialError") as error:
            text = "Kaggle does not let this session read secrets. Open the notebook in the editor and start it there."
            raise Refused(text, over=True) from error
        except OSError as error:
            text = "Kaggle's secrets do not answer. Switch the internet on: Settings > Internet (needs a phone number)."
            raise Refused(text, over=True) from error
        except ValueError as error:
            raise Refused("Kaggle's secrets gave an invalid answer. Try again later.", over=True) from error


def vault_of(provider: Provider) -> Vault | None:
    """The secrets of this provider's notebooks; None for other machines."""
    vaults: dict[Provider, Vault] = {"colab": Colab(), "kaggle": Kaggle()}
    return vaults.get(provider)


@dataclass
class Chain:
    """The secrets that one process has asked for; each name is asked for once."""

    vault: Vault | None
    found: dict[str, str] = field(default_factory=dict, repr=False)
    problems: list[str] = field(default_factory=list)
    """Fixes for secrets that could not be read, one or two sentences each."""
    absent: list[str] = field(default_factory=list)
    """The same for secrets that do not exist."""
    _asked: set[str] = field(default_factory=set)
    _over: bool = False

    def addresses(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The store's address if the environment has none; new names only."""
        return self._taken(lambda: [name for name in ADDRESSES if not environ.get(name) and self._take(name)])

    def credentials(self, environ: Mapping[str, str], urls: Iterable[str], extras: Iterable[str]) -> dict[str, str]:
        """Credentials for these addresses that the environment lacks, and the extras; new names only."""
        needed = credentials(urlsplit(url).scheme for url in urls)

        def take() -> None:
            for groups in needed.values():
                self._let_in(environ, groups)
            for name in extras if needed else ():
                if not environ.get(name):
                    self._take(name, wanted=False)

        return self._taken(take)

    @property
    def advice(self) -> list[str]:
        """Fixes for everything that is missing."""
        return [*self.problems, *self.absent]

    @property
    def title(self) -> str:
        """Name of the service that holds the secrets; "" without one."""
        return self.vault.title if self.vault else ""

    def _let_in(self, environ: Mapping[str, str], groups: Iterable[Group]) -> None:
        """Take the first complete group; none if the environment has a part of any."""
        if any(environ.get(name) for group in groups for name in (*group.needed, *group.instead)):
            return
        absent: list[str] = []
        for group in groups:
            if all(self._take(name, absent) for name in group.needed):
                for name in group.optional:
                    self._take(name)
                return
            for name in group.needed:
                self.found.pop(name, None)  # half a pair gives no access, and hides the libraries' own chains
        self.absent += absent

    def _taken(self, take: Callable[[], object]) -> dict[str, str]:
        before = set(self.found)
        if self.vault is not None:
            take()
        return {name: value for name, value in self.found.items() if name not in before}

    def _take(self, name: str, absent: list[str] | None = None, wanted: bool = True) -> bool:
        """Ask for one secret; returns whether it is known now. Without `wanted` its absence is not reported."""
        if name in self._asked or self._over or self.vault is None:
            return name in self.found
        self._asked.add(name)
        try:
            value = self.vault.get(name).strip()
        except Refused as refused:
            self._over = refused.over
            heap = self.problems if not refused.silent else absent
            if heap is not None and wanted:
                heap.append(refused.advice)
            return False
        if not value or "\0" in value or not _encodable(value):
            self.problems.append(f"The secret {name} is empty or not text. Enter it again.")
            return False
        self.found[name] = value
        return True


def _text(value: object) -> str:
    """The value as text; "" for None, the value of a secret that was created but not filled in."""
    return "" if value is None else str(value)


def _encodable(value: str) -> bool:
    """Whether an environment can hold it; half of a surrogate pair is not a character."""
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _in_notebook() -> bool:
    """Whether this process is the notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return shell() is not None


def _errors(module: ModuleType, *names: str) -> tuple[type[Exception], ...]:
    """The exception classes that this version of the module has."""
    found = (getattr(module, name, None) for name in names)
    return tuple(item for item in found if isinstance(item, type) and issubclass(item, Exception))
