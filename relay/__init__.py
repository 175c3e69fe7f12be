"""Train one model in turns over one shared folder. `relay.session` relays any PyTorch loop.

Imports nothing by itself: names that need torch are loaded at their first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # loading typing takes longer than everything else here
    from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "session": ("relay.app.loops", "session"),
    "check_loop": ("relay.app.commands.sessions.scripts", "check_loop_of"),
}
"""The module and the name there of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'relay' has no attribute {name!r}")
    from importlib import import_module

    module, there = _LAZY[name]
    return getattr(import_module(module), there)
