"""The models of the program, by task. Code outside this package asks here and names no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from relay.app.models.plugin import TaskPlugin
from relay.app.models.trm import Trm
from relay.core.clock import exit_now
from relay.torch.launch import is_follower, launched
from trm.presets import MEASURES

if TYPE_CHECKING:
    from relay.torch.peers import Peers
    from relay.torch.together import Follower

SPLITS = MEASURES.splits
"""Option names; every model's plug-in has the same."""


def default_plugin() -> TaskPlugin:
    """The default model."""
    return Trm()


def _taken_over(order: Mapping[str, Any], peers: Peers) -> Follower:
    """What a follower makes of the leader's order."""
    from trm.together import taken_over

    return taken_over(order, peers)


@contextmanager
def leading() -> Iterator[bool]:
    """Whether this process has the session. Under torchrun the first has it, and the others follow to its end."""
    if launched() == 1:
        yield True
        return
    from relay.torch.together import dismiss, follow

    if is_follower():
        follow(_taken_over)
        yield False
        return
    try:
        yield True
    except BaseException as end:
        if not dismiss() and isinstance(end, SystemExit):
            exit_now(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    dismiss()  # not atexit, where a library's work may be cut short
