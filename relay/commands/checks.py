"""`verify` and `doctor`: is everything as it was written, and what should a person do?"""

from __future__ import annotations

from collections.abc import Iterator

import typer
from pydantic import BaseModel

from relay import doctor as examine
from relay.commands.common import App, ConfigOption, JsonOption, Overrides, RunOption, emit, say, surroundings
from relay.commands.reading import look, open_stores, require
from relay.config import Resolved
from relay.doctor import Finding
from relay.endpoint import record
from relay.errors import BadData, Exit
from relay.identity import open_run
from relay.redact import redact
from relay.status import View
from relay.verify import Incidental, Verification, text_of
from relay.verify import verify as re_read
from storage.selftest import self_test


def verify(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-read every entry and every retained file; exit 0 if all is as it was written, else 65."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    try:
        opened, stores = require(app, resolved)
        found = re_read(opened.ledger, stores.checkpoints, say)
    except BadData as error:
        found = Verification(incidents=[Incidental("ledger", str(error), against=True)])
    if found.ok:
        emit(as_json, found.document(), text_of(found))
        return
    say("\n".join(i.text for i in found.incidents if i.against))
    emit(as_json, found.document(), text_of(found))
    raise typer.Exit(int(Exit.BAD_DATA))


def doctor(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look over this machine, the store and the run, and say in plain words what to do."""
    app = surroundings(context)
    found = examination(app, app.settle(overrides, config, {"run": run}))
    emit(as_json, found.document(), found.text())
    raise typer.Exit(found.code)


def examination(app: App, resolved: Resolved[BaseModel]) -> examine.Examination:
    """Machine, store, run, and what waits on this machine; a store that cannot be used hides what comes after."""
    found, settings = examine.Examination(), resolved.settings
    found.look("machine", lambda: examine.machine(app.machine, app.kind.device(settings.device), sorted(app.environ)))
    if not found.look("store", lambda: of_stores(app, resolved)):
        return found
    view: list[View] = []
    if found.look("run", lambda: of_run(app, resolved, view)):
        home = resolved.path(settings.sync_dir) / settings.project / settings.run
        found.look("sync", lambda: examine.unsent(home, view[0]))
    return found


def of_stores(app: App, resolved: Resolved[BaseModel]) -> Iterator[Finding]:
    """Each store's self-test, and its clock."""
    stores = open_stores(app, resolved, read_only=False)
    for store in stores.both:
        self_test(store, token=app.runtime.token)
        record(store)
        yield Finding("store", True, f"{redact(store.address)} keeps its promises (self-test passed)")
    yield from examine.clocks(stores.ledger.now(), app.runtime.wall())


def of_run(app: App, resolved: Resolved[BaseModel], seen: list[View]) -> Iterator[Finding]:
    """How the run stands; the view goes into `seen`."""
    seen.append(look(app, resolved))
    stores, settings = open_stores(app, resolved, read_only=True), resolved.settings
    opened = open_run(stores, settings.project, settings.run, app.runtime, session=app.session)
    yield from examine.run(seen[0], [d.text for d in opened.view.damage] if opened else [])
