"""Miscounts the contributions of accounts, in one place each (P12)."""

from __future__ import annotations

from typing import Any

from relay.core.ledger import keeping, usage
from relay.core.ledger.changes import By
from relay.core.ledger.state import RunState, Usage
from tests.simulation.mutations.base import Patches, mutation, patch, rule


@mutation("gpu-uncounted", "P12: what was given is not counted by kind of GPU", "P12: .* on a GPU")
def _gpu_uncounted() -> Patches:
    return [patch(usage, "_on_gpu", lambda table, account, *_, **__: table.get(account, Usage()))]


@mutation("retire-gives", "P12: a clean-up is counted as a session's gift", "P12: retire changes")
def _retire_gives() -> Patches:
    def retire(state: RunState, change: Any, by: By) -> RunState:
        after = keeping.retire(state, change, by)
        return after.model_copy(update={"usage": usage.trained(after.usage, str(by.account), 1)})

    return [rule("retire", retire)]
