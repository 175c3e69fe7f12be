"""A session's account before and after the run is there: may it train, who is behind it, its person's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay.accounts import Accounts
from relay.clock import Runtime
from relay.errors import BadConfig
from relay.people.account import confirmed
from relay.policy import Provider
from relay.sessions.admission import Visit, admit
from relay.settings.origins import COAUTHOR


def ask(visit: Visit, known: Accounts, runtime: Runtime, tell: Callable[[str], None]) -> None:
    """Tell what the person must know. Raises PolicyRefused (77) before anything is written or loaded."""
    for line in admit(visit, known.find(visit.account), known.providers, runtime.wall()):
        tell(line)


def enter(visit: Visit, run_id: str, known: Accounts) -> None:
    """Write down, once each, under whom the account trains and its person's word for this run."""
    known.claim(visit.account)
    found = known.get(visit.account)
    provider = known.providers.named(found.provider)
    if visit.coauthor and provider.coauthor and not found.has_confirmed(run_id, provider.clause_digest):
        confirm(known, visit.account, run_id, provider)


def confirm(known: Accounts, account: str, run_id: str, provider: Provider) -> float:
    """Keep its person's word for a run against the provider's clause; when that was (store's clock)."""
    now = known.now()
    known.change(account, lambda old: confirmed(old, run_id, provider.clause_digest, now))
    return now


def says_coauthor(environ: Mapping[str, str]) -> bool:
    """RELAY_COAUTHOR=1. Raises BadConfig (78) for what is neither yes nor no."""
    text = environ.get(COAUTHOR, "").strip().lower()
    if text not in ("", "0", "1", "true", "false", "yes", "no", "on", "off"):
        raise BadConfig(f"{COAUTHOR} must be 1 or 0, not {text[:40]!r}. Correct it or unset it.")
    return text in ("1", "true", "yes", "on")
