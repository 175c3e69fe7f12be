"""The decorator that makes a function a command, with shared options, settings, stores and one printed answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from relay.app.commands import completing
from relay.app.commands.common import App, emit
from relay.app.commands.joining import require
from relay.app.commands.reading import Overview, names_in, overview, overview_in
from relay.app.commands.stores import open_stores, writing_accounts
from relay.app.redact import nameless
from relay.core.errors import Exit
from relay.core.runs.opening import Pair, RunHandle
from relay.core.settings.config import FILE_NAME, Resolved, Settings
from relay.people.accounts import Accounts
from relay.people.status import RunStatus

Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="The store may vanish with this machine.")]
SHARED: dict[str, tuple[Any, object]] = {
    "overrides": (
        Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[KEY=VALUE]...",
                help="Settings, e.g. batch_size=64.",
                show_default=False,
                autocompletion=completing.settings,
            ),
        ],
        None,
    ),
    "run": (
        Annotated[
            str | None, typer.Option("--run", "-r", help="Name of the run, or PROJECT/NAME.", show_default=False)
        ],
        None,
    ),
    "account": (
        Annotated[str | None, typer.Option("--account", "-a", help="Id of the account.", show_default=False)],
        None,
    ),
    "config": (
        Annotated[
            Path | None,
            typer.Option("--config", help=f"Configuration file instead of {FILE_NAME}.", show_default=False),
        ],
        None,
    ),
    "ephemeral": (Ephemeral, False),
}
"""Options that several commands share, by the name under which a command asks for them, each with its default."""
REDACT = Annotated[
    bool, typer.Option("--redact", help="Ids in place of labels, no person, no address: for strangers to read.")
]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
FLAGS = ("run", "account", "ephemeral")
"""Shared options that are settings of the same name."""


@dataclass
class Call:
    """One invocation of a command: its surroundings and the shared options."""

    app: App
    overrides: Sequence[str] | None = None
    config: Path | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    redact: bool = False
    as_json: bool = False

    @cached_property
    def resolved(self) -> Resolved[BaseModel]:
        """The settings. Raises BadConfig (78)."""
        return self.settle()

    @property
    def settings(self) -> Settings:
        """The settings of the relay, without those of the workload."""
        return self.resolved.settings

    def settle(
        self, flags: Mapping[str, object] | None = None, store: bool = True, joins: bool = False
    ) -> Resolved[BaseModel]:
        """Return the settings with `flags` added. Without `store`, no credentials are looked up.

        `joins`: the caller validates the workload's settings, on top of those of a run that exists. Those that wait for
        the run's task are validated when the run is opened. Raises BadConfig (78).
        """
        resolved = self.app.settle(self.overrides, self.config, {**self.flags, **(flags or {})}, store)
        if not joins and not resolved.training.waits_for_run:
            _ = resolved.workload
        return resolved

    def stores(self, read_only: bool = True) -> Pair:
        """Return clients for the stores."""
        return open_stores(self.app, self.resolved, read_only)

    def require(self, read_only: bool = True) -> tuple[RunHandle, Pair]:
        """Return the run and its stores. Raises BadConfig (78) if the run has not begun."""
        return require(self.app, self.resolved, read_only)

    def accounts(self) -> Accounts:
        """Return the accounts for writing; a store that may begin by itself begins now."""
        return writing_accounts(self.app, self.resolved)

    def overview(self, of_people: bool = False) -> Overview:
        """Return the view of the run together with everything that was read for it. Raises UnknownRun (78).

        `of_people`: accounts are shown, so the run need not exist.
        """
        return overview(self.app, self.resolved, self.redact, of_people)

    def view(self, people: bool = True, of_people: bool = False) -> RunStatus:
        """Return the view of the run, also if the store holds no run at all or does not exist.

        `people`: with the accounts. `of_people`: only accounts are shown, so the run need not exist.
        """
        return overview_in(self.stores(), self.app, self.resolved, self.redact, people, of_people).view

    def names(self, stores: Pair) -> dict[str, str]:
        """Return the names to replace in an answer under --redact, with their replacements."""
        return names_in(stores) if self.redact else {}


@dataclass(frozen=True)
class Answer:
    """The result of a command: a document for tools, the same as text for people, and the exit code."""

    document: Mapping[str, Any]
    text: str
    code: int = Exit.OK
    names: Mapping[str, str] = field(default_factory=dict)
    """Names to replace in both, with their replacements."""


def subcommand(shares: str = "overrides run config") -> Callable[[Callable[..., Answer | None]], Callable[..., None]]:
    """Make a function a command. Its `call` parameter becomes the options in `shares`, and --json is added.

    The returned answer is printed as a document or as text. A command that prints its own output returns None.
    """
    names = shares.split()

    def decorate(function: Callable[..., Answer | None]) -> Callable[..., None]:
        @wraps(function)
        def invoked(context: typer.Context, as_json: bool = False, **given: Any) -> None:
            shared = {name: given.pop(name) for name in names}
            flags = {name: None if (value := shared.pop(name)) is False else value for name in FLAGS if name in shared}
            project, _, name = str(flags.get("run") or "").rpartition("/")
            if project and name:  # as `relay.session` takes it
                flags |= {"project": project, "run": name}
            call = Call(surroundings(context), flags=flags, as_json=as_json, **shared)
            answer = function(call=call, **given)
            if answer is not None:
                document, text = nameless(answer.document, answer.names), nameless(answer.text, answer.names)
                emit(as_json, document, text)
                if answer.code:
                    raise typer.Exit(int(answer.code))

        parameters = [_parameter("context", typer.Context, inspect.Parameter.empty)]
        for own in inspect.signature(function, eval_str=True).parameters.values():
            if own.name == "call":
                parameters += [_parameter(name, *SHARED[name]) for name in names if name != "redact"]
            else:
                parameters.append(_parameter(own.name, own.annotation, own.default))
        parameters += [_parameter("redact", REDACT, False)] * ("redact" in names)
        parameters.append(_parameter("as_json", JSON, False))
        invoked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoked.__annotations__ = {one.name: one.annotation for one in parameters}
        return invoked

    return decorate


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def surroundings(context: typer.Context) -> App:
    """Return the App of this invocation."""
    assert isinstance(context.obj, App)
    return context.obj
