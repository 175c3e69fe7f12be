"""Which models there are. Everything outside this package asks here and names none."""

from __future__ import annotations

from relay.app.models.plugin import TaskPlugin
from relay.app.models.trm import Trm, leading
from trm.presets import MEASURES

__all__ = ["SPLITS", "default_plugin", "leading"]

SPLITS = MEASURES.splits
"""The names that options show; a plug-in of another model has the same."""


def default_plugin() -> TaskPlugin:
    """The model whose tasks are trained where nobody names another."""
    return Trm()
