"""The `q` of files.list: the operators that the public guide documents, as a test of one file; knows no lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.storage.drive.fake.answers import invalid
from tests.storage.drive.fake.tree import File
from tests.storage.drive.fake.world import Access

Test = Callable[[File], bool]
TOKEN = re.compile(r"\s*(?:('(?:[^'\\]|\\['\\])*')|([A-Za-z]\w*)|(<=|>=|!=|[=<>(){}]))")


class Query:
    """One parsed query. `names` says whether it asks by name."""

    def __init__(self, access: Access, text: str) -> None:
        self._access = access
        self._tokens = _tokens(text)
        self.names = "name" in self._tokens
        self.test = self._any() if self._tokens else lambda file: True
        if self._tokens:
            raise invalid("q")

    def _any(self) -> Test:
        tests = [self._all()]
        while self._take("or"):
            tests.append(self._all())
        return lambda file: any(test(file) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take("and"):
            tests.append(self._one())
        return lambda file: all(test(file) for test in tests)

    def _one(self) -> Test:
        if self._take("not"):
            inner = self._one()
            return lambda file: not inner(file)
        if self._take("("):
            inside = self._any()
            self._need(")")
            return inside
        first = self._next()
        if first.startswith("'"):
            self._need("in")
            return self._within(_unquote(first), self._next())
        if first == "sharedWithMe":
            return lambda file: file.owner not in (None, self._access.user)
        if first in ("properties", "appProperties"):
            return self._has(first)
        return self._compare(first, self._next(), self._next())

    def _within(self, value: str, collection: str) -> Test:
        tree, access = self._access.tree, self._access
        if collection == "parents":
            parent = access.resolve(value)
            return lambda file: parent in file.parents
        least = {"owners": ("owner",), "writers": ("writer", "owner"), "readers": ("reader", "writer", "owner")}
        if collection not in least:
            raise invalid("q")
        return lambda file: tree.role(value, file) in least[collection]

    def _has(self, kind: str) -> Test:
        for word in ("has", "{", "key", "="):
            self._need(word)
        key = _unquote(self._next())
        for word in ("and", "value", "="):
            self._need(word)
        value = _unquote(self._next())
        self._need("}")
        client = self._access.grant.client
        if kind == "properties":
            return lambda file: file.properties.get(key) == value
        return lambda file: file.app_properties.get(client, {}).get(key) == value

    def _compare(self, name: str, operator: str, word: str) -> Test:
        tree = self._access.tree
        if name in ("trashed", "starred") and word in ("true", "false"):
            wanted = (word == "true") == (operator == "=")
            return lambda file: (tree.is_trashed(file) if name == "trashed" else file.starred) == wanted
        value = _unquote(word)
        read: dict[str, Callable[[File], Any]] = {
            "name": lambda file: file.name, "mimeType": lambda file: file.mime,
            "modifiedTime": lambda file: file.modified, "createdTime": lambda file: file.created,
        }  # fmt: skip
        if name not in read:
            raise invalid("q")
        compared: Any = _seconds(value) if name.endswith("Time") else value
        return _operator(operator, read[name], compared)

    def _take(self, word: str) -> bool:
        if self._tokens and self._tokens[0] == word:
            self._tokens.pop(0)
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise invalid("q")

    def _next(self) -> str:
        if not self._tokens:
            raise invalid("q")
        return self._tokens.pop(0)


def _operator(operator: str, read: Callable[[File], Any], value: Any) -> Test:
    tests: dict[str, Test] = {
        "=": lambda file: read(file) == value, "!=": lambda file: read(file) != value,
        "<": lambda file: read(file) < value, "<=": lambda file: read(file) <= value,
        ">": lambda file: read(file) > value, ">=": lambda file: read(file) >= value,
        "contains": lambda file: any(word.startswith(value) for word in [read(file), *re.split(r"[\s_.]", read(file))]),
    }  # fmt: skip
    if operator not in tests:
        raise invalid("q")
    return tests[operator]


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise invalid("q")
        tokens.append(match[0].strip())
        at = match.end()
    return tokens


def _unquote(token: str) -> str:
    if not token.startswith("'"):
        raise invalid("q")
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _seconds(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise invalid("q") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
