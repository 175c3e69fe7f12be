"""Validates flat settings into a model; errors name each setting's fault and origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from relay.core.names import check_name, nearest
from relay.core.settings.origins import BadSetting, Fault, Given, Value

NAMES = ("project", "run", "account")

Model = TypeVar("Model", bound=BaseModel)


def submodel(annotation: Any) -> type[BaseModel] | None:
    """The nested model of a field; None for a plain field."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def check_known(given: Given, keys: Sequence[str]) -> None:
    """Raises BadSetting (78) for an unknown key, with the nearest name, or with the settings of a group."""
    if given.key in keys:
        return
    inside = [k for k in keys if k.startswith(given.key + ".")]
    if inside:
        raise BadSetting(Fault.GROUP, f"{given.key} is a group of settings ({given.origin}).", options=inside)
    raise BadSetting(Fault.UNKNOWN, f"Unknown setting {given.key} ({given.origin}).", meant(given.key, keys))


def meant(typed: str, keys: Sequence[str]) -> str | None:
    """The setting that an unknown key probably stands for: one of that name in a group (hidden_size), with these
    initials (learning_rate for lr) or this beginning (batch), otherwise the most similar one."""
    word = typed.replace("-", "_").rpartition(".")[2]
    initials = "".join(part[:1] for part in word.split("_"))
    names = {key: key.rpartition(".")[2] for key in keys}
    same = [key for key, name in names.items() if name == word]
    short = [key for key, name in names.items() if name == initials]
    longer = [key for key, name in names.items() if name.startswith(f"{word}_")]
    return next((found[0] for found in (same, short, longer) if len(found) == 1), None) or nearest(typed, keys)


def validate(model: type[Model], given: Mapping[str, Given]) -> Model:
    """The validated model. Raises BadSetting (78) that names each key, its fault and its origin, and BadName (78)."""
    tree: dict[str, Any] = {}
    for key, item in given.items():
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = _value(model, key, item.value)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise BadSetting(Fault.INVALID, _explain(error, given)) from error


def _value(model: type[BaseModel], key: str, value: Value) -> Value:
    """A null for a field that cannot be None is the text 'null' (a run may have this name)."""
    return "null" if value is None and not _accepts_none(model, key) else value


def _accepts_none(model: type[BaseModel], key: str) -> bool:
    *parents, last = key.split(".")
    for parent in parents:
        model = submodel(model.model_fields[parent].annotation) or model
    annotation = model.model_fields[last].annotation
    return get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation)


def _explain(error: ValidationError, given: Mapping[str, Given]) -> str:
    parts = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(p) for p in problem["loc"])
        item = given.get(key)
        if problem["type"] == "string_pattern_mismatch" and key in NAMES:
            _refuse_name(key, item)
        got = f", not {item.value!r} ({item.origin})" if item else ""
        parts.append(f"{key or 'The configuration'}: {_requirement(problem['msg'])}{got}.")
    return " ".join(parts)


def _refuse_name(key: str, item: Given | None) -> None:
    check_name(key, str(item.value) if item else "", item.origin if item else "no source")


def _requirement(message: str) -> str:
    """Pydantic's message, shortened."""
    requirement = message.removeprefix("Input ").removeprefix("Value error, ").partition(", unable to parse")[0]
    return requirement.replace("should be", "must be")
