"""Every interleaving and every death within bounds: no promise of the protocol breaks; broken variants are found."""

from __future__ import annotations

import os
import sys

import pytest

from tests.model.progress import Progress
from tests.model.protocol import Protocol
from tests.model.search import Found, Teller, search
from tests.model.step import Bounds
from tests.model.variants import VARIANTS
from tests.model.world import Faults

SMALL = {
    "takeovers": Bounds(sessions=3, epochs=4, step=3, reborn=False),
    "lost_answers": Bounds(sessions=3, epochs=3, step=3, faults=Faults(answers=1)),
    "late_files": Bounds(sessions=2, epochs=3, step=3, faults=Faults(files=1)),
    "damage": Bounds(sessions=2, epochs=3, step=3, faults=Faults(rot=1)),
    "lost_entries": Bounds(sessions=2, epochs=3, step=3, faults=Faults(holes=1)),
    "unread": Bounds(sessions=2, slots=7, step=3, faults=Faults(blind=2), reborn=False),
    "unread_unanswered": Bounds(sessions=2, slots=6, step=3, faults=Faults(blind=1, answers=1), reborn=False),
}
"""What every test run visits in full."""
LARGE = {
    "takeovers": Bounds(sessions=3, epochs=4, step=3),
    "two_commits": Bounds(sessions=3, epochs=3, step=4, faults=Faults(answers=1)),
    "lost_answers": Bounds(sessions=3, epochs=4, step=3, faults=Faults(answers=1), reborn=False),
    "late_files": Bounds(sessions=3, epochs=3, step=3, faults=Faults(files=1)),
    "damage": Bounds(sessions=3, epochs=3, step=3, faults=Faults(rot=1)),
    "lost_entries": Bounds(sessions=3, epochs=3, step=3, faults=Faults(holes=1)),
    "unread": Bounds(sessions=3, slots=8, step=3, faults=Faults(blind=2), reborn=False),
    "unread_unanswered": Bounds(sessions=2, slots=8, step=3, faults=Faults(blind=2, answers=1)),
    "unread_damage": Bounds(sessions=2, slots=8, step=3, faults=Faults(blind=2, rot=1), reborn=False),
    "everything": Bounds(sessions=3, epochs=3, step=3, faults=Faults(answers=1, files=1, rot=1, holes=1)),
}
"""What `make model` visits."""
CHOSEN = {"small": SMALL, "large": LARGE}[os.environ.get("RELAY_MODEL", "small")]


def explored(model: Protocol, teller: Teller | None = None) -> Found:
    return search(model, Progress(model), teller=teller)


def tell(line: str) -> None:
    """At once and past pytest, also from one of several workers."""
    print(line, file=sys.__stderr__, flush=True)


@pytest.mark.parametrize("name", CHOSEN)
def test_every_invariant_holds_in_every_world_and_everybody_can_finish(name: str) -> None:
    found = explored(Protocol(CHOSEN[name]), Teller(tell if CHOSEN is LARGE else print, name))
    assert found.broken is None, str(found)
    assert found.states > 2_000, "a search that visits little shows little"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
def test_a_broken_protocol_is_found_out(variant: type[Protocol]) -> None:
    found = search(variant(Bounds(sessions=3, epochs=3, step=3, faults=variant.needs)))
    print(f"\n{variant.__name__}: {variant.__doc__}\n{found}")
    assert found.broken is not None
    assert found.broken.startswith(variant.breaks), str(found)
    assert found.trace and all(line[:2] in ("A:", "B:", "C:", "ne") for line in found.trace)


def test_a_session_that_never_ends_is_found_out() -> None:
    class Stuck(Protocol):
        """Waits for an answer that never comes."""

        def settles(self, *_: object) -> object:  # type: ignore[override]
            return iter(())

        def gives_up(self, world, who, change):  # type: ignore[no-untyped-def]
            return super().gives_up(world, who, change)._replace(world=world)

    found = explored(Stuck(Bounds(sessions=1, epochs=2, step=3, faults=Faults(answers=1))))
    assert found.broken is not None and found.broken.startswith("progress"), str(found)


def test_rules_that_refuse_a_holder_are_found_out() -> None:
    class NoRelease(Protocol):
        """No session may release."""

        def rules(self, view, change):  # type: ignore[no-untyped-def]
            return None if change.kind == "release" else super().rules(view, change)

    found = explored(NoRelease(Bounds(sessions=1, epochs=2, step=3)))
    assert found.broken is not None and found.broken.startswith("progress"), str(found)


def test_a_search_tells_how_far_it_is() -> None:
    lines: list[str] = []
    found = explored(Protocol(Bounds(sessions=1, epochs=3, step=3)), Teller(lines.append, "small", every=0.0))
    states = [int(line.split(" states")[0].split()[-1].replace(",", "")) for line in lines]
    assert states == sorted(states) and states[-1] == found.states and len(set(states)) > 10
    assert all(line.startswith("model, small: ") and line.endswith(" states/s") for line in lines[:-1])
    assert "every invariant holds" in lines[-1]


def test_the_search_finds_the_shortest_way() -> None:
    found = search(VARIANTS[0](Bounds(sessions=3, epochs=3, step=3)))
    assert len(found.trace) == 4, str(found)
