"""Infers the owner of an account on this machine: login name, environment, or a random name stored here."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from relay.core.clock import Runtime
from relay.core.folders import config_folder
from relay.people.owners import Inference, infer, machine_owner, unnamed
from relay.people.policy import Providers


def infer_account(
    label: str,
    owner: str | None,
    provider: str | None,
    environ: Mapping[str, str],
    runtime: Runtime,
    providers: Providers,
    advice: str,
) -> Inference:
    """Owner and provider of an account; this machine's random name, with the advice, if no source names a person."""
    found = infer(label, owner, provider, environ, login_name(), providers)
    if found.owner is not None:
        return found
    folder = config_folder(environ)
    if folder is not None:
        with suppress(OSError):
            return replace(found, owner=machine_owner(folder, runtime), owner_from=f"this machine; {advice}")
    where = f"nothing, and this machine cannot store a name; {advice}"
    return replace(found, owner=unnamed(runtime), owner_from=where)


def login_name() -> str:
    """The login name; empty if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
