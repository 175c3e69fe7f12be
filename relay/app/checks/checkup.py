"""Checks a run in the store and on this machine, and reports findings with their fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relay.app.checks import verdict
from relay.app.checks.doctor import Finding
from relay.app.checks.verification import Checked, Incidental
from relay.app.messages.accounts import why_parts
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.resting import resting_parts
from relay.app.messages.wording import counted, duration, in_bin_text
from relay.core.checkpoint.local import LocalFolder
from relay.core.errors import BadData, Exit
from relay.core.ledger.atrest import stopped
from relay.core.ledger.reader import Damage
from relay.core.ledger.state import RunState
from relay.core.runs.fork import only_here
from relay.people.policy import Providers
from relay.people.status import AccountRow, RunStatus
from relay.people.zones import local
from storage.base import Stat

COPIES_HERE = 4
"""Checkpoints that can be on this machine at once: see relay/core/checkpoint/committer.py."""

OTHER_MACHINES = "Only machines of other surroundings failed: a session of this machine resumes the run by itself."


def run(view: RunStatus, damage: Sequence[Damage], elsewhere: bool = False, others: bool = False) -> Iterator[Finding]:
    """State of the run, and whether a person must act. `elsewhere`: a halt does not stop this machine (P10).

    `others`: whether the store holds other runs.
    """
    state = view.state
    if state is None:
        begin = f"Begin it with `{command('run', view.run)}`, or correct its name or the store."
        text = f"{view.run} has not begun{': ' if view.missing else ''}{view.missing}"
        yield Finding("run", not others, text, begin, int(Exit.BAD_CONFIG) if others else 0)
        return
    yield Finding("run", True, f"{view.run} is {view.phase} at step {view.step:,} of {view.target:,}")
    if state.archived is not None and (error := stopped(state)):
        yield Finding("run", False, *resting_parts(error), int(Exit.POLICY))
    if state.halted is not None and elsewhere:
        yield Finding("run", False, f"halted: {state.halted}", OTHER_MACHINES)
    elif state.halted is not None and state.deleted is None:
        yield Finding("run", False, f"halted: {state.halted}", _way_out(view.run), int(Exit.BAD_DATA))
    yield from lease(view)
    if state.deaths:
        text = f"{counted(state.deaths, 'session')} ended without a release since the last commit"
        yield Finding("run", False, text, "If they were not killed on purpose, read sync/logs on those machines.")
    for one in damage:
        found = verdict.damaged_slot(one)
        yield Finding("ledger", False, f"{one.text}. {found.meaning}", found.advice)


def for_a_person(found: BadData | None) -> Iterator[Finding]:
    """A decision that a person must make before any session continues."""
    if found:
        yield Finding("ledger", False, paragraph(found), code=int(Exit.BAD_DATA))


def rules(accounts: Sequence[AccountRow], providers: Providers, now: float) -> Iterator[Finding]:
    """Outdated provider records, damaged account objects, and missing co-author confirmations."""
    for name in dict.fromkeys(row.provider for row in accounts):
        if line := providers.named(name).stale(now):
            yield Finding("rules", False, line, "Follow the provider's page, or upgrade to a newer version.")
    for row in accounts:
        if row.state in ("unconfirmed", "damaged"):
            text, advice = why_parts(row)
            yield Finding("accounts", False, f"{row.id} is {row.state}: {text}", f"{advice[0].upper()}{advice[1:]}.")


def lease(view: RunStatus) -> Iterator[Finding]:
    """Whether the lease's holder sends heartbeats, by the store's clock."""
    holder, expires = view.holder, view.expires_at
    if holder is None or expires is None:
        return
    silent = max(0.0, view.now - (expires - holder.ttl_s))
    since = f"held by {holder.account} since {local(holder.since)}, last heartbeat {duration(silent)} ago"
    taking = command("run", view.run, "--wait", "5")
    if not view.training:
        text = f"{since}: it expired without a release"
        yield Finding("lease", False, text, f"Nothing: the next session takes it over. To do so now: `{taking}`.")
    elif silent > holder.ttl_s / 2:
        text = f"{since}: that session may have died or be asleep"
        yield Finding(
            "lease", False, text, f"Without a heartbeat, `{taking}` takes over in {duration(expires - view.now)}."
        )
    else:
        yield Finding("lease", True, since)


def checkpoints(state: RunState, checked: Sequence[Checked]) -> Iterator[Finding]:
    """Damage of retained checkpoints; it stops a session only if none is left."""
    none_left = state.head is not None and not any(c.ok and not c.known for c in checked)
    code = int(Exit.BAD_DATA) if none_left else 0
    for c in checked:
        if not c.ok:
            by = f", by {c.by}" if c.by else ""
            text = f"step {c.step:,} (epoch {c.epoch}{by}) is damaged: {c.reason}. {c.verdict.meaning}"
            yield Finding("checkpoint", c.known, text, c.verdict.advice, 0 if c.known else code)
    good = [f"{c.step:,}" for c in checked if c.ok]
    if good:
        text = f"manifests and sizes match for {'step' if len(good) == 1 else 'steps'} {', '.join(good)}"
        yield Finding("checkpoint", True, text, f"To read every byte: `{command('verify', state.run)}`.")


def holes(incidents: Sequence[Incidental]) -> Iterator[Finding]:
    """Lost entries, each by its slot."""
    for i in incidents:
        where = f" ({i.file})" if i.file else ""
        text = f"{i.text}{where}. {i.verdict.meaning}"
        yield Finding("ledger", False, text, i.verdict.advice, int(Exit.BAD_DATA))


def bin_of(found: Sequence[Stat]) -> Iterator[Finding]:
    """Files of the run in the bin of a store. They can still be read."""
    if text := in_bin_text(found):
        yield Finding("store", False, text, "Restore them in Drive. The next session does it where its account may.")


def unsent(local_folder: LocalFolder, state: RunState) -> Iterator[Finding]:
    """Checkpoints that exist only on this machine."""
    waiting = local_folder.pushable(state) if state.deleted is None else None
    if waiting:
        size, folder = f"{waiting.bytes / 1e6:.1f} MB", local_folder.folder(waiting.key)
        text = f"step {waiting.step:,} ({size}) is in {folder} but not committed"
        when = " once the run may train again" if stopped(state) else ""
        advice = f"Send it{when}: `{command('push', state.run)}`. The next `run` here sends it too."
        yield Finding("sync", False, text, advice)
    for box, packed in only_here(local_folder, state):
        if waiting is None or packed.key != waiting.key:
            fork = command("fork", state.run, "--to", f"{state.run[:60]}_2", "--from-step", str(packed.step))
            since = "its run was deleted" if state.deleted else "the run continued without it"
            text = f"step {packed.step:,} is in {box.folder(packed.key)} only; {since}"
            yield Finding("sync", False, text, f"Nothing. To train it as a separate run: `{fork}`")
    if waiting is None:
        kept = f"{local_folder.bytes() / 1e6:.1f} MB in {local_folder.root}"
        text = f"no checkpoint here is waiting to be sent ({kept})"
        yield Finding("sync", True, text)


def _way_out(run: str) -> str:
    other = command("fork", run, "--to", f"{run[:60]}_2")
    return (
        f"Correct the cause that it names, then `{command('unhalt', run, '--anyway')}`. Or begin another run with "
        f"other settings: `{other}` KEY=VALUE."
    )
