"""`verify` and `doctor`: check the stored files, the stores and this machine, and report the next action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from pydantic import BaseModel

from relay.app.checks import checkup, verdict
from relay.app.checks import doctor as examine
from relay.app.checks.doctor import Finding
from relay.app.checks.reach import Reach, reach
from relay.app.checks.space import ONLY_LEDGER, UNKNOWN_GROWTH, making_room, of_disks, sessions_until_full
from relay.app.checks.storetable import document, stores_text
from relay.app.checks.verification import Incidental, Verification, text_of
from relay.app.checks.verify import Deep, lost, quick_look
from relay.app.checks.verify import verify as re_read
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, goes_on_here, say, speaks_utf8
from relay.app.commands.joining import join, joined_if_there, require
from relay.app.commands.looking.trackers import places_of
from relay.app.commands.processes import sharing
from relay.app.commands.reading import overview
from relay.app.commands.stores import connect, open_stores
from relay.app.commands.weights.subject import bring, fill, workload_of
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.whereabouts import NOWHERE
from relay.app.messages.wording import in_bin_text
from relay.app.providers import shipped
from relay.app.redact import redact
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import columns
from relay.app.terminal.transfers import showing
from relay.app.trackers.choose import described
from relay.core.checkpoint.local import LocalFolder, local_folder_of
from relay.core.checkpoint.restore import Route, choose, fetch
from relay.core.checkpoint.retention import Keep
from relay.core.errors import BadConfig, BadData, Exit
from relay.core.folders import scratch_folder
from relay.core.lease.host import default_folder
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.overlooked import overlooked
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.ledger.verified import RolledBack, mark_of
from relay.core.names import FRAGMENT, Names
from relay.core.runs.binned import in_bin
from relay.core.runs.opening import Pair, RunHandle, absent, beside, open_run, record, salvaged_run
from relay.core.runs.repair import rolled_back
from relay.core.runs.salvage import can_fork
from relay.core.settings.config import Resolved
from relay.core.workload import Workload
from relay.people.status import RunStatus
from storage.base import QuotaExceeded, Store, StoreError


@subcommand()
def verify(
    call: Call,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also load each checkpoint and compare its state. Needs PyTorch and data."),
    ] = False,
) -> Answer:
    """Re-read every entry and every retained file; exit 0 if all is as it was written, else 65."""

    def loader(opened: RunHandle, stores: Pair) -> Deep:
        return loading(call.app, opened, stores, workload_for(call, opened, stores))

    found = verification(call.app, call.resolved, loader if deep else None)
    if not found.ok:
        say("\n".join(f"{i.text} {i.file}".rstrip() for i in found.incidents if i.against))
    return Answer(found.document(), text_of(found, columns()), Exit.OK if found.ok else Exit.BAD_DATA)


def verification(
    app: App, resolved: Resolved[BaseModel], loader: Callable[[RunHandle, Pair], Deep] | None = None
) -> Verification:
    """Verify everything that is readable, even if the ledger has lost an entry."""
    try:
        opened, stores = require(app, resolved)
    except BadData as error:
        rest, stores = salvaged(app, resolved), open_stores(app, resolved, read_only=True)
        if rest is None:
            return Verification(incidents=[Incidental("ledger", paragraph(error), against=True)])
        return re_read(rest.ledger, stores.checkpoints, say, loader and loader(rest, stores))
    found = re_read(opened.ledger, stores.checkpoints, say, loader and loader(opened, stores))
    with suppress(StoreError):  # files in the bin can still be read
        if text := in_bin_text(in_bin(stores.both, opened.names)):
            found.incidents.append(Incidental("bin", f"{text}. Restore them in Drive."))
    if newer := of_this_machine(resolved, opened):
        means = verdict.rolled_back(opened.names.run)
        found.incidents.append(Incidental("ledger", paragraph(newer), against=True, verdict=means))
    return found


def of_this_machine(resolved: Resolved[BaseModel], opened: RunHandle) -> RolledBack | None:
    """Return the part of the run that this machine has read and the store no longer holds, if any."""
    run_id = opened.view.state.run_id
    local_folder, mark = local_folder_of(resolved.home, run_id), mark_of(resolved.home, run_id)
    return rolled_back(opened.ledger, opened.view, local_folder, mark.recall())


def workload_for(call: Call, opened: RunHandle, stores: Pair) -> Workload:
    """Return the workload into which `--deep` loads checkpoints.

    Raises BadConfig or BadData. Their message names the missing part and the check that works without it.
    """
    try:
        with scratch_folder() as scratch:
            return workload_of(
                call,
                call.settle(joins=True),
                opened,
                stores,
                lambda: bring(call.app, choose(opened.view.state, None), opened, stores, scratch)[0],
                own_data=False,
            )
    except (BadConfig, BadData) as error:
        kind = BadConfig if isinstance(error, BadConfig) else BadData
        raise kind(
            f"--deep loads each checkpoint into the training program, which cannot be set up here: "
            f"{paragraph(error)} Without --deep, `{command('verify', opened.names.run)}` reads every byte all the same."
        ) from error


def loading(app: App, opened: RunHandle, stores: Pair, workload: Workload) -> Deep:
    """Return a function that fetches a checkpoint into a temporary folder, loads it and compares its state."""

    def load(checkpoint: Checkpoint, state: RunState) -> None:
        with scratch_folder() as scratch, showing(say, app.runtime) as show:
            local_folder = LocalFolder(scratch)
            fetch(checkpoint, state, Route(stores.checkpoints, opened.names, local_folder, show=show))
            fill(workload, local_folder.folder(checkpoint.key), checkpoint, opened.names.run)

    return load


def salvaged(app: App, resolved: Resolved[BaseModel]) -> RunHandle | None:
    """Return the run as far as its damaged ledger can be read; None if nothing can."""
    stores, settings = open_stores(app, resolved, read_only=True), resolved.settings
    return salvaged_run(stores, settings.project, settings.run)


@subcommand()
def doctor(call: Call) -> Answer:
    """Look over this machine, the store and the run, and say in plain words what to do."""
    found = examination(call.app, call.settle(joins=True))
    return Answer(found.document(), found.text(columns()), found.code)


def _device(app: App, wanted: str) -> str:
    """The device that a session would train on, XLA's with its client. Raises BadConfig."""
    device = app.plugin.device(wanted)
    if device != "xla":
        return device
    from relay.torch.device import xla_client

    return f"{device} ({xla_client()})"


