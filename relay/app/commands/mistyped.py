"""Adds the fix to the parser's refusals: words of other programs, settings typed as options, missing words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from typer.core import TyperGroup

from relay.app.messages.advice import command
from relay.core.settings.config import Settings, leaves
from relay.core.settings.validating import meant

MEANT = {
    **dict.fromkeys(("train", "start", "begin", "continue"), "run"),
    **dict.fromkeys(("list", "ls", "runs ls"), "runs list"),
    **dict.fromkeys(("info", "state"), "status"),
    **dict.fromkeys(("show", "progress", "runs show"), "report"),
    **dict.fromkeys(("history", "log", "logs", "sessions"), "report --sessions"),
    **dict.fromkeys(("delete", "rm", "remove", "runs rm", "runs remove"), "runs delete NAME"),
    **dict.fromkeys(("add", "join", "account", "accounts add", "accounts register"), "register ID LABEL"),
    **dict.fromkeys(("accounts delete", "accounts rm", "accounts remove"), "accounts forget ID"),
    **dict.fromkeys(("settings", "config list", "config get"), "config show"),
    **dict.fromkeys(("set", "config set"), "run KEY=VALUE"),
    **dict.fromkeys(("check", "diagnose"), "doctor"),
    **dict.fromkeys(("eval", "test", "score"), "evaluate"),
    **dict.fromkeys(("setup", "install", "download"), "prepare"),
}
"""Words of other programs for our commands."""
OTHER_OPTIONS = {"store": "storage.url", "data": "data.train"}
"""Options of other programs that are settings under another name."""


class Group(TyperGroup):
    """A group of commands that knows the words of other programs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As in click; an unknown word with a known meaning is refused with the command."""
        inner = [ctx.info_name] if ctx.parent is not None else []
        ours = MEANT.get(" ".join([*inner, *args[:1]])) if args and args[0] not in self.commands else None
        if ours:
            ctx.fail(f"No such command {args[0]!r}. Did you mean `{command(ours)}`?")
        return super().resolve_command(ctx, args)


def with_fix(problem: Any, model: type[BaseModel], examples: Sequence[str]) -> None:
    """Add the fix to the parser's error: how to write a setting that was typed as an option, or an example of a command
    that lacks a word."""
    option = getattr(problem, "option_name", None)
    if option and hasattr(problem, "possibilities"):
        keys = [*leaves(Settings), *leaves(model)]
        key = setting_of(option, keys) or (None if problem.possibilities else meant(option.lstrip("-"), keys))
        if key:
            problem.possibilities = None
            problem.message = f"No such option: {option}. {key} is a setting: write {key}=VALUE, without dashes."
    elif type(problem).__name__ == "MissingParameter" and problem.ctx is not None:
        path = problem.ctx.command_path.partition(" ")[2]
        example = next((words for words in examples if words.startswith(f"{path} ")), None)
        if path and example:
            verb, _, rest = example.partition(" ")
            problem.message = f"Example: `{command(verb)} {rest}`"


def setting_of(option: str, keys: Sequence[str]) -> str | None:
    """The setting that an option's name stands for, also without its group: --hidden-size is arch.hidden_size."""
    name = option.lstrip("-").replace("-", "_")
    name = OTHER_OPTIONS.get(name, name)
    same = [key for key in keys if key == name] or [key for key in keys if key.rpartition(".")[2] == name]
    return same[0] if len(same) == 1 else None
