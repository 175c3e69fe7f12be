"""A mutation breaks the product in one place and names the words of the judge that show the catch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from relay.core.ledger import rules
from tests.simulation.simulate import simulate
from tests.simulation.trace import Violation

Patches = Iterable[AbstractContextManager[Any]]
Scene = Callable[..., object]
"""Called with a seed and the keyword `mutation`; raises Violation."""


@dataclass(frozen=True)
class Mutation:
    """One way to be wrong."""

    name: str
    breaks: str
    """The rule, and what is done instead."""
    words: tuple[str, ...]
    """Patterns of how a verdict that shows it begins; none if another rule covers it."""
    patches: Callable[[], Patches]
    pinned: int = 0
    """A seed that caught it; only where to look first."""
    scene: Scene = simulate
    covered_by: str = ""
    """Why it does no harm, where it does none."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it the product is broken."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield

    def verdict(self, seed: int, **where: str) -> str:
        """The judge's verdict on that seed, in one line; empty without a violation. `on="local"` for drawn worlds."""
        try:
            self.scene(seed, mutation=self.applied, **where)
        except Violation as violation:
            return str(violation).partition("\n")[0]
        return ""

    def caught(self, verdict: str) -> bool:
        """Whether that verdict is about this mutation, and not about something that it broke by the way."""
        return re.match("|".join(self.words), verdict) is not None


ALL: list[Mutation] = []


def mutation(
    name: str, breaks: str, *words: str, pinned: int = 0, scene: Scene = simulate, covered_by: str = ""
) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """Enters the decorated function, which returns the patches, into ALL."""
    assert words or covered_by, f"without words any verdict, and none, would catch {name}"

    def enter(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        ALL.append(Mutation(name, breaks, words, patches, pinned, scene, covered_by))
        return patches

    return enter


patch = mock.patch.object


def rule(kind: str, apply: Callable[..., Any]) -> AbstractContextManager[Any]:
    """The rule of one kind of entry replaced, for writers and readers alike."""
    return mock.patch.dict(rules._RULES, {kind: apply})
