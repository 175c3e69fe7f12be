"""A session's account before and after the run is there: may it train, who is behind it, its person's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relay.account import confirmed
from relay.accounts import Accounts
from relay.admission import Visit, admit
from relay.clock import Runtime
from relay.errors import BadConfig
from relay.origins import COAUTHOR
from relay.state import RunState
from relay.trouble import speaking


@dataclass(frozen=True)
class Arrival:
    """Who wants to train what, where."""

    account: str
    machine: str
    run: str
    competition: str | None
    coauthor: bool

    def ask(self, known: Accounts, state: RunState | None, runtime: Runtime, tell: Callable[[str], None]) -> None:
        """Tell what the person must know. Raises PolicyRefused (77) before anything is written or loaded."""
        run_id = state.run_id if state else None
        visit = Visit(self.account, self.machine, self.run, run_id, self.coauthor, self.competition)
        for line in admit(visit, known.find(self.account), known.providers, runtime.wall()):
            tell(line)

    def enter(self, known: Accounts, run_id: str) -> None:
        """Write down, once each, under whom the account trains and its person's word for this run."""
        known.claim(self.account)
        found = known.get(self.account)
        provider = known.providers.named(found.provider)
        if not (self.coauthor and provider.coauthor) or found.has_confirmed(run_id, provider.clause_digest):
            return
        with speaking(known.store):
            now = known.store.now()
        known.change(self.account, lambda old: confirmed(old, run_id, provider.clause_digest, now))


def says_coauthor(environ: Mapping[str, str]) -> bool:
    """RELAY_COAUTHOR=1. Raises BadConfig (78) for what is neither yes nor no."""
    text = environ.get(COAUTHOR, "").strip().lower()
    if text not in ("", "0", "1", "true", "false", "yes", "no", "on", "off"):
        raise BadConfig(f"{COAUTHOR} must be 1 or 0, not {text[:40]!r}. Correct it or unset it.")
    return text in ("1", "true", "yes", "on")
