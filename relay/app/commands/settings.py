"""`config show`: prints every setting with its value and origin."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, tell_secrets
from relay.app.commands.joining import joined_if_there
from relay.app.redact import MASK, SECRET_NAME, redact
from relay.core.settings.config import Resolved

NOT_SET = "(not set"
"""Start of the value of an unset storage.url; multi_account_workflow.sh searches for it."""
Origin = Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")]


@subcommand("overrides run account config")
def show(call: Call, origin: Origin = False) -> Answer:
    """Print every setting of a session of this run; --origin adds its source. Secrets are masked."""
    resolved = call.settle(joins=True)
    tell_secrets(call.app)
    joined = joined_if_there(call.app, resolved)
    resolved = joined.resolved if joined else resolved
    return Answer(settings_document(resolved), settings_text(resolved, origin) + secrets_text(call.app, origin))


def settings_document(resolved: Resolved[Any]) -> dict[str, Any]:
    """Return relay.config/1."""
    rows = [{"key": k, "value": masked(k, v), "origin": redact(where)} for k, v, where in resolved.values()]
    stores = {"ledger_store": redact(resolved.ledger_url), "checkpoint_store": redact(resolved.checkpoint_url)}
    return {"schema": "relay.config/1", "folder": str(resolved.folder), "settings": rows, **stores}


def settings_text(resolved: Resolved[Any], origin: bool) -> str:
    """Return one line for each setting."""
    lines = []
    for key, value, where in resolved.values():
        shown = _unset(key, resolved) if value is None else str(masked(key, value))
        lines.append(f"{key} = {shown}" + (f"    # {redact(where)}" if origin else ""))
    return "\n".join(lines)


def secrets_text(app: App, origin: bool) -> str:
    """Return the names of the secrets that a notebook provided, never their values."""
    return f"\n# {app.chain.title} gave {', '.join(sorted(app.chain.found))}" if origin and app.chain.found else ""


def _unset(key: str, resolved: Resolved[Any]) -> str:
    """Return the value of an unset setting: empty, or for storage.url the folder that is used instead."""
    return f"{NOT_SET}: {redact(resolved.default_url)})" if key == "storage.url" else ""


def masked(key: str, value: Any) -> Any:
    """Return the value with secrets masked."""
    if SECRET_NAME.search(key):
        return MASK
    return redact(value) if isinstance(value, str) else value
