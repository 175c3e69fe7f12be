"""Prepares a session: settings, clocks, stores, run, account and workload; trains nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from relay.app.checks.reach import warnings as unpromised
from relay.app.checks.space import warnings
from relay.app.commands.common import Aim, App
from relay.app.commands.joining import Joined, join, record_sources
from relay.app.commands.looking.trackers import of_session
from relay.app.commands.processes import Sharing, gather, sharing
from relay.app.commands.sessions.here import Choice, LocalSessions, here
from relay.app.commands.stores import accounts, bare_client, open_stores
from relay.app.guard.notes import Note, note_commit, note_session
from relay.app.machine.place import UNKNOWN, another_card, refuse_without_gpu
from relay.app.machine.sampling import sampler
from relay.app.machine.secretchain import OWNER
from relay.app.machine.skew import clock_warning, skew
from relay.app.messages import events
from relay.app.messages.admitting import note_text, training_as
from relay.app.messages.advice import command
from relay.app.messages.handoff import command_for
from relay.app.messages.whereabouts import new_run
from relay.app.messages.wording import in_bin_text
from relay.app.providers import shipped
from relay.app.redact import redact, secrets_of
from relay.app.terminal.progress import Display, Lines
from relay.app.terminal.transfers import Count, counted, through
from relay.app.trackers.follow import Trackers
from relay.app.views.sessionstart import Forecast, device_of, schedule_line, speed_line, start_lines
from relay.app.views.sessiontext import markdown
from relay.core.budget import Limits
from relay.core.checkpoint.compilecache import WarmStart
from relay.core.errors import BadData
from relay.core.events import Activity, Committed, SessionEvent
from relay.core.gpus import gpu_name
from relay.core.lease.signals import StopSignal
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import RunState
from relay.core.names import nearest
from relay.core.runs.binned import in_bin
from relay.core.runs.opening import Pair, RunHandle, begin_run, begins_by_itself, config_hash, parse_address
from relay.core.runs.ownloop import refuse_own_loop
from relay.core.session.context import Context, Listener, Plan
from relay.core.session.timing import Startup
from relay.core.settings.config import Resolved
from relay.core.workload import Headline, Reading, Workload, check_readings
from relay.people.accounts import AccountEntry, Accounts
from relay.people.admission import Visit, admit
from relay.people.inference import infer_account
from relay.people.joining import session_context
from relay.people.owners import Inference, account_id, account_label
from relay.people.zones import reading_in
from relay.torch.launch import disband, launched
from storage.base import StoreError

LOG = logging.getLogger("relay.session")


@dataclass
class SessionSetup:
    """The state of a session before it has the lease; each method is one step of the preparation."""

    app: App
    resolved: Resolved[BaseModel]
    shown: Display
    stop: StopSignal
    wait_minutes: float = 0.0
    new: bool = False
    new_target: int | None = None
    """A target that replaces the run's for everybody."""
    coauthor: bool = False
    """Whether the person confirmed to be a co-author of the run."""
    trains: bool = True
    """If False, the workload only checks and sends local data, so any machine will do."""
    secret: bytes | None = field(default=None, repr=False)
    """Key that signs compiled code, if this machine accepts compiled code from the store."""
    slow: bool = False
    """Whether training may be slow on this machine, or nobody has measured it; then the session reports its pace."""
    forecast: Forecast | None = None
    """How this machine computes steps, as far as the model knows."""
    deadline: float = math.inf
    """End of the session, by the monotonic clock."""
    gpu: str | None = None
    """The GPU in the account's registration."""
    joined: Joined | None = None
    """The run's own settings, if it existed before this session."""
    unreadable: BadData | None = None
    """Why the run's own settings cannot be read, if they cannot."""
    admitted: bool = False
    """Whether the admission of the account was checked already."""
    log: Path | None = None
    """This session's log file."""
    note: str = ""
    """A person's remark on this session (`--note`)."""
    earlier: Choice = "refuse"
    """The action if this machine's own earlier session still runs."""
    here: LocalSessions = field(init=False)
    stores: Pair = field(init=False)
    startup: Startup = field(init=False)
    trackers: Trackers | None = field(init=False)

    def __post_init__(self) -> None:
        self.startup = Startup(self.app.started)
        self.stores = open_stores(self.app, self.resolved, read_only=False)
        self.here = here(self.app, self.resolved.settings, self.resolved.ledger_url)
        self.trackers = of_session(self.app, self.resolved, self.stores.ledger, self.tell)

    def tell(self, line: str) -> None:
        """Print a line, log it, and copy it for `--attach`."""
        LOG.info(line)
        told = redact(line, secrets_of(self.app.environ))
        self.here.mirror.tell(told)
        self.shown.tell(told)

    @property
    def tests(self) -> list[str]:
        """The readings that this session is to evaluate at the target, as their results are named."""
        evaluation = self.resolved.settings.evaluation
        also = map(Reading.of, evaluation.test_also)
        return self.app.plugin.measures.splits.tests(also) if evaluation.test_rows else []

    def workload(self, target: int, done: int = 0) -> Workload:
        """Build the workload on its device; warns if the device is slow for the task. Raises BadConfig or BadData.

        done: steps of the run so far.
        """
        plugin, settings = self.app.plugin, self.resolved.settings
        self.shown.phase("starting: loading the program and the data")
        shared = self.gather() if self.trains and launched() == 1 else None
        device = plugin.device(settings.device)
        if shared and shared.chosen and not device.startswith("cuda"):  # this torch uses no GPU
            disband()
        self.startup.mark("import", self.app.runtime.monotonic())
        mismatch = plugin.slow_here(self.resolved.workload, device) if self.trains else None
        refuse_without_gpu(mismatch, self.app.machine, meant=settings.device == "cpu")
        if mismatch:
            self.tell(f"{mismatch} {UNKNOWN}")
        config = self.resolved.workload
        if self.joined is None:
            config = plugin.with_target(config, target)
        steps = max(0, min(target, settings.until_step or target) - done) if self.trains else 0
        workload = plugin.build(config, device, self.resolved.path(settings.data_dir), self._fetching, steps)
        self.forecast = plugin.forecast(config, device, steps, workload)
        self.shown.work.short = workload.measures.short
        if self.trains:
            check_readings(workload, [Reading.of(text) for text in settings.evaluation.test_also])
            plugin.check_memory(workload)
            if settings.checkpoint_path:
                plugin.publish(workload, self.resolved.path(settings.checkpoint_path))
        remarks = plugin.remarks(workload)
        for remark in remarks:
            self.tell(remark)
        expected = self.forecast is None or self.forecast.measured
        self.slow = bool(mismatch or remarks or not expected)
        self.startup.mark("data", self.app.runtime.monotonic())
        self.startup.inside = lambda: plugin.timings(workload)
        self.shown.phase("starting: reading the run")
        return workload

    def gather(self) -> Sharing:
        """Start the processes that share each step, before torch is loaded here. Raises CannotShare (78)."""
        found = sharing(self.app, self.resolved)
        if found.note:
            self.tell(found.note)
        gather(self.app, found, self.log, self.limits().deadline)
        return found

    def _fetching(self, name: str, total: int) -> Count:
        """Show a download of data next to the phase."""
        return counted(f"fetching {name}", total, self.shown.transfer, self.app.runtime)

    def join(self, opened: RunHandle) -> None:
        """Take the settings of a run that exists as the base of this session's. Raises NewerSettings, BadSetting (78).

        If the entry with the run's settings is damaged, the given ones are compared by their hash instead.
        """
        try:
            self.joined = join(self.app, self.resolved, opened, self.stores.ledger)
        except BadData as error:
            self.unreadable = error
        else:
            refuse_own_loop(self.joined.pinned, "train it")
            self.resolved = self.joined.resolved

    def check(self) -> None:
        """Raises ConfigDiffers or DataElsewhere (78) if this session cannot train the run that exists."""
        if self.joined:
            self.joined.check()

    def begin(self, workload: Workload, init: bool = False) -> RunHandle:
        """Open the run, or begin it if it is new. Refuses other settings or data than the run's (78)."""
        settings, config = self.resolved.settings, workload.config()
        self.warn_of_stores()
        opened = begin_run(
            self.stores,
            settings.project,
            settings.run,
            config,
            new=self.new,
            ephemeral=settings.ephemeral,
            init=init,
        )
        for note in new_run(opened):
            self.tell(note)
        self._compare(opened, workload, config)
        self.warn_of_clocks()
        for line in warnings(self.resolved, opened, self.stores.checkpoints):
            self.tell(line)
        with suppress(StoreError):
            if text := in_bin_text(in_bin(self.stores.both, opened.names)):
                self.tell(f"BIN: {text}. This session takes out those that it may.")
        return opened

    def _compare(self, opened: RunHandle, workload: Workload, config: dict[str, Any]) -> None:
        """Compare the built configuration with the run's, and note where its data is. Raises BadConfig or BadData."""
        if self.unreadable is not None:
            if config_hash(config) != opened.view.state.config_hash:
                raise self.unreadable
            return
        joined = self.joined or join(self.app, self.resolved, opened, self.stores.ledger)
        joined.check_content(config)
        joined.keep()
        if joined.told is None:
            record_sources(self.app, opened, self.stores.ledger, self.resolved, workload)

    def warn_of_stores(self) -> None:
        """Warn of promises that a store cannot keep, before the first entry."""
        for store in self.stores.both:
            with suppress(StoreError):  # a store that fails now fails again at the next step
                for line in unpromised(store):
                    self.tell(f"STORE: {line}")

    def warn_of_clocks(self) -> None:
        """Warn of each store whose clock is far from this machine's. Nothing depends on the difference."""
        for store in self.stores.both:
            with suppress(StoreError):  # a store that fails now is read again for the lease
                if line := clock_warning(skew(store, self.app.runtime)):
                    self.tell(line)

    def account(self) -> Accounts:
        """Return the accounts, with the session's account among them.

        An unknown account is registered if the store may begin by itself; otherwise this raises BadConfig (78).
        """
        known, name = accounts(self.stores), self.resolved.settings.account
        if begins_by_itself(self.stores.ledger) and known.find(name) is None:
            found = self.inferred
            known.register(name, self.label, found)
            near = nearest(name, [key for key in known.ids() if key != name])
            meant = f" (this store also knows {near})" if near else ""
            self.tell(f"NEW account {name}{meant}: {', '.join(found.lines)}")
        self.gpu = known.get(name).gpu
        return known

    def visit(self, run_id: str | None) -> Visit:
        """Return the data about this session that the provider's rules need."""
        of, machine = self.resolved.settings, self.app.machine.provider
        person = self.app.environ.get(OWNER) or None
        return Visit(of.account, machine, of.run, run_id, self.coauthor, person, of.competition)

    def ask(self, state: RunState | None) -> None:
        """Raises PolicyRefused (77), before any write, if provider rules or a missing confirmation forbid training."""
        if not self.admitted:
            run_id = state.run_id if state else None
            known, visit = accounts(self.stores), self.visit(run_id)
            listed = known.find(visit.account)
            notes = list(admit(visit, listed, known.providers, self.app.runtime.wall()))
            self.introduce(listed)
            for note in notes:
                self.tell(note_text(note))
        self.admitted = True

    def introduce(self, listed: AccountEntry | None) -> None:
        """Print as whom this session trains. `listed`: the registered account."""
        name = self.resolved.settings.account
        if listed is None and begins_by_itself(self.stores.ledger):
            self.tell(training_as(name, self.label, self.inferred.owner or name, new=True))
        elif listed and listed.account:
            self.tell(training_as(name, listed.label, listed.account.owner, new=False))

    @cached_property
    def inferred(self) -> Inference:
        """Owner and provider of an account that this session would register."""
        app, name = self.app, self.resolved.settings.account
        advice = f"set your name: `{command('accounts edit', None, name, '--owner', 'NAME')}`"
        found = infer_account(name, None, app.machine.provider, app.environ, app.runtime, shipped(), advice)
        return replace(found, provider_from="this machine")

    @property
    def label(self) -> str:
        """The label of an account that this session would register: Ana's Colab for ana-colab, otherwise the id."""
        name, found = self.resolved.settings.account, self.inferred
        owner = found.owner or name
        return account_label(owner, found.provider) if name == account_id(owner, found.provider) else name

    def unknown_account(self) -> str:
        """Return a sentence for an unregistered account when the target is reached; empty for a registered one."""
        name = self.resolved.settings.account
        ids = accounts(self.stores).ids()
        if name in ids:
            return ""
        near = nearest(name, ids)
        return f" No account {name} is registered{f' (did you mean {near}?)' if near else ''}."

    def context(
        self, opened: RunHandle, known: Accounts, workload: Workload, config: dict[str, Any], aim: Aim
    ) -> Context:
        """Build the context for `run_session`."""
        app, resolved, run_id = self.app, self.resolved, opened.view.state.run_id
        plan = self.plan(aim)
        context = session_context(
            self.stores,
            opened,
            bare_client(app, parse_address(resolved.ledger_url).url),
            resolved.home,
            self.here.locks,
            known,
            self.visit(run_id),
            workload,
            config,
            plan,
        )
        if line := another_card(self.gpu, gpu_name(context.facts.fingerprint)):
            self.tell(line)
        self.deadline = plan.limits.deadline
        self.shown.ends(self.deadline)
        self.shown.phase("")
        of = resolved.settings
        note_session(app.environ, Note(of.project, of.run, of.account, str(app.cwd)))
        label, headline = known.label_of(of.account), workload.measures.headline
        words = words_of(label, resolved.variables, headline, app.by_script)
        return replace(
            context,
            signal=self.stop,
            listener=Listener(self.event, self.shown.step, transfer=through(self.shown.transfer, app.runtime)),
            startup=self.startup,
            warm=self.warm(workload),
            observer=self.trackers,
            meter=sampler(app.runtime) if self.trains else None,
            desk=replace(context.desk, cloud=app.machine.cloud, words=words),
        )

    def describe(self, state: RunState, workload: Workload, target: int) -> None:
        """Print the session's work, and how fast it should be."""
        about = self.app.plugin.about(self.resolved.workload, workload)
        fingerprint = dict(workload.fingerprint())
        device, store = device_of(fingerprint) or "unknown", self.stores.ledger.address
        for line in start_lines(state.run, state.step, target, about, device, launched(), store):
            self.tell(line)
        end = self.app.plugin.schedule_end(self.app.plugin.with_target(self.resolved.workload, target))
        if end is not None and end < target:
            self.tell(schedule_line(state.run, end, target))
        if self.forecast is not None:
            left = self.deadline - self.app.runtime.monotonic()
            self.tell(speed_line(self.forecast, left, target - state.step))

    def warm(self, workload: Workload) -> WarmStart | None:
        """Return the compile cache if it is allowed. Prints a line if this training compiles nothing."""
        if self.secret is None:
            return None
        kernels = self.app.plugin.kernels(workload)
        if kernels is None:
            self.tell("Compile cache: not needed, this training compiles nothing here.")
            return None
        return WarmStart(self.app.runtime, self.stores.checkpoints, kernels, self.secret, self.event)

    def plan(self, aim: Aim) -> Plan:
        """Return the plan of the session from the settings."""
        if self.outlived:
            machine = self.app.machine
            self.tell(
                f"This machine has outlived the {machine.limit_minutes:g} minutes known for {machine.provider}: "
                "no limit is assumed."
            )
        return Plan.of(
            self.resolved.settings,
            aim.steps,
            aim.rule,
            limits=self.limits(),
            wait_s=self.wait_minutes * 60,
            report_pace=self.slow,
            note=redact(self.note, self.app.secrets),
        )

    @property
    def outlived(self) -> bool:
        """Whether this machine is older than the known limit of its provider: that limit is wrong, and is ignored."""
        machine, known = self.app.machine, not self.resolved.settings.session_limit_minutes
        return known and (machine.age_s or 0.0) > 60 * (machine.limit_minutes or math.inf)

    def limits(self) -> Limits:
        """Return the time limits of session and machine."""
        settings, machine, now = self.resolved.settings, self.app.machine, self.app.runtime.monotonic()
        limit = None if self.outlived else settings.session_limit_minutes or machine.limit_minutes
        return Limits(
            started=self.app.started,
            budget_s=settings.budget_minutes * 60 if settings.budget_minutes else None,
            machine_started=now - machine.age_s if machine.age_s is not None else self.app.started,
            machine_limit_s=limit * 60 if limit else None,
        )

    def event(self, event: SessionEvent) -> None:
        """Show and log an event of the session."""
        if isinstance(event, Activity):
            self.shown.phase(events.activity(event))
        elif text := events.line(event):
            self.tell(text)
        if isinstance(event, Committed) and event.source == "training":
            self.shown.committed(event.step)
            self.note_commit(event.step)

    def note_commit(self, step: int) -> None:
        """Note a committed step for the guard of a rented machine, if one watches."""
        note_commit(self.app.environ, step, self.app.runtime.monotonic())


def without_training(app: App, resolved: Resolved[BaseModel]) -> SessionSetup:
    """Return the setup for a command that begins a run and trains nothing."""
    return SessionSetup(app, resolved, Lines(0, app.runtime.monotonic, 30.0), StopSignal(), new=True, trains=False)


def words_of(label: str, stores: Mapping[str, str], headline: Headline, script: bool) -> Callable[[SessionReport], str]:
    """Return a function that formats a report. `stores`: the variables that the next person must set, with values."""

    def words(report: SessionReport) -> str:
        command = command_for(report.next, report.run, stores, script) if report.next else None
        with reading_in("UTC"):  # the report is stored and read in every time zone
            return markdown(report, headline, label, command)

    return words
