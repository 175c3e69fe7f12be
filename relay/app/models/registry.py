"""The models of the program, by task. Code outside this package asks here and names no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from relay.app.models.plugin import TaskPlugin
from relay.app.models.trm import Trm
from relay.core.clock import exit_now
from relay.core.errors import Exit
from relay.core.names import nearest
from relay.core.settings.config import leaves
from relay.torch.launch import is_follower, launched
from trm.presets import MEASURES, PRESETS

if TYPE_CHECKING:
    from relay.torch.peers import Peers
    from relay.torch.together import Follower

SPLITS = MEASURES.splits
"""Option names; every model's plug-in has the same."""


OF_LM = ("lm_tiny", "lm_small", "lm", "lm_fast", "lm_extreme")
"""Tasks of the language model, which is loaded only for them."""
PHASES = {"fast": "lm_fast", "extreme": "lm_extreme"}
"""Of the guide to cloud GPUs."""


class _Models:
    """See relay/app/models/plugin.py."""

    def of_task(self, task: str) -> TaskPlugin:
        """By the task's name."""
        return _lm() if nearest(task, self.tasks()) in OF_LM else Trm()

    def tasks(self) -> list[str]:
        """The default model's first."""
        return [*PRESETS, *OF_LM]

    def settings(self) -> list[str]:
        """Of both models."""
        return [key for plugin in (Trm(), _lm()) for key in (*leaves(plugin.model), *plugin.shorthands)]

    def phases(self) -> dict[str, str]:
        """Of the language model."""
        return dict(PHASES)


MODELS = _Models()


def default_plugin() -> TaskPlugin:
    """The default model."""
    return Trm()


def plugins() -> list[TaskPlugin]:
    """One of each model, the default first."""
    return [default_plugin(), _lm()]


def _lm() -> TaskPlugin:
    from relay.app.models.lm import Lm

    return Lm()


def _taken_over(order: Mapping[str, Any], peers: Peers) -> Follower:
    """A follower's workload, made from the leader's order."""
    if order["model"] == "lm":
        from lm.together import taken_over as of_lm

        return of_lm(order, peers)
    from trm.together import taken_over

    return taken_over(order, peers)


@contextmanager
def leading() -> Iterator[None]:
    """Around the first process's command. The others never enter: they follow it to its end, and exit."""
    if is_follower():
        from relay.torch.together import follow

        follow(_taken_over)
        exit_now(Exit.OK)
    try:
        yield
    except BaseException as end:
        if not _parted() and isinstance(end, SystemExit):
            exit_now(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    _parted()  # not atexit, where a library's work may be cut short


def _parted() -> bool:
    """End the followers, if there are any. False if one was gone."""
    if launched() == 1:
        return True
    from relay.torch.together import dismiss

    return dismiss()
