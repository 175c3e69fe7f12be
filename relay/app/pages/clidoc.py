"""Writes docs/reference/cli.md from the program's commands (python -m relay.app.pages.clidoc)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
TITLE = """# Commands
`python rotate_accounts.py COMMAND`, which is `trm-relay COMMAND` where the package is installed. Settings are
given as `key=value`; `config show --origin` prints all of them. With `--json` exactly one document goes to stdout,
also for an error (`relay.error/1`); everything meant for people then goes to stderr.

*This page is written by `python -m relay.app.pages.clidoc`; a test fails while it is out of date.*
"""
EXITS = """## Exit codes
[What each means, and what to do](../how-to/mend.md#exit-codes)."""

Named = tuple[str, Callable[..., Any]]


def commands(app: typer.Typer, prefix: str = "") -> Iterator[Named]:
    """Yield (words on the command line, function) of every command."""
    for command in app.registered_commands:
        if command.callback is not None and not command.hidden:
            yield f"{prefix}{command.name or command.callback.__name__}", command.callback
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance, f"{prefix}{group.name} ")


def page(app: typer.Typer) -> str:
    """Return the whole page, Markdown."""
    return "\n\n".join([TITLE.rstrip(), EXITS, *(section(name, body) for name, body in commands(app))]) + "\n"


def section(name: str, body: Callable[..., Any]) -> str:
    """Return the section of one command: description, arguments and options."""
    rows = [row for row in map(_row, parameters(body)) if row]
    about = inspect.getdoc(body) or ""
    return "\n".join([f"## {name}", about, "", "| argument or option | meaning | default |", "|---|---|---|", *rows])


def parameters(body: Callable[..., Any]) -> Iterator[tuple[str, Any, OptionInfo | ArgumentInfo, Any]]:
    """Yield (name, type, Typer info, default) of each parameter that users can pass."""
    hints = get_type_hints(body, include_extras=True)
    for name, parameter in inspect.signature(body).parameters.items():
        kind, *about = get_args(hints[name]) or (None,)
        for info in about:
            if isinstance(info, OptionInfo | ArgumentInfo):
                yield name, kind, info, parameter.default


def spelled(name: str, kind: Any, info: OptionInfo | ArgumentInfo) -> str:
    """Return the parameter as typed: `--run, -r TEXT`, `ID`."""
    if isinstance(info, ArgumentInfo):
        return info.metavar or name.upper()
    first = (info.default,) if isinstance(info.default, str) else ()  # where Annotated keeps the first spelling
    flags = ", ".join((*first, *(info.param_decls or ())) or (f"--{name.replace('_', '-')}",))
    return flags if kind is bool else f"{flags} {info.metavar or _kind(kind)}"


def _row(parameter: tuple[str, Any, OptionInfo | ArgumentInfo, Any]) -> str:
    name, kind, info, default = parameter
    required = "required" if default is inspect.Parameter.empty else ""
    plain = default.value if isinstance(default, Enum) else default
    shown = required or ("" if plain in (None, False, "") else f"`{plain}`")
    return f"| `{spelled(name, kind, info)}` | {info.help or ''} | {shown} |"


def _kind(kind: Any) -> str:
    """Return TEXT, INTEGER, FLOAT, PATH, or the words to choose from."""
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    return {int: "INTEGER", float: "FLOAT", Path: "PATH"}.get(kind, "TEXT")


def main() -> None:
    """Write the page."""
    from relay.app.cli import app

    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(app), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
