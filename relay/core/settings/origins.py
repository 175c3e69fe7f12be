"""Reads settings from a file, the environment and the command line as untyped texts with their origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import yaml

from relay.core.errors import BadConfig
from relay.core.names import nearest
from storage.regular import regular

Value = str | list["Value"] | None
MAX_DEPTH = 8
MOST_NODES = 100_000
"""Values of a file."""

ENVIRONMENT_NAMES = {
    "account": "ACCOUNT_ID",
    "run": "RUN_NAME",
    "storage.url": "RELAY_STORE",
    "storage.ledger_url": "RELAY_LEDGER_STORE",
    "storage.checkpoint_url": "RELAY_CHECKPOINT_STORE",
    "cache.allow": "RELAY_CACHE",
}
"""Keys whose variable is not `RELAY_` plus the key in capitals."""

CPU = "RELAY_CPU"
COAUTHOR = "RELAY_COAUTHOR"
"""A participant's own confirmation, so never a setting: a shared file must not give it."""
EXIT_NOTE = "RELAY_EXIT_NOTE"
"""File in which a session of a user's own loop leaves its exit code, for the command that started the script."""
LEADER = "RELAY_LEADER"
"""The process id of the first of several processes that share each step; set for all of them."""
CHECK = "RELAY_CHECK"
"""What a session of a user's own loop does while a command checks the script, as JSON."""
GUARD = "RELAY_GUARD"
"""Folder in which sessions leave notes for the guard of a rented machine."""
READ_ELSEWHERE = frozenset(
    {CPU, COAUTHOR, "RELAY_CONFIG", "RELAY_CACHE_KEY", "RELAY_OWNER", "RELAY_SEED", "RELAY_ZONE"}
    | {"RELAY_DRIVE_TOKEN", "RELAY_DRIVE_TOKEN_FILE", "RELAY_DRIVE_OWN_ACCOUNT"}
    | {EXIT_NOTE, LEADER, CHECK, GUARD, "RELAY_GUARD_ADDRESS", "RELAY_SPOT_ADDRESS", "RELAY_WEBHOOK", "RELAY_NOTEBOOK"}
)
"""Variables of the relay that are not settings."""


class Fault(StrEnum):
    """The fault of a given setting or source of settings."""

    UNKNOWN = "unknown"
    UNKNOWN_VARIABLE = "unknown variable"
    GROUP = "group"
    """The key names a group of settings."""
    INVALID = "invalid"
    """The setting cannot have this value."""
    NOT_YES_OR_NO = "not yes or no"
    NOT_A_PAIR = "not a pair"
    """A word on the command line without a key or without =."""
    REFERENCE = "reference"
    """A value that refers to another one."""
    NO_FILE = "no file"
    UNREADABLE = "unreadable"
    """A file, or a list or mapping in a text, cannot be read."""
    NOT_YAML = "not YAML"
    FORM = "form"
    """Lines or values that do not have the form of settings."""
    TWICE = "twice"
    NO_HOME = "no home"
    """A path in an unknown home folder."""


class BadSetting(BadConfig):
    """A setting, or a source of settings, is invalid."""

    def __init__(self, fault: Fault, sentence: str, near: str | None = None, options: Sequence[str] = ()) -> None:
        """`near`: the known name closest to an unknown one; `options`: the settings of a group."""
        super().__init__(sentence)
        self.fault, self.near, self.options = fault, near, tuple(options)


@dataclass(frozen=True)
class Given:
    """One setting as given. Texts stay texts, so that `run=007` keeps its zeros; None is a bare null."""

    key: str
    value: Value
    origin: str
    filed: bool = False
    """Whether it is a line of a configuration file, which may only repeat a default."""


def confirms_coauthor(environ: Mapping[str, str]) -> bool:
    """Whether RELAY_COAUTHOR=1. Raises BadSetting (78) for a value that is neither yes nor no."""
    text = environ.get(COAUTHOR, "").strip().lower()
    if text not in ("", "0", "1", "true", "false", "yes", "no", "on", "off"):
        raise BadSetting(Fault.NOT_YES_OR_NO, f"{COAUTHOR} must be 1 or 0, not {text[:40]!r}.")
    return text in ("1", "true", "yes", "on")


def variable(key: str) -> str:
    """The environment variable that sets a key."""
    return ENVIRONMENT_NAMES.get(key, "RELAY_" + key.upper().replace(".", "_"))


def from_environment(environ: Mapping[str, str], keys: Sequence[str]) -> list[Given]:
    """Settings in the environment. Empty variables count as unset. Raises BadSetting (78) for an unknown RELAY_ one."""
    names = {variable(key): key for key in keys}
    found = []
    for name, text in sorted(environ.items()):
        if name in names and text:
            found.append(Given(names[name], text, f"environment variable {name}"))
        elif name.startswith("RELAY_") and name not in names and name not in READ_ELSEWHERE:
            raise BadSetting(Fault.UNKNOWN_VARIABLE, f"Unknown environment variable {name}.", _meant(name, keys))
    return [*found, *_cpu(environ.get(CPU, "").strip().lower())]


def _meant(name: str, keys: Sequence[str]) -> str | None:
    """The closest variable. One with another name than its key (RUN_NAME) is also found by the key (RELAY_RUN)."""
    known = {"RELAY_" + key.upper().replace(".", "_"): variable(key) for key in keys}
    close = nearest(name, [*known, *known.values()])
    return known.get(close, close) if close else None


