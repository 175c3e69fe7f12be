"""Leaves a session's report on this machine and in the store, in the time that is left; it can fail nothing (P6)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from relay.core.checkpoint.packing import Facts
from relay.core.errors import BadData, Exit, RelayError
from relay.core.gpus import gpu_name
from relay.core.lease.lease import Lease
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import CRASH, NON_FINITE, OUT_OF_MEMORY, TARGET_REACHED
from relay.core.ledger.sessionreport import (
    MAX_CHECKPOINTS,
    Happened,
    Left,
    Made,
    SessionReport,
    about_itself,
    encode,
    named,
    per_hour,
)
from relay.core.ledger.state import Failure, Incident, RunState
from relay.core.session.assembly import SessionParts
from relay.core.session.context import Outcome
from relay.core.session.timing import phases
from relay.core.session.training import NonFinite
from relay.core.wholefile import write_whole
from storage.base import StoreError

# --- Failures of training as ledger entries with a signature, so that the same one twice halts the run (P10) --------


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


# --- Leaves a session's report on this machine and in the store, in the time that is left ---------------------------

LOG = logging.getLogger("relay.session")
FOLDER = "reports"
KEPT = 50
"""Sessions whose reports stay on this machine."""
WAIT_S, HURRIED_S = 5.0, 1.0
"""Longest that a session's end waits for its report to be stored; the second once a signal has ended it."""
_FILE = re.compile(r"session_e(0|[1-9][0-9]{0,15})\.(md|json)")


def leave_report(parts: SessionParts, outcome: Outcome) -> None:
    """Write the report; wait for the store no longer than is left. A second Ctrl-C leaves none.

    A session that has lost its lease writes nothing to the store any more (P5): its report stays on this machine.
    """
    ctx, desk, done = parts.ctx, parts.ctx.desk, parts.ctx.runtime.event()
    fenced = outcome.exit_code == Exit.FENCED or parts.lease.lost is not None
    if ctx.signal.at_once:
        return

    def body() -> None:
        try:
            report = report_of(parts, outcome)
            keep(ctx.local_folder.root / FOLDER, report, desk.words(report))
            if fenced:
                return
            told = with_quota(report, desk.quota(parts.lease.state))
            if told != report:
                keep(ctx.local_folder.root / FOLDER, told, desk.words(told))
            ctx.ledger_store.put(ctx.names.session(report.epoch), encode(told))
        except (StoreError, RelayError, OSError, ValueError) as error:
            LOG.info("the session's report could not be stored: %s", error)
        finally:
            done.set()

    ctx.runtime.spawn("report", body)
    left = parts.budget.deadline - ctx.runtime.monotonic() - 0.5
    done.wait(max(0.0, min(HURRIED_S if ctx.signal.hurry else WAIT_S, left)))


def report_of(parts: SessionParts, outcome: Outcome) -> SessionReport:
    """All but the quota, of what this session has seen."""
    ctx, lease, state = parts.ctx, parts.lease, parts.lease.state
    link = state.link_of(lease.epoch)
    made = list(parts.writer.made)
    durable = max([one.step for one in made], default=parts.from_step)
    validated = [c for c in state.retained if c.epoch == lease.epoch and c.metric is not None]
    wall = outcome.start_s + outcome.total_s
    return SessionReport(
        project=state.project,
        run=state.run,
        run_id=state.run_id,
        epoch=lease.epoch,
        account=lease.account,
        provider=ctx.desk.provider,
        cloud=ctx.desk.cloud,
        gpu=gpu_name(ctx.facts.fingerprint),
        environment=named(dict(ctx.facts.fingerprint)),
        code_version=ctx.facts.code_version,
        config_hash=ctx.facts.config_hash,
        started=link.started if link else 0.0,
        wall_s=wall,
        lease_s=outcome.total_s,
        phases=phases(ctx.startup, parts.trainer.spent.seconds, outcome.train_s, wall),  # type: ignore[arg-type]
        stall_s=tuple(outcome.stall_s[-MAX_CHECKPOINTS:]),
        from_step=parts.from_step,
        to_step=durable,
        steps_per_hour=per_hour(durable - parts.from_step, outcome.total_s),
        goodput=outcome.goodput,
        metrics=_told(state, lease.epoch),
        validated_step=validated[-1].step if validated else None,
        validation=validated[-1].metric if validated else None,
        checkpoints=tuple(Made(step=c.step, state_hash=c.state_hash, bytes=c.bytes) for c in made),
        commits=outcome.commits,
        certified=outcome.certified,
        why=outcome.why,
        follows=parts.follows,
        incidents=tuple(_happened(state.incidents, lease.epoch)),
        exit_code=int(outcome.exit_code),
        end=outcome.end,
        at_risk_s=outcome.interval_s + outcome.latency_s,
        unsent=outcome.unsent is not None,
        next=None if outcome.end == TARGET_REACHED else state.next,
    )


def with_quota(report: SessionReport, left: Left | None) -> SessionReport:
    """The report with what is left of the account's hours."""
    return report.model_copy(update={"quota": left})


def keep(folder: Path, report: SessionReport, words: str) -> Path:
    """Write both files, each whole or not at all; the oldest beyond KEPT go. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"session_e{report.epoch}"
    write_whole(folder / f"{name}.json", f"{json.dumps(report.document(), indent=1)}\n".encode())
    write_whole(folder / f"{name}.md", words.encode())
    found = {int(match[1]) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))}
    for epoch in sorted(found)[:-KEPT]:
        for ending in ("md", "json"):
            with suppress(OSError):
                (folder / f"session_e{epoch}.{ending}").unlink()
    return folder / f"{name}.md"


def _told(state: RunState, epoch: int) -> dict[str, float]:
    """Numbers of training in the newest commit, if it is this session's; what it measured of itself is told apart."""
    if state.head is None or state.head.epoch != epoch:
        return {}
    return {name: value for name, value in state.metrics.items() if not about_itself(name)}


def _happened(incidents: Iterable[Incident], epoch: int) -> list[Happened]:
    return [Happened(at=i.at, step=i.step, cause=i.cause, text=i.text) for i in incidents if i.epoch == epoch]