def examination(app: App, resolved: Resolved[BaseModel]) -> examine.Examination:
    """Examine this machine, the stores, the run, and data on this machine that is not sent yet.

    If a store cannot be used, the checks of the run and its checkpoints are skipped.
    """
    found, settings = examine.Examination(), resolved.settings
    if resolved.training.waits_for_run:
        with suppress(BadConfig):  # a finding below
            joined = joined_if_there(app, resolved)
            resolved = joined.resolved if joined else resolved
    found.look("machine", lambda: examine.machine(app.machine, _device(app, settings.device), sorted(app.environ)))
    found.look("compile cache", lambda: examine.compiled(app.environ, settings.cache.allow))
    found.look("trackers", lambda: examine.trackers(described(settings.trackers, places_of(app, resolved))))
    found.look("secrets", lambda: examine.secrets(app.chain.title, app.chain.found, app.chain.advice))
    found.look("limits", lambda: examine.limits(app.runtime))
    found.look("home", lambda: examine.home(default_folder()))
    found.look("sync", lambda: examine.keepable(resolved.home))
    found.look("data", lambda: examine.data(app.plugin.glance(resolved.workload)))
    stores: list[Reach] = []
    seen: list[RunStatus] = []
    if examine_stores(app, resolved, found, stores):
        found.look("run", lambda: of_run(app, resolved, seen, stores[-1]))
    else:
        found.look("step", lambda: of_steps(app, resolved))
    state = seen[0].state if seen else None
    found.look("disk", lambda: of_disks(resolved, state))
    if state:
        found.look("checkpoint", lambda: of_checkpoints(app, resolved, state))
        found.look("sync", lambda: checkup.unsent(local_folder_of(resolved.home, state.run_id), state))
    found.stores, found.table = [document(one) for one in stores], stores_text(stores, columns(), speaks_utf8())
    return found


def examine_stores(app: App, resolved: Resolved[BaseModel], found: examine.Examination, stores: list[Reach]) -> bool:
    """Examine each store, append its results to `stores`, and return whether all stores can be used.

    A store that fails does not hide the results of the other.
    """
    both = (resolved.ledger_url.partition(FRAGMENT)[0], resolved.checkpoint_url.partition(FRAGMENT)[0])
    uses = {both[0]: "ledger and checkpoints"} if both[0] == both[1] else {both[0]: "ledger", both[1]: "checkpoints"}
    usable = True
    for url, used_for in uses.items():
        one = Reach(redact(url), used_for, why_unknown=ONLY_LEDGER if used_for == "ledger" else "")
        stores.append(one)
        usable = found.look("store", partial(of_store, app, resolved, url, one)) and usable
    return usable


def of_store(app: App, resolved: Resolved[BaseModel], url: str, found: Reach) -> Iterator[Finding]:
    """Check one store: self-test, credentials, speed, clock, and whether it is permanent."""
    store = connect(app, url)
    found.address = redact(store.address)
    if absent(store.address):
        yield from of_absent(app, resolved, store, found)
    else:
        yield from reached(app, resolved, url, store, found)
    yield from examine.keeping(store.address)


def reached(app: App, resolved: Resolved[BaseModel], url: str, store: Store, found: Reach) -> Iterator[Finding]:
    """Check an existing store. If it is full, also report how to free space."""
    try:
        yield from reach(store, connect(app, url), found, app.runtime)
        record(store)
    except QuotaExceeded as error:
        found.sessions = 0
        code, text = explain(error)
        yield Finding("store", False, text, making_room(resolved.settings.run, full=True), code)


