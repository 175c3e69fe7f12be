"""Explains an account's state: its reason, and how it ends."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.people.accountstate import Why
from relay.people.status import AccountRow


def why_text(row: AccountRow) -> str:
    """Why the account is in its state, and how that ends. Empty for a ready account."""
    return "; ".join(part for part in why_parts(row) if part)


def why_parts(row: AccountRow) -> tuple[str, str]:
    """(reason, how it ends), each possibly empty."""
    match row.why:
        case Why.LEASE:
            return "it holds a lease", ""
        case Why.UNREADABLE:
            again = command(f"register {row.id} LABEL")
            return (
                "its object is missing or was changed",
                f"register it again with `{again}`, or restore it from a backup of the storage",
            )
        case Why.DECLARED:
            if row.until is not None:
                return "declared", "it ends by itself"
            if row.state == "forgotten":
                return "declared", "only its owner may register it again"
            return "declared", f"it ends with `{command(f'accounts mark {row.id} ready')}`"
        case Why.UNCONFIRMED:
            confirm = f"its owner can confirm with `{command(f'accounts confirm {row.id}')}`"
            return "its owner has not confirmed to be a co-author of this run", confirm
        case Why.USED:
            source, resets = (row.quota.source, row.quota.resets_at) if row.quota else ("", None)
            more = f"enter more with `{command(f'accounts quota {row.id} --left')} HOURS`"
            return f"its hours are used ({source})", "they return at the reset" if resets else more
    return "", ""
