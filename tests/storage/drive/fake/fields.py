"""The `fields` parameter of Google's APIs: its grammar, and what it leaves of an answer."""

from __future__ import annotations

import re
from typing import Any

from tests.storage.drive.fake.answers import Refused
from tests.storage.drive.fake.schema import document

Mask = dict[str, "Mask"]
"""Names asked for; an empty mask asks for everything below."""


def parse(text: str) -> Mask:
    """E.g. `nextPageToken,files(id,owners/emailAddress)`. Raises Refused."""
    tokens = re.findall(r"[\w*]+|[(),/]", text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _invalid(text)
    mask = _list(tokens, text)
    if tokens:
        raise _invalid(text)
    return mask


def _list(tokens: list[str], text: str) -> Mask:
    mask: Mask = {}
    while True:
        _one(tokens, mask, text)
        if not tokens or tokens[0] != ",":
            return mask
        tokens.pop(0)


def _one(tokens: list[str], mask: Mask, text: str) -> None:
    if not tokens or not re.fullmatch(r"[\w*]+", tokens[0]):
        raise _invalid(text)
    below = mask.setdefault(tokens.pop(0), {})
    if tokens and tokens[0] == "/":
        tokens.pop(0)
        _one(tokens, below, text)
    elif tokens and tokens[0] == "(":
        tokens.pop(0)
        below |= _list(tokens, text)
        if not tokens or tokens.pop(0) != ")":
            raise _invalid(text)


def select(version: str, schema: str, mask: Mask, value: Any) -> Any:
    """The part of a value that a mask asks for. Raises Refused for names that the schema lacks."""
    return _select(document(version)["schemas"], {"$ref": schema}, mask, value)


def _select(schemas: dict[str, Any], schema: dict[str, Any], mask: Mask, value: Any) -> Any:
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if schema.get("type") == "array":
        items = value if isinstance(value, list) else [None]
        parts = [_select(schemas, schema["items"], mask, item) for item in items]
        return parts if isinstance(value, list) else None
    if not mask or "*" in mask:
        return value
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    chosen = {}
    for name, below in mask.items():
        inner = known.get(name, others)
        if inner is None:
            raise _invalid(name)
        part = _select(schemas, inner, below, value.get(name) if isinstance(value, dict) else None)
        if isinstance(value, dict) and name in value:
            chosen[name] = part
    return chosen


def _invalid(text: str) -> Refused:
    where = {"location": "fields", "locationType": "parameter"}
    return Refused(400, "invalidParameter", f"Invalid field selection {text}", **where)
