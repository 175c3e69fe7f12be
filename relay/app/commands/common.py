"""Shared by all commands: the surroundings as values, the settings, and the printing of results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import relay
from relay.app.machine.cards import Card, visible_cards
from relay.app.machine.env import Machine, detect
from relay.app.machine.secretchain import ASKED, CACHE_KEY, OWNER, WANDB_KEY, Chain, vault_of
from relay.app.machine.tokenfile import kept
from relay.app.messages.wording import harmless
from relay.app.models.ownloop import OwnLoopPlugin
from relay.app.models.plugin import Models, TaskPlugin
from relay.app.redact import output, secrets_of
from relay.app.terminal.cells import in_ascii
from relay.app.terminal.color import colored
from relay.app.terminal.paragraphs import folded_for
from relay.app.terminal.streams import Streams
from relay.app.terminal.terminal import utf8
from relay.core.clock import RealRuntime, Runtime
from relay.core.lease.processage import process_age
from relay.core.ledger.atrest import halted_elsewhere, surroundings_of
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule, refuse_lower, target_after
from relay.core.runs.ownloop import is_own_loop
from relay.core.settings.config import Resolved, Settings, configuration_in, leaves, resolve
from relay.core.settings.origins import task_in


@dataclass
class App:
    """The surroundings of one invocation, as values that tests can set."""

    plugin: TaskPlugin
    """The model at hand: of the task that is given, then of the run."""
    models: Models | None = None
    """All models; None if `plugin` is the only one."""
    runtime: Runtime = field(default_factory=RealRuntime)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    cwd: Path = field(default_factory=Path.cwd)
    root: Path = Path("/")
    """Root of the file system, for inspecting the machine."""
    started: float = 0.0
    """Process start on the runtime's monotonic clock."""
    session: str = ""
    """32 random hexadecimal digits, new for each process (P5)."""
    cards: Callable[[], Sequence[Card]] = visible_cards
    """Lists this machine's GPUs."""
    export: Callable[[Mapping[str, str]], None] = field(default=os.environ.update, repr=False)
    """Exports the secrets that were found to the storage libraries, and to processes that a notebook starts later."""
    streams: Streams = field(default_factory=Streams, repr=False)
    """Wraps stdout and stderr."""
    chain: Chain = field(init=False)
    usual: TaskPlugin = field(init=False)
    """The default model."""
    secrets: frozenset[str] = field(init=False, repr=False)
    """Every secret that this process knows: from the environment, a notebook's secrets, the command line, settings."""

    def __post_init__(self) -> None:
        self.secrets, self.usual = secrets_of(self.environ), self.plugin
        self.streams.mask = lambda text: output(text, self.secrets)
        self.session = self.session or self.runtime.token()
        if not self.started:
            self.started = self.runtime.monotonic() - (process_age(self.root) or 0.0)
        asked = bool(self.environ.get(ASKED))
        self.chain = Chain(None if asked else vault_of(self.machine.provider))

    @property
    def machine(self) -> Machine:
        """The machine on which this process runs."""
        return detect(self.environ, self.runtime.wall(), self.root)

    def settle(
        self,
        overrides: Sequence[str] | None = None,
        config: Path | None = None,
        flags: Mapping[str, object] | None = None,
        store: bool = True,
    ) -> Resolved[BaseModel]:
        """Merge and validate all sources of settings. With `store`, also look up a notebook's secrets.

        Raises BadConfig (78).
        """
        resolved = self._settle(overrides, config, flags)
        self.hide(resolved.texts())
        if not store:
            return resolved
        if not resolved.addresses and self._learn(self.chain.addresses(self.environ)):
            resolved = self._settle(overrides, config, flags)
        of = resolved.settings
        self._learn(kept(self.environ, (resolved.ledger_url, resolved.checkpoint_url)))
        extras = (OWNER, *((CACHE_KEY,) * of.cache.allow), *((WANDB_KEY,) * ("wandb" in of.trackers)))
        self._learn(self.chain.credentials(self.environ, (resolved.ledger_url, resolved.checkpoint_url), extras))
        return self._told(resolved)

    def hide(self, texts: Iterable[str]) -> None:
        """Keep the secrets of addresses in these texts out of everything that is written from now on."""
        self.secrets |= frozenset(secret for text in texts for secret in secrets_of({"": text}))

    def _learn(self, found: Mapping[str, str]) -> bool:
        self.environ = {**self.environ, **found}
        self.secrets |= secrets_of(found)
        self.export(found)
        return bool(found)

    def _told(self, resolved: Resolved[BaseModel]) -> Resolved[BaseModel]:
        """Name the secret as the origin of each setting that came from one."""
        names = {f"environment variable {name}": f"{name} of {self.chain.title}" for name in self.chain.found}
        return replace(resolved, origins={key: names.get(where, where) for key, where in resolved.origins.items()})

    def _settle(
        self, overrides: Sequence[str] | None, config: Path | None, flags: Mapping[str, object] | None
    ) -> Resolved[BaseModel]:
        named = config or (Path(self.environ["RELAY_CONFIG"]) if self.environ.get("RELAY_CONFIG") else None)
        file = self.cwd / named if named else configuration_file(self.cwd)
        foreign, strange = self._choose(file, overrides or ())
        plugin = self.plugin
        keys = [*leaves(Settings), *leaves(plugin.model), *plugin.shorthands, *strange]
        command = plugin.translated(overrides or (), keys, self.cwd)
        settled = partial(
            resolve,
            file=file,
            flags=flags,
            default_task=plugin.default_task,
            defaults=plugin.defaults,
            joins=True,
            shorthands=plugin.shorthands,
            foreign=foreign,
            strange=strange,
        )
        if isinstance(command, Sequence):
            return settled(plugin.preset, plugin.model, self.environ, self.cwd, overrides=command)
        given = partial(settled, command.base, plugin.model, self.environ, self.cwd, overrides=command.overrides)
        return given(implied=plugin.implied(command, given().workload))

    def _choose(self, file: Path | None, overrides: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Take the model of the task that is given. Returns settings of the file that are for another model, and those
        of other models that only a run may bring.
        """
        if self.models is None:
            return (), ()
        task, filed = task_in(self.environ, file, overrides)
        if task:
            self.plugin = self.models.of_task(task)
        files = self.models.of_task(filed) if filed else self.usual
        mine = [*leaves(self.plugin.model), *self.plugin.shorthands]
        foreign = () if files.model is self.plugin.model else (*leaves(files.model), *files.shorthands)
        typed = {text.lstrip("+").partition("=")[0] for text in overrides if "=" in text}
        unknown = not task and typed - {*mine, *leaves(Settings)}
        return foreign, self.models.settings() if unknown else ()

    def model_of(self, pinned: Mapping[str, Any]) -> TaskPlugin:
        """The model that trains a run with this configuration."""
        if is_own_loop(pinned):
            return OwnLoopPlugin(pinned)
        return self.of_task(str(pinned.get("task")))

    def of_task(self, task: str) -> TaskPlugin:
        """The model of a task."""
        return self.models.of_task(task) if self.models else self.plugin

    @property
    def by_script(self) -> bool:
        """Whether a script of its own trains the run at hand."""
        return isinstance(self.plugin, OwnLoopPlugin)


@dataclass(frozen=True)
class Aim:
    """The number of steps that a session brings, and its effect on the run's target."""

    steps: int
    rule: Rule

    def target(self, state: RunState | None) -> int:
        """Return the run's target under this session. Raises LowerTarget or TargetBehind (78)."""
        if state is None:
            return self.steps
        refuse_lower(state, self.steps, self.rule)
        return target_after(state, self.steps, self.rule)


def aim_of(app: App, resolved: Resolved[BaseModel], new_target: int | None = None) -> Aim:
    """Return the target that the user asked for: a new one for everybody, one that may only rise, or the run's own."""
    if new_target is not None:
        return Aim(new_target, Rule.REPLACE)
    asked = resolved.settings.target_steps
    return Aim(asked, Rule.RAISE) if asked else Aim(app.plugin.target(resolved.workload), Rule.KEEP)


def target_of(app: App, resolved: Resolved[BaseModel], state: RunState | None) -> int:
    """Return the run's target; for a run without one, the target asked for or the task's."""
    own = state.target_steps if state else 0
    return own or resolved.settings.target_steps or app.plugin.target(resolved.workload)


def goes_on_here(app: App, resolved: Resolved[BaseModel], state: RunState) -> bool:
    """Return whether a session of this machine resumes a halted run, because only other surroundings failed (P10)."""
    if state.halted is None:
        return False
    device = app.plugin.device(resolved.settings.device)
    return halted_elsewhere(state, surroundings_of(app.plugin.fingerprint(resolved.workload, device)))


def configuration_file(cwd: Path) -> Path | None:
    """Return the configuration file of this folder, or of the checkout; None if neither has one."""
    return configuration_in(cwd) or configuration_in(Path(relay.__file__).parent.parent)


def tell_secrets(app: App) -> None:
    """Print advice for a notebook's secrets that could not be read."""
    for line in app.chain.advice:
        say(line)


def emit(as_json: bool, document: Mapping[str, Any], text: str) -> None:
    """Print the one answer on stdout: a document for tools, or a text for people."""
    if as_json:
        print(json.dumps(document, ensure_ascii=True, allow_nan=False), flush=True)
    elif text := harmless(text):
        text = folded_for(sys.stdout, text)
        print(colored(text if speaks_utf8() else in_ascii(text), sys.stdout), flush=True)


def say(text: str) -> None:
    """Print a line for people on stderr, while something runs."""
    print(folded_for(sys.stderr, harmless(text)), file=sys.stderr, flush=True)


def speaks_utf8() -> bool:
    """Return whether stdout can print every character."""
    return utf8(getattr(sys.stdout, "encoding", None))