def of_absent(app: App, resolved: Resolved[BaseModel], store: Store, found: Reach) -> Iterator[Finding]:
    """Check a folder that does not exist yet.

    This check must not create the folder, so the disk is tested in a temporary folder.
    """
    found.there = False
    with beside(store.address) as folder:
        tried = list(reach(connect(app, str(folder)), connect(app, str(folder)), found, app.runtime))
    advice = "If others train there already, this is not their store: compare the address with theirs letter by letter."
    asked = bool(resolved.addresses)
    yield Finding("store", not asked, f"{found.address}: {NOWHERE}", advice if asked else "")
    yield Finding("store", True, f"the disk of {folder.parent} keeps its promises (self-test passed)")
    yield from (finding for finding in tried if finding.subject != "store")


def of_run(app: App, resolved: Resolved[BaseModel], seen: list[RunStatus], store: Reach) -> Iterator[Finding]:
    """Check the run by the store's clock and append its view to `seen`, also if the ledger is damaged.

    `store` holds the checkpoints. It receives the number of sessions until it is full.
    """
    stores, settings = open_stores(app, resolved, read_only=False), resolved.settings
    try:
        opened = open_run(stores, settings.project, settings.run)
        if opened:
            opened.ledger.check_epochs(stores.checkpoints)
    except BadData as error:
        yield from of_damaged(app, resolved, error, seen)
        return
    view = replace(overview(app, resolved, of_people=True).view, now=stores.ledger.now(), clock_is_local=False)
    seen.append(view)
    store.why_unknown = UNKNOWN_GROWTH
    if opened:
        keep = Keep(settings.checkpoint.keep_last, settings.checkpoint.keep_every)
        entries = opened.view.seq + 1
        store.sessions, store.why_unknown = sessions_until_full(opened.view.state, entries, store.free, keep)
    others = not opened and bool(stores.registry().runs())
    elsewhere = opened is not None and goes_on_here(app, resolved, opened.view.state)
    yield from checkup.run(view, opened.view.damage if opened else (), elsewhere, others)
    if not opened:
        yield from of_steps(app, resolved)
    else:
        yield from of_settings(app, resolved, opened, stores)
        yield from checkup.for_a_person(of_this_machine(resolved, opened))
        yield from checkup.for_a_person(overlooked(opened.ledger, opened.view))
    yield from checkup.rules(view.accounts, shipped(), view.now)
    yield from checkup.bin_of(in_bin(stores.both, Names(settings.project, settings.run)))


def of_settings(app: App, resolved: Resolved[BaseModel], opened: RunHandle, stores: Pair) -> Iterator[Finding]:
    """Compare the given settings with the run's as a session would, and look for its data without reading it."""
    try:
        joined = join(app, resolved, opened, stores.ledger)
        joined.check()
    except BadConfig as error:
        yield Finding("settings", False, paragraph(error), code=int(error.exit_code))
        return
    except BadData as error:  # a session then compares the given settings by their hash
        yield Finding("settings", False, paragraph(error))
        return
    given = ", ".join(sorted(joined.resolved.training.given)) or "none"
    yield Finding("settings", True, f"a session takes the run's own settings (given: {given})")
    yield from of_steps(app, joined.resolved)


def of_steps(app: App, resolved: Resolved[BaseModel]) -> Iterator[Finding]:
    """Report how many processes a session of these settings has here, how it computes steps, and how fast."""
    subject = "processes"
    try:
        found = sharing(app, resolved)
        yield Finding(subject, not found.note, found.text())
        subject = "step"
        if device := _usable_device(app, resolved.settings.device):
            yield from examine.speed(app.plugin.forecast(resolved.workload, device, None, processes=found.size))
    except BadConfig as error:
        yield Finding(subject, False, paragraph(error), code=int(error.exit_code))


def _usable_device(app: App, wanted: str) -> str | None:
    """None if there is none: the finding on the machine says why."""
    with suppress(BadConfig):
        return app.plugin.device(wanted)
    return None


def of_damaged(app: App, resolved: Resolved[BaseModel], error: BadData, seen: list[RunStatus]) -> Iterator[Finding]:
    """Report the holes of a ledger and the checkpoints that are intact. Raises `error` if nothing can be read."""
    found, stores = salvaged(app, resolved), open_stores(app, resolved, read_only=True)
    if found is None:
        raise error
    state, settings = found.view.state, resolved.settings
    intact = [c.step for c in quick_look(found.ledger, state, stores.checkpoints) if c.ok]
    means = partial(verdict.hole, found.names.run, intact if can_fork(found.ledger) else [])
    yield from checkup.holes(lost(found.ledger.chain, paragraph(error), found.view.seq, means))
    seen.append(RunStatus(settings.project, settings.run, state.target_steps, stores.ledger.now(), state))


def of_checkpoints(app: App, resolved: Resolved[BaseModel], state: RunState) -> Iterator[Finding]:
    """Check the manifest and the file sizes of every retained checkpoint."""
    stores = open_stores(app, resolved, read_only=True)
    ledger = RunLedger(stores.ledger, state.project, state.run, app.runtime)
    return checkup.checkpoints(state, quick_look(ledger, state, stores.checkpoints))
