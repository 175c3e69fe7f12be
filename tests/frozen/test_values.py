"""Each value of relay/core/ledger/frozen.py is the one in tests/data/frozen/values.json, and each is noticed if it
changes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from relay.app.machine.spot import Notice
from relay.core.checkpoint.local import LocalCheckpoint
from relay.core.checkpoint.manifest import Manifest
from relay.core.ledger import frozen
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import KINDS
from relay.core.ledger.entry import Entry, decode, encode
from relay.core.ledger.ledger import Archive
from relay.core.ledger.registry import KINDS as REGISTRY_KINDS
from relay.core.ledger.registry import RegistryState
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import RunState
from relay.core.names import Names
from relay.people.account import Account, object_name

FOLDER = Path(__file__).parent.parent / "data" / "frozen"
STORED = json.loads((FOLDER / "values.json").read_text())
SHAPES = json.loads((FOLDER / "shapes.json").read_text())
DIGEST = "7827eb49f290898293a98c73f71417155ca3f062be4c5a19d7c3ce08c316317d"
"""Of all stored values. It changes when a value is added; a value that is there never changes."""
SOURCE = Path(frozen.__file__).read_text()
IMPORTED = ("annotations", "Any", "Callable", "Mapping", "Sequence", "json", "re")


def plain(value: Any) -> Any:
    """A constant as JSON holds it."""
    match value:
        case re.Pattern():
            return value.pattern
        case frozenset():
            return sorted(value)
        case tuple() | list():
            return [plain(one) for one in value]
        case dict():
            return {key: plain(one) for key, one in value.items()}
    return value


def names(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if not name.startswith("__") and name not in IMPORTED}


def called(module: ModuleType, name: str, arguments: list[Any]) -> Any:
    """A function of the module; the name of another one stands for it."""
    function = getattr(module, name)
    return function(*(getattr(module, one) if one in ("escaped",) else one for one in arguments))


def differing(module: ModuleType) -> Iterator[str]:
    """Names whose value, or what a function gives for the stored arguments, is not the stored one."""
    for name, value in STORED["constants"].items():
        if plain(getattr(module, name)) != value:
            yield name
    for name, samples in STORED["functions"].items():
        for *arguments, result in samples:
            if called(module, name, arguments) != result:
                yield f"{name}{tuple(arguments)}"


def test_every_value_is_the_stored_one() -> None:
    assert not list(differing(frozen))
    assert names(frozen) == {*STORED["constants"], *STORED["functions"], "_named"}, "a new value is stored too"
    assert hashlib.sha256(dumps(STORED)).hexdigest() == DIGEST


def changed_literals() -> Iterator[tuple[int, str, str]]:
    """The module's source with one number or one letter changed, for each literal but docstrings."""
    tree = ast.parse(SOURCE)
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in comments or not isinstance(node.value, int | float | str):
            continue
        before = node.value
        for after in [before + 1] if isinstance(before, int | float) else list(one_letter_changed(before)):
            node.value = after
            yield node.lineno, f"{before!r} -> {after!r}", ast.unparse(tree)
        node.value = before


