"""Drive's discovery documents, as the SDK carries them: methods, scopes and types; knows nothing of the fake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import googleapiclient

SCOPE = "https://www.googleapis.com/auth/"
FORMATS = {"int64": r"-?\d+", "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"}
"""Of strings; JSON numbers would lose digits of an int64, and Drive tells times to the millisecond."""
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One method of the API, e.g. `v3.files.get`."""

    name: str
    verb: str
    path: re.Pattern[str]
    upload: bool
    """Whether this is the method's path for media."""
    scopes: frozenset[str]
    response: str
    """The schema of what it answers; empty if that is nothing."""


@cache
def document(version: str) -> dict[str, Any]:
    """The discovery document of "v2" or "v3"."""
    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    return dict(json.loads((folder / f"drive.{version}.json").read_text()))


@cache
def methods() -> tuple[Method, ...]:
    """All methods of both versions, those with the most literal paths first."""
    found = [method for version in ("v3", "v2") for method in _methods(version, document(version))]
    return tuple(sorted(found, key=lambda method: method.path.pattern.count("(?P<")))


def _methods(version: str, described: dict[str, Any]) -> Iterator[Method]:
    for resource in described["resources"].values():
        for told in resource["methods"].values():
            name = f"{version}.{told['id'].removeprefix('drive.')}"
            rest = (frozenset(told.get("scopes", ())), told.get("response", {}).get("$ref", ""))
            yield Method(name, told["httpMethod"], _pattern(described["servicePath"] + told["path"]), False, *rest)
            if "mediaUpload" in told:
                path = told["mediaUpload"]["protocols"]["simple"]["path"].lstrip("/")
                yield Method(name, told["httpMethod"], _pattern(path), True, *rest)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile("/" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))


def find(verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
    """The method that a request asks for, and the ids in its path."""
    for method in methods():
        if method.verb == verb and (match := method.path.fullmatch(path)):
            return method, match.groupdict()
    return None


def problems(version: str, schema: str, value: Any) -> list[str]:
    """What in a JSON value does not fit a schema of the discovery document."""
    return list(_problems(document(version)["schemas"], {"$ref": schema}, value, schema))


def _problems(schemas: dict[str, Any], schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    kind = TYPES[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"{where}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        yield from _in_object(schemas, schema, value, where)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _problems(schemas, schema["items"], item, f"{where}[{at}]")
    elif isinstance(value, str) and not re.fullmatch(FORMATS.get(schema.get("format", ""), r"(?s:.*)"), value):
        yield f"{where}: {value!r} is no {schema['format']}"


def _in_object(schemas: dict[str, Any], schema: dict[str, Any], value: dict[str, Any], where: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        inner = properties.get(name, others)
        if inner is None:
            yield f"{where}: no field {name}"
        else:
            yield from _problems(schemas, inner, item, f"{where}.{name}")
