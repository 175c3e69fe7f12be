"""Writes a session's report to this machine and the store. A failure here never fails the session (P6)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from relay.core.checkpoint.packing import Facts
from relay.core.clock import in_background
from relay.core.errors import BadData, Exit, RelayError
from relay.core.gpus import gpu_name
from relay.core.lease.lease import Lease
from relay.core.ledger.atrest import surroundings_of
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import CRASH, MACHINE_LIMIT, NON_FINITE, OUT_OF_MEMORY, TARGET_REACHED
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
from relay.core.resources import OutOfResource
from relay.core.session.assembly import SessionParts
from relay.core.session.context import Outcome
from relay.core.session.timing import phases
from relay.core.session.training import NonFinite
from relay.core.wholefile import write_whole

# --- Records training failures in the ledger, so that two equal ones halt the run (P10) -----------------------------


class Recorded(BadData):
    """Training failed, and this session recorded it in the ledger. This decides the session's end."""


def failure(facts: Facts, cause: str, step: int) -> Failure:
    """The signature of a failure: cause, step, configuration and environment."""
    surroundings = surroundings_of(facts.fingerprint)
    return Failure(cause=cause, step=step, config_hash=facts.config_hash, fingerprint=surroundings)


def record_non_finite(lease: Lease, facts: Facts, found: NonFinite) -> Recorded:
    """Record a non-finite state and return the error to raise (65). Raises as `Lease.append`."""
    text = f"At step {found.step} {found.reason}. The state was not committed."
    state = lease.note(
        Noted(cause=NON_FINITE, text=text, step=found.step, failure=failure(facts, NON_FINITE, found.step))
    )
    return Recorded(f"{text} The durable step is {state.step:,}. {_outlook(state)}")


def record_limit(lease: Lease, limit: OutOfResource, step: int) -> None:
    """Record that this machine lacked a resource: an incident, but not a failure of the run (P10)."""
    with suppress(RelayError):  # the session ends with the limit itself
        lease.note(Noted(cause=MACHINE_LIMIT, text=f"{limit} Last whole step: {step}.", step=step))


def record_crash(lease: Lease, facts: Facts, error: Exception, step: int, halts: bool = True) -> None:
    """Record an exception of the training loop by its type only: a message may contain paths and names (P4).

    `halts`: whether a second equal one halts the run.
    """
    cause = OUT_OF_MEMORY if _out_of_memory(error) else CRASH
    text = f"{type(error).__name__} after step {step}."
    counted = failure(facts, cause, step) if halts else None
    with suppress(RelayError):  # the crash itself is raised and must stay visible
        lease.note(Noted(cause=cause, text=text, step=step, failure=counted))


def _out_of_memory(error: Exception) -> bool:
    """Whether an accelerator has too little memory: unlike the machine's own, it is part of the fingerprint."""
    return "OutOfMemory" in type(error).__name__


def _outlook(state: RunState) -> str:
    if state.halted is not None:
        return f"The run is now halted: {state.halted}"
    return "The next session tries again from there; a second equal failure halts the run for machines like this one."


# --- Writes the report ----------------------------------------------------------------------------------------------

LOG = logging.getLogger("relay.session")
FOLDER = "reports"
KEPT = 50
"""Sessions whose reports stay on this machine."""
WAIT_S, HURRIED_S = 5.0, 1.0
"""Longest wait of a session's end for storing the report, in seconds; the second after a signal."""
_FILE = re.compile(r"session_e(0|[1-9][0-9]{0,15})\.(md|json)")


def leave_report(parts: SessionParts, outcome: Outcome) -> None:
    """Write the report; wait for the store within the remaining time. A second Ctrl-C skips the report.

    A session that has lost its lease no longer writes to the store (P5): its report stays on this machine.
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
            complete = with_quota(report, desk.quota(parts.lease.state))
            if complete != report:
                keep(ctx.local_folder.root / FOLDER, complete, desk.words(complete))
            ctx.ledger_store.put(ctx.names.session(report.epoch), encode(complete))
        except Exception as error:  # noqa: BLE001 - the report is optional, and its errors end nothing
            LOG.info("the session's report could not be stored: %s", error)
        finally:
            done.set()

    in_background(ctx.runtime, "report", body)
    left = parts.budget.deadline - ctx.runtime.monotonic() - 0.5
    done.wait(max(0.0, min(HURRIED_S if ctx.signal.hurry else WAIT_S, left)))


def report_of(parts: SessionParts, outcome: Outcome) -> SessionReport:
    """The session's report, without the quota."""
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
        metrics=_training_metrics(state, lease.epoch),
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
    """The report with the account's remaining hours."""
    return report.model_copy(update={"quota": left})


def keep(folder: Path, report: SessionReport, words: str) -> Path:
    """Write both files, each atomically, and delete the oldest beyond KEPT. Raises OSError."""
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


def _training_metrics(state: RunState, epoch: int) -> dict[str, float]:
    """Training metrics of the newest commit, if it is this session's, without the session's own timings."""
    if state.head is None or state.head.epoch != epoch:
        return {}
    return {name: value for name, value in state.metrics.items() if not about_itself(name)}


def _happened(incidents: Iterable[Incident], epoch: int) -> list[Happened]:
    return [Happened(at=i.at, step=i.step, cause=i.cause, text=i.text) for i in incidents if i.epoch == epoch]
