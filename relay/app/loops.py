"""`relay.session`: a session for a user's own loop, with the settings, stores and accounts of the command line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from relay.app.commands.common import Aim, App
from relay.app.commands.sessions.attaching import met
from relay.app.commands.sessions.here import followed
from relay.app.commands.sessions.opening import SessionSetup
from relay.app.commands.sessions.outcomes import Ended, sentence
from relay.app.commands.sessions.running import leaving, spot_look
from relay.app.machine.logs import close_log, open_log
from relay.app.machine.notices import watching
from relay.app.machine.place import refuse_rerun
from relay.app.messages.endings import message
from relay.app.messages.events import line
from relay.app.models.ownloop import OwnLoopPlugin
from relay.app.terminal.progress import display
from relay.core.clock import in_main_thread
from relay.core.errors import BadConfig
from relay.core.events import Committed, SessionEvent
from relay.core.lease.signals import StopSignal, heed, listening
from relay.core.ledger.canonical import NotCanonical, dumps, loads
from relay.core.ledger.fields import METRIC_NAME
from relay.core.ledger.frozen import MAX_ENTRY_BYTES
from relay.core.ledger.target import Rule
from relay.core.runs.opening import ConfigDiffers, RunHandle, begins_by_itself, config_hash, difference, open_run
from relay.core.runs.ownloop import FORM, LONGEST_NAME, MARK, refuse_newer
from relay.core.session.context import Context, Listener, Outcome
from relay.core.settings.origins import CHECK, EXIT_NOTE, confirms_coauthor
from relay.core.workload import Workload

if TYPE_CHECKING:
    from relay.torch.ownloop import Session

PROGRESS_S = 30.0
LONGEST_CONFIG = 200_000
"""Each checkpoint has the configuration, in a file of which 2^18 bytes are read."""
USUAL_STEPS, USUAL_MINUTES = 500, 10.0
"""Not passed on if they are not changed, so that the configuration file and the environment count."""


class NotBegun(BadConfig):
    """The run does not exist in a store where only an explicit word begins one (P3)."""

    def __init__(self, run: str, address: str) -> None:
        super().__init__(f"There is no run {run} in {address}. Pass create=True once to begin it.")
        self.run, self.address = run, address


class BadCall(BadConfig):
    """An argument of `session` is wrong. `argument`: its name."""

    def __init__(self, argument: str, why: str) -> None:
        super().__init__(f"session({argument}=…): {why}.")
        self.argument = argument


def session(
    run: str,
    *,
    target_steps: int,
    store: str | None = None,
    account: str | None = None,
    config: Mapping[str, Any] | None = None,
    create: bool = False,
    every_steps: int = USUAL_STEPS,
    every_minutes: float = USUAL_MINUTES,
    budget_minutes: float | None = None,
    wait_minutes: float = 0.0,
    monitor: str | None = None,
    mode: Literal["min", "max"] = "min",
    deterministic: bool = False,
    listener: Listener | None = None,
) -> Session:
    """A session of `project/run` (or of a run in the settings' project) as a context manager.

    config: plain values that the run pins when it begins; another one is refused later. create: may begin the run in a
    store that is not on this machine. monitor, mode: the metric of `Session.evaluate` that chooses the best checkpoint.
    listener: receives the events in place of the lines on stderr. Other settings come from the configuration file and
    the environment, as for the command line.
    """
    from relay.torch.checkloop import Trace
    from relay.torch.ownloop import Session

    if mode not in ("min", "max"):
        raise BadCall("mode", f"min or max, not {mode!r}")
    if monitor is not None and not (len(monitor) <= LONGEST_NAME and re.fullmatch(METRIC_NAME, monitor)):
        raise BadCall("monitor", f"the name of a metric, {LONGEST_NAME} ASCII characters at most")
    if not wait_minutes >= 0:
        raise BadCall("wait_minutes", f"0 or more, not {wait_minutes!r}")
    if type(target_steps) is not int or target_steps < 1:
        raise BadCall("target_steps", f"a positive whole number, not {target_steps!r}")
    pinned = {MARK: FORM, "config": dict(config or {}), "mode": mode} | ({"monitor": monitor} if monitor else {})
    try:  # as the run's first entry has it; state.json has it with spaces
        loads(dumps({"body": {"change": {"config": pinned}}}), MAX_ENTRY_BYTES)
    except NotCanonical as error:
        raise BadCall("config", str(error)) from error
    if len(json.dumps(pinned, indent=1)) > LONGEST_CONFIG:
        raise BadCall("config", f"{LONGEST_CONFIG:,} characters at most")
    checked = json.loads(os.environ.get(CHECK) or "null")
    if checked:
        store, target_steps, account, every_steps, create = checked["store"], checked["steps"], "check", 10**9, True
        listener = Listener()
    project, _, name = run.rpartition("/")
    flags = {
        "project": project or None,
        "run": name,
        "target_steps": target_steps,
        "storage.url": store,
        "account": account,
        "budget_minutes": budget_minutes,
        "checkpoint.every_steps": every_steps if every_steps != USUAL_STEPS else None,
        "checkpoint.every_minutes": every_minutes if every_minutes != USUAL_MINUTES else None,
    }
    if checked:  # nothing goes to the run's own stores
        flags |= {"storage.ledger_url": store, "storage.checkpoint_url": store}
    opening = LoopOpening(pinned, flags, create, wait_minutes, deterministic, listener)
    return Session(opening, Trace(Path(checked["trace"]), checked["stop"]) if checked else None)


class LoopSetup(SessionSetup):
    """The preparation of a session whose workload is the caller's."""

    def _compare(self, opened: RunHandle, workload: Workload, config: dict[str, Any]) -> None:
        """Raises ConfigDiffers (78)."""
        if config_hash(config) != opened.view.state.config_hash:
            pinned = opened.ledger.genesis().config
            refuse_newer(opened.names.run, pinned)
            raise ConfigDiffers(opened.names.run, difference(pinned, config), ())


class LoopOpening:
    """Settings, stores, signals and log of one session; see relay/torch/ownloop.py."""

    def __init__(
        self,
        pinned: dict[str, Any],
        flags: Mapping[str, object],
        create: bool,
        wait_minutes: float,
        deterministic: bool,
        listener: Listener | None,
    ) -> None:
        self.pinned, self.deterministic = pinned, deterministic
        self._flags, self._create, self._wait, self._listener = flags, create, wait_minutes, listener
        self.about = {key: flags[key] for key in ("project", "run", "target_steps")}
        self._stop, self._stack = StopSignal(), ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            self._app = app = App(plugin=OwnLoopPlugin(self.pinned))
            refuse_rerun(app.machine)
            resolved = app.settle(flags=self._flags)
            settings = resolved.settings
            self._shown = display(app.runtime, PROGRESS_S, app.plugin.measures.short, app.environ)
            stack.callback(self._shown.close)
            if in_main_thread():
                stack.enter_context(
                    listening(self._stop, app.runtime, leaving(app, False, self._shown), lambda e: self.tell(line(e)))
                )
            stack.enter_context(watching(spot_look(app, settings), app.runtime, self._stop, self.tell))
            folder = resolved.path(settings.sync_dir) / "logs"
            open_log(folder, f"{settings.run}_{settings.account}", app.runtime.wall(), app.secrets)
            stack.callback(close_log)
            self._setup = LoopSetup(
                app, resolved, self._shown, self._stop, self._wait, coauthor=confirms_coauthor(app.environ)
            )
            stack.callback(self._leave)
            self._stack = stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def context(self, workload: Workload) -> Context:
        """Open or begin the run, check the account, and build the session's context."""
        setup, stores = self._setup, self._setup.stores
        settings, by_itself = setup.resolved.settings, begins_by_itself(stores.ledger)
        setup.here.enrol()
        met(setup)
        known_run = open_run(stores, settings.project, settings.run)
        if known_run is None and not (by_itself or self._create):
            raise NotBegun(f"{settings.project}/{settings.run}", stores.ledger.address)
        setup.ask(known_run.view.state if known_run else None)
        if not by_itself:
            setup.account()
        setup.startup.mark("data", self._app.runtime.monotonic())
        opened = setup.begin(workload, init=self._create)
        known = setup.account()
        assert settings.target_steps is not None
        aim = Aim(settings.target_steps, Rule.RAISE)
        self._shown.aim(aim.target(opened.view.state))
        context = setup.context(opened, known, workload, workload.config(), aim)
        context.plan = replace(context.plan, crashes_halt=False, evaluate_every=0, test_rows=0)
        if self._listener is not None:
            context.listener = replace(self._listener, event=self._noted(self._listener.event))
        else:
            followed(
                context.listener, setup.here, self._shown, self.tell, known, context.plan.wait_s, aim.steps
            )  # fmt: skip
        heed(self._stop)
        return context

    def _noted(self, event: Callable[[SessionEvent], None]) -> Callable[[SessionEvent], None]:
        """The user's own listener, which also notes commits for the guard of a rented machine."""

        def both(happened: SessionEvent) -> None:
            if isinstance(happened, Committed) and happened.source == "training":
                self._setup.note_commit(happened.step)
            event(happened)

        return both

    def tell(self, text: str) -> None:
        """Print one line, unless a listener takes its place."""
        if self._listener is None:
            self._shown.tell(text)

    def over(self, outcome: Outcome | None) -> None:
        """Report the end, also to the command that started the script."""
        if outcome is None:
            return
        ended = Ended(outcome, message(outcome))
        self.tell(sentence(ended))
        note = os.environ.get(EXIT_NOTE)
        if note:
            with suppress(OSError):
                Path(note).write_text(json.dumps({"exit_code": int(outcome.exit_code)}))

    def _leave(self) -> None:
        if not (self._stop.under_lease or self._stop.at_once):
            self._setup.here.leave()