def _cpu(text: str) -> Iterator[Given]:
    """RELAY_CPU=1 means device=cpu, like --cpu."""
    if text in ("1", "true", "yes", "on"):
        yield Given("device", "cpu", f"environment variable {CPU}")
    elif text not in ("", "0", "false", "no", "off"):
        raise BadSetting(Fault.NOT_YES_OR_NO, f"{CPU} must be 1 or 0, not {text!r}.")


def task_in(environ: Mapping[str, str], file: Path | None, overrides: Sequence[str]) -> tuple[str | None, str | None]:
    """(the task that is given, that of the file), each None without one. Raises BadSetting (78) for a broken file."""
    filed = next((one.value for one in (from_file(file) if file else []) if one.key == "task"), None)
    pairs = (text.lstrip("+").partition("=") for text in overrides)
    typed = [value for key, equals, value in pairs if key == "task" and equals]
    given = typed[-1] if typed else environ.get(variable("task")) or filed
    return (str(given) if given else None), (str(filed) if filed else None)


def from_command_line(overrides: Sequence[str]) -> list[Given]:
    """Settings written as key=value; a leading + or ++ is accepted and ignored."""
    found: list[Given] = []
    for text in overrides:
        key, equals, value = text.lstrip("+").partition("=")
        if not equals or not key:
            raise BadSetting(Fault.NOT_A_PAIR, f"Cannot read {text!r} on the command line.")
        if "${" in value:
            raise BadSetting(Fault.REFERENCE, f"{text!r} on the command line refers to another value.")
        found.extend(_from_text(key, value, f"command line: {text}"))
    return found


def deleted(overrides: Sequence[str], keys: Sequence[str]) -> set[str]:
    """Keys written as ~key: their values in the file and the environment are ignored."""
    found = {text[1:].partition("=")[0] for text in overrides if text.startswith("~")}
    for key in sorted(found - set(keys)):
        raise BadSetting(Fault.UNKNOWN, f"Unknown setting {key} (command line: ~{key}).", nearest(key, keys))
    return found


def from_file(path: Path) -> list[Given]:
    """Settings of a YAML file, each with its line. Anchors, tags and interpolation are not interpreted."""
    try:
        text = regular(path).read_text(encoding="utf-8")
        root = composed(text)
    except FileNotFoundError:
        raise BadSetting(Fault.NO_FILE, f"There is no configuration file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSetting(Fault.UNREADABLE, f"Cannot read the configuration file {path}: {why}.") from error
    except yaml.YAMLError as error:
        raise BadSetting(Fault.NOT_YAML, f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise BadSetting(Fault.FORM, f"{path} must hold lines of the form `key: value`.")
    return [replace(given, filed=True) for given in _flatten(root, "", path.name)]


def composed(text: str) -> yaml.Node | None:
    """The root node of one document. Uses libyaml if available (ten times faster). Raises yaml.YAMLError."""
    try:
        try:
            root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            root = yaml.compose(text, Loader=yaml.SafeLoader)  # its message shows the line
    except RecursionError:
        raise yaml.YAMLError("it nests too deeply") from None
    _check_size(root)
    return root


def _check_size(root: yaml.Node | None) -> None:
    """Raises yaml.YAMLError for too many values. Those that an alias repeats count each time: a few lines of aliases
    can stand for billions of values, or for themselves."""
    waiting, count = [root] if root else [], 0
    while waiting:
        count += 1
        if count > MOST_NODES:
            raise yaml.YAMLError(f"it stands for more than {MOST_NODES:,} values")
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _from_text(key: str, text: str, origin: str) -> Iterator[Given]:
    """A text that opens a bracket is a list or mapping in YAML's flow style; any other text is itself."""
    if not text.startswith(("[", "{")):
        yield Given(key, None if text in ("null", "~") else text, origin)
        return
    try:
        node = composed(text)
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise BadSetting(Fault.UNREADABLE, f"Cannot read the list or mapping in {origin}: {why}.") from error
    if node is not None:
        yield from _flatten_value(node, key, "", origin)


def _flatten(node: yaml.MappingNode, prefix: str, source: str, origin: str = "") -> Iterator[Given]:
    if prefix.count(".") > MAX_DEPTH:
        raise BadSetting(Fault.FORM, f"{source or origin} nests deeper than {MAX_DEPTH} levels at {prefix}.")
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        where = f"{source}:{line}" if source else origin
        if not isinstance(key_node, yaml.ScalarNode):
            raise BadSetting(Fault.FORM, f"{where}: a key must be a plain name.")
        key = prefix + key_node.value
        if key in seen:
            raise BadSetting(Fault.TWICE, f"{where}: {key} is set twice (first on line {seen[key]}).")
        seen[key] = line
        yield from _flatten_value(value_node, key, source, where)


def _flatten_value(node: yaml.Node, key: str, source: str, origin: str) -> Iterator[Given]:
    if isinstance(node, yaml.MappingNode):
        yield from _flatten(node, key + ".", source, origin)
    else:
        yield Given(key, _plain(node, origin), origin)


def _plain(node: yaml.Node, origin: str, depth: int = 0) -> Value:
    """Scalars as raw text, so that YAML 1.1 does not convert 007, on and 10:30."""
    if depth > MAX_DEPTH:
        raise BadSetting(Fault.FORM, f"{origin} nests deeper than {MAX_DEPTH} levels.")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, origin, depth + 1) for item in node.value]
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)
    raise BadSetting(Fault.FORM, f"{origin}: a list may hold plain values and lists only.")
