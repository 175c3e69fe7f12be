"""What people read of an account's state: why it is in it, and what ends that."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.people.accountstate import Why
from relay.people.status import AccountRow


def why_text(row: AccountRow) -> str:
    """Why the account is in its state, and what ends it; empty for one that is ready."""
    return "; ".join(part for part in why_parts(row) if part)


def why_parts(row: AccountRow) -> tuple[str, str]:
    """The same in two parts."""
    match row.why:
        case Why.LEASE:
            return "it holds a lease", ""
        case Why.UNREADABLE:
            again = command(f"register {row.id} LABEL")
            return (
                "its object is missing or was changed",
                f"put it back with `{again}`, or from a backup of the storage",
            )
        case Why.DECLARED:
            if row.until is not None:
                return "declared", "it ends by itself"
            if row.state == "forgotten":
                return "declared", "only its person may register it again"
            return "declared", f"it ends with `{command(f'accounts mark {row.id} ready')}`"
        case Why.UNCONFIRMED:
            word = f"its person may say so with `{command(f'accounts confirm {row.id}')}`"
            return "its person has not confirmed to be a co-author of this run", word
        case Why.USED:
            source, resets = (row.quota.source, row.quota.resets_at) if row.quota else ("", None)
            more = f"`{command(f'accounts quota {row.id} --left')} HOURS` says that there are more"
            return f"its hours are used ({source})", "they come back at the reset" if resets else more
    return "", ""
