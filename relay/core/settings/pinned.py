"""The base of a model's settings, which a run pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    added: ClassVar[tuple[str, ...]] = ()
    """Settings that are newer than the first published run. A run pins one only if it differs from its default, so
    older runs keep their configuration. Its default must mean the behavior before the setting existed, and never
    changes, not even in a preset."""


def without_defaults(settings: Strict, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of these settings without the added ones that have their default."""
    kept = dict(values)
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name in settings.added and value == field.default:
            kept.pop(name, None)
        elif isinstance(value, Strict) and name in kept:
            kept[name] = without_defaults(value, kept[name])
    return kept
