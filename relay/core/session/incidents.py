"""Failures of training as ledger entries with a signature, so that the same one twice halts the run (P10)."""

from __future__ import annotations

from contextlib import suppress

from relay.core.checkpoint.packing import Facts
from relay.core.errors import BadData, RelayError
from relay.core.lease.lease import Lease
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import CRASH, NON_FINITE, OUT_OF_MEMORY
from relay.core.ledger.state import Failure, RunState
from relay.core.session.training import NonFinite


class Recorded(BadData):
    """Training failed, and the ledger says so under this session's lease: that is its end, whatever came after."""


def failure(facts: Facts, cause: str, step: int) -> Failure:
    """What failed, where, in what surroundings."""
    surroundings = digest(dumps(dict(facts.fingerprint)))
    return Failure(cause=cause, step=step, config_hash=facts.config_hash, fingerprint=surroundings)


def record_non_finite(lease: Lease, facts: Facts, found: NonFinite) -> Recorded:
    """Record it and return the error to raise (65). Raises what `Lease.append` raises."""
    text = f"At step {found.step} {found.reason}. The state was not committed."
    state = lease.note(
        Noted(cause=NON_FINITE, text=text, step=found.step, failure=failure(facts, NON_FINITE, found.step))
    )
    return Recorded(f"{text} The durable step is {state.step:,}. {_outlook(state)}")


def record_crash(lease: Lease, facts: Facts, error: Exception, step: int) -> None:
    """Record what the training loop raised, by its kind only: a message may hold paths and names (P4)."""
    cause = OUT_OF_MEMORY if _out_of_memory(error) else CRASH
    text = f"{type(error).__name__} after step {step}."
    with suppress(RelayError):  # the crash itself is what people must see
        lease.note(Noted(cause=cause, text=text, step=step, failure=failure(facts, cause, step)))


def _out_of_memory(error: Exception) -> bool:
    """MemoryError, or an accelerator library's own kind of it."""
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__


def _outlook(state: RunState) -> str:
    if state.halted is not None:
        return f"The run is halted now: {state.halted}"
    return "The next session tries once more from there; the same failure again halts the run."
