"""`accounts list` and `accounts show`: who there is, in which state, with what left; they write nothing."""

from __future__ import annotations

from typing import Any

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import speaks_utf8
from relay.app.commands.people.fields import AccountId
from relay.app.messages.wording import duration, iso, printable
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.accountstatus import Told, given_words, state_words, work_document, work_pairs
from relay.app.views.accounttable import facts, hours_left, listing, row_document
from relay.people.account import Account
from relay.people.accounts import row_of
from relay.people.policy import Provider
from relay.people.quota import reset_of
from relay.people.zones import local

SESSIONS_SHOWN = 10


@subcommand("run config redact")
def list_accounts(call: Call) -> Answer:
    """All registered accounts: state, until when, hours left and how that is known, reset in your own time zone."""
    view = call.view()
    shown = [row_document(row, view.now) for row in view.accounts]
    text = listing(view.accounts, view.now, terminal_width(), speaks_utf8())
    return Answer({"schema": "relay.accounts/1", "now": iso(view.now), "accounts": shown}, text)


@subcommand("run config")
def show(account: AccountId, call: Call) -> Answer:
    """All that is known of one account: fields, state, hours, sessions, GPUs, and what its provider's record says."""
    seen = call.overview()
    registry_row = row_of(seen.known.registry.read(), account, seen.view.store)
    found, row = seen.known.get(account), next(row for row in seen.view.accounts if row.id == account)
    provider = seen.known.providers.named(found.provider)
    told = Told(row, seen.view, seen.runs)
    whole = {
        "schema": "relay.account/1",
        **row_document(row, seen.view.now),
        "contact": printable(found.contact or "") or None,
        "reset": str(reset_of(found, provider) or "") or None,
        "competitions": sorted(found.competitions),
        "declared": registry_row.state,
        **work_document(told, SESSIONS_SHOWN),
        "record": _record(provider, seen.view.now),
    }
    return Answer(whole, text(told, found, provider))


def text(told: Told, found: Account, provider: Provider) -> str:
    """For people."""
    row, now = told.row, told.view.now
    resets = local(row.quota.resets_at) if row.quota else ""
    pairs = [
        ("owner", row.owner),
        ("provider", ", ".join(filter(None, [provider.title, row.tier and f"tier {row.tier}", row.gpu]))),
        ("state", state_words(row)),
        ("confirmed", "" if row.confirmed else f"not yet for run {told.view.run}: see `accounts confirm`"),
        ("hours left", hours_left(row.quota, now)),
        ("reset", " = ".join(filter(None, [str(reset_of(found, provider) or ""), resets]))),
        ("session", f"at most {duration(60 * row.session_minutes)}" if row.session_minutes else ""),
        ("awake", " ".join(filter(None, [row.availability, row.zone]))),
        ("contact", found.contact or ""),
        ("competitions", ", ".join(sorted(found.competitions))),
        ("given", given_words(row)),
        *work_pairs(told, SESSIONS_SHOWN),
        ("rules", provider.cited),
        ("", provider.stale(now)),
    ]
    return "\n".join([f"{row.id}: {printable(row.label)}", *facts(pairs, terminal_width())])


def _record(provider: Provider, now: float) -> dict[str, Any]:
    return {
        "provider": provider.name,
        "source": provider.source,
        "url": provider.url,
        "as_of": provider.as_of.isoformat(),
        "evidence": provider.evidence,
        "accounts_per_owner": provider.accounts_per_owner,
        "may_fill_hours": provider.may_fill_hours,
        "stale": bool(provider.stale(now)),
    }
