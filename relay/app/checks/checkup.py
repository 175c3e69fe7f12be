"""Looks a run over, as it stands in the store and on this machine, and says what to do; repairs and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relay.app.checks import verdict
from relay.app.checks.doctor import Finding
from relay.app.checks.verification import Checked, Incidental
from relay.app.messages.accounts import why_parts
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.resting import told
from relay.app.messages.wording import counted, duration
from relay.core.checkpoint.local import LocalFolder
from relay.core.errors import BadData, Exit
from relay.core.ledger.atrest import stopped
from relay.core.ledger.reader import Damage
from relay.core.ledger.state import RunState
from relay.core.runs.fork import only_here
from relay.people.policy import Providers
from relay.people.status import AccountRow, View
from relay.people.zones import local

COPIES_HERE = 4
"""Checkpoints that may lie on this machine at once: see relay/core/checkpoint/committer.py."""


def run(view: View, damage: Sequence[Damage]) -> Iterator[Finding]:
    """How the run stands, and whether somebody must act."""
    state = view.state
    if state is None:
        begin = f"If it is meant to be new, `{command('run', view.run)}` begins it; else correct its name or the store."
        yield Finding("run", True, f"{view.run} has not begun{': ' if view.missing else ''}{view.missing}", begin)
        return
    yield Finding("run", True, f"{view.run} is {view.phase} at step {view.step:,} of {view.target:,}")
    if state.archived is not None and (error := stopped(state)):
        yield Finding("run", False, *told(error), int(Exit.POLICY))
    if state.halted is not None and state.deleted is None:
        yield Finding("run", False, f"halted: {state.halted}", _way_out(view.run), int(Exit.BAD_DATA))
    yield from lease(view)
    if state.deaths:
        text = f"{counted(state.deaths, 'session')} ended without a release since the last commit"
        yield Finding("run", False, text, "If they were not killed on purpose, look at sync/logs on those machines.")
    for one in damage:
        means = verdict.damaged_slot(one)
        yield Finding("ledger", False, f"{one.text}. {means.meaning}", means.advice)


def for_a_person(found: BadData | None) -> Iterator[Finding]:
    """Something that a person has to decide before any session goes on."""
    if found:
        yield Finding("ledger", False, paragraph(found), code=int(Exit.BAD_DATA))


def rules(accounts: Sequence[AccountRow], providers: Providers, now: float) -> Iterator[Finding]:
    """Records of providers read too long ago, and accounts whose object or person's word is missing."""
    for name in dict.fromkeys(row.provider for row in accounts):
        if line := providers.named(name).stale(now):
            yield Finding("rules", False, line, "If they have changed, a newer version may know; else go by the page.")
    for row in accounts:
        if row.state in ("unconfirmed", "damaged"):
            text, advice = why_parts(row)
            yield Finding("accounts", False, f"{row.id} is {row.state}: {text}", f"{advice[0].upper()}{advice[1:]}.")


def lease(view: View) -> Iterator[Finding]:
    """Whether the holder shows signs of life, by the store's clock."""
    holder, expires = view.holder, view.expires_at
    if holder is None or expires is None:
        return
    silent = max(0.0, view.now - (expires - holder.ttl_s))
    since = f"held by {holder.account} since {local(holder.since)}, last sign of life {duration(silent)} ago"
    taking = command("run", view.run, "--wait", "5")
    if not view.training:
        text = f"{since}: it has run out without a release"
        yield Finding("lease", False, text, f"Nothing: the next session takes it over. `{taking}` does so now.")
    elif silent > holder.ttl_s / 2:
        text = f"{since}: it may have died, or sleep"
        yield Finding(
            "lease", False, text, f"If it stays silent, `{taking}` takes over in {duration(expires - view.now)}."
        )
    else:
        yield Finding("lease", True, since)


def checkpoints(state: RunState, checked: Sequence[Checked]) -> Iterator[Finding]:
    """What is wrong with retained checkpoints; only where none is left does it stop a session."""
    none_left = state.head is not None and not any(c.ok and not c.known for c in checked)
    code = int(Exit.BAD_DATA) if none_left else 0
    for c in checked:
        if not c.ok:
            by = f", of {c.by}" if c.by else ""
            text = f"step {c.step:,} (epoch {c.epoch}{by}) is damaged: {c.reason}. {c.verdict.meaning}"
            yield Finding("checkpoint", c.known, text, c.verdict.advice, 0 if c.known else code)
    good = [f"{c.step:,}" for c in checked if c.ok]
    if good:
        text = f"steps {', '.join(good)} have the right manifests and sizes"
        yield Finding("checkpoint", True, text, f"`{command('verify', state.run)}` reads every byte.")


def holes(incidents: Sequence[Incidental]) -> Iterator[Finding]:
    """Lost entries, each by its slot."""
    for i in incidents:
        where = f" ({i.file})" if i.file else ""
        text = f"{i.text}{where}. {i.verdict.meaning}"
        yield Finding("ledger", False, text, i.verdict.advice, int(Exit.BAD_DATA))


def unsent(local_folder: LocalFolder, state: RunState) -> Iterator[Finding]:
    """Checkpoints that are on this machine only."""
    waiting = local_folder.pushable(state) if state.deleted is None else None
    if waiting:
        size, folder = f"{waiting.bytes / 1e6:.1f} MB", local_folder.folder(waiting.key)
        text = f"step {waiting.step:,} ({size}) is in {folder} and not committed"
        first = "Once the run may train again, " if stopped(state) else ""
        advice = f"{first}`{command('push', state.run)}` sends it; so does the next `run` here."
        yield Finding("sync", False, text, advice)
    for box, packed in only_here(local_folder, state):
        if waiting is None or packed.key != waiting.key:
            fork = command("fork", state.run, "--to", f"{state.run[:60]}_2", "--from-step", str(packed.step))
            since = "its run was deleted" if state.deleted else "the run went on without it"
            text = f"step {packed.step:,} is in {box.folder(packed.key)} only; {since}"
            yield Finding("sync", False, text, f"Nothing, unless you want it as a run of its own: `{fork}`")
    if waiting is None:
        kept = f"{local_folder.bytes() / 1e6:.1f} MB are kept in {local_folder.root}"
        text = f"nothing on this machine waits to be sent ({kept})"
        yield Finding("sync", True, text)


def _way_out(run: str) -> str:
    other = command("fork", run, "--to", f"{run[:60]}_2")
    return (
        f"Change what it names, then `{command('resume', run, '--anyway')}`, or begin another run with other "
        f"settings: `{other}` KEY=VALUE."
    )
