"""Train one model in turns over one shared folder. `relay.session` relays any PyTorch loop.

Imports nothing by itself: what needs torch is loaded at its first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {"session": "relay.app.loops"}
"""Where each public name is."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'relay' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
