"""The file in which `login` keeps a store's credentials on this machine, and its use by later commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from relay.core.errors import BadConfig
from relay.core.folders import config_folder
from storage.kinds import credentials

_LIMIT = 100_000


def path_of(environ: Mapping[str, str], scheme: str) -> Path:
    """The file for stores of this scheme. Raises BadConfig (78) without a home folder."""
    folder = config_folder(environ)
    if folder is None:
        raise BadConfig("This user has no home folder to keep a login in. Set XDG_CONFIG_HOME, or use --file.")
    return folder / f"login-{scheme}.json"


def keep(path: Path, variables: Mapping[str, str]) -> None:
    """Write the file with mode 600, in place of an earlier one; a reader never sees half of it. Raises BadConfig."""
    whole = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            whole.unlink()
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(dict(variables), indent=2) + "\n")
        whole.replace(path)
    except OSError as error:
        with suppress(OSError):
            whole.unlink()
        raise BadConfig(f"Cannot write {path}: {error.strerror}. Choose another file with --file.") from error


def forget(path: Path) -> bool:
    """Remove the file; returns whether there was one. Raises BadConfig."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BadConfig(f"Cannot remove {path}: {error.strerror}.") from error
    return True


def kept(environ: Mapping[str, str], urls: Iterable[str]) -> dict[str, str]:
    """The variables of the files for these addresses, where the environment has no part of such credentials.

    Raises BadConfig (78) for a file that `login` did not write.
    """
    found: dict[str, str] = {}
    for scheme, groups in credentials(urlsplit(url).scheme for url in urls).items():
        names = {name for group in groups for name in (*group.needed, *group.instead)}
        if not any(environ.get(name) for name in names):
            found |= _read(path_of(environ, scheme), names) if config_folder(environ) else {}
    return found


def _read(path: Path, names: set[str]) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8") as file:
            told = json.loads(file.read(_LIMIT))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadConfig(f"Cannot read {path}: {error.strerror}. Correct its permissions, or remove it.") from error
    except (ValueError, RecursionError):
        told = None
    valid = isinstance(told, dict) and set(told) <= names
    if not valid or not all(isinstance(value, str) and value and "\0" not in value for value in told.values()):
        raise BadConfig(f"{path} does not hold what `login` writes. Remove it, and sign in again.")
    return dict(told)