def one_letter_changed(text: str) -> Iterator[str]:
    """The first, the middle and the last letter become the next one of Unicode."""
    for place in sorted({0, len(text) // 2, len(text) - 1}) if text else ():
        yield text[:place] + chr(ord(text[place]) + 1) + text[place + 1 :]


def notices(source: str) -> bool:
    """Whether the comparison fails for the module of this source, or the module no longer loads."""
    module = ModuleType("changed")
    try:
        exec(compile(source, "changed", "exec"), vars(module))  # noqa: S102 (our own source)
        return any(True for _ in differing(module))
    except (re.error, LookupError, ValueError, TypeError, ArithmeticError):
        return True


@pytest.mark.slow
def test_one_changed_letter_or_number_is_noticed() -> None:
    changes = list(changed_literals())
    assert len(changes) > 250
    assert not notices(SOURCE)
    assert not [(line, change) for line, change, source in changes if not notices(source)]


# --- shapes: fields, types, bounds and defaults of everything that is stored ------------------------------------------

STORED_OBJECTS = {
    "entry": Entry,
    "state of a run": RunState,
    **{f"change: {kind}": model for kind, model in KINDS.items()},
    "state of the registry": RegistryState,
    **{f"change of the registry: {kind}": model for kind, model in REGISTRY_KINDS.items()},
    "history object": Archive,
    "manifest": Manifest,
    "session report": SessionReport,
    "account object": Account,
    "checkpoint on a machine": LocalCheckpoint,
}


def shape(model: Any) -> Any:
    """A model's JSON schema without titles and descriptions, references resolved: names of classes are free."""
    schema = model.model_json_schema()
    return resolved(schema, schema.get("$defs", {}))


def resolved(node: Any, models: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [resolved(one, models) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = {**models[node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}}
    found = {}
    for key, value in node.items():
        if key == "properties":
            found[key] = {name: resolved(one, models) for name, one in value.items()}
        elif key not in ("title", "description", "$defs"):
            found[key] = resolved(value, models)
    return found


def unlike(stored: Any, now: Any, where: str = "") -> Iterator[str]:
    """Where the shapes differ; properties may be added that nobody has to give."""
    if isinstance(stored, dict) and isinstance(now, dict):
        added = now.keys() - stored.keys() if where.endswith("/properties") else set()
        for key in sorted({*stored, *now} - added):
            yield from unlike(stored.get(key), now.get(key), f"{where}/{key}")
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for number, (one, other) in enumerate(zip(stored, now, strict=True)):
            yield from unlike(one, other, f"{where}/{number}")
    elif stored != now:
        yield f"{where}: {stored!r} is {now!r} now"


@pytest.mark.parametrize("name", STORED_OBJECTS)
def test_fields_bounds_and_defaults_are_the_stored_ones(name: str) -> None:
    """What is refused, and what a field holds where nothing was said, decides states too."""
    assert not list(unlike(SHAPES[name], shape(STORED_OBJECTS[name])))


def test_no_stored_object_is_forgotten() -> None:
    assert SHAPES.keys() == STORED_OBJECTS.keys()


# --- bytes and names --------------------------------------------------------------------------------------------------


def test_canonical_bytes() -> None:
    value = {"b": [1, 1.0, 1e-07, 1e22, -0.0], "a": {"é\n": None, "": True}, "B": "\u2028/\x7f"}
    expected = rb'{"B":"\u2028/\u007f","a":{"":true,"\u00e9\n":null},"b":[1,1.0,1e-07,1e+22,-0.0]}'
    assert dumps(value) == expected
    entry = Entry(
        seq=0, base=-1, parent="0" * 64, nonce="1" * 32, kind="genesis", session="2" * 32, account=None, epoch=0,
        at=5, change={}, state={},
    )  # fmt: skip
    body = (
        b'{"account":null,"at":5.0,"base":-1,"change":{},"epoch":0,"format":3,"kind":"genesis","nonce":"%b",'
        b'"parent":"%b","seq":0,"session":"%b","state":{}}' % (b"1" * 32, b"0" * 64, b"2" * 32)
    )
    assert encode(entry) == b'{"body":%b,"sha256":"%b"}' % (body, hashlib.sha256(body).hexdigest().encode())
    assert decode(encode(entry), KINDS, 0) == entry


def test_names_of_objects() -> None:
    of = Names("pro", "run")
    assert [of.ledger, of.heartbeat(7), of.stop(7), of.history(7), of.session(7), of.fork, of.manifest(60, 7)] == [
        "runs/pro/run/ledger/",
        "runs/pro/run/heartbeat.7",
        "runs/pro/run/stop.7",
        "runs/pro/run/history/00000000000000000007.json",
        "runs/pro/run/sessions/00000000000000000007.json",
        "checkpoints/pro/run/fork",
        "checkpoints/pro/run/step_60.e7/manifest.json",
    ]
    assert object_name("account_1", "ab" * 32) == f"registry/accounts/account_1/{'ab' * 16}.json"


def test_a_spot_notice_is_told_as_readers_expect_it() -> None:
    told = f"{frozen.SPOT_NOTICE} from gcp, 25 s left"
    assert Notice("gcp", 24.6).text == told
