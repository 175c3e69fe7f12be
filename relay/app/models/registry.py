"""The models of the program. Code outside this package asks here and names no model."""

from __future__ import annotations

from relay.app.models.plugin import TaskPlugin
from relay.app.models.trm import Trm, leading
from trm.presets import MEASURES

__all__ = ["SPLITS", "default_plugin", "leading"]

SPLITS = MEASURES.splits
"""Option names; every model's plug-in has the same."""


def default_plugin() -> TaskPlugin:
    """The default model."""
    return Trm()
