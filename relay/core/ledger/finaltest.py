"""The test of a run: its state at the target, evaluated on the reported split, once in each reading.

The commit at the target carries the results. If it was made without them, a later session makes the test and notes the
results in incidents, because a commit has to raise the step. A reading is named as in its metrics: `test`, `test_r16`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import ASKED, TESTED, TEXT, tested
from relay.core.ledger.state import Checkpoint, RunState

_ASKED = re.compile(rf"([A-Za-z0-9_]+)/{ASKED}")
"""A stranger's text may be here: a reading that messages name has no blank, mark or address."""
_PART = re.compile(r"([A-Za-z0-9_]+) of state ([0-9a-f]{16}), part ([0-9]{1,2}) of ([0-9]{1,2}):((?: [^\s=]+=\S+)*)")
"""Each text matches in one way only. With several, a stranger's text can take longer than any reader waits."""
_RESULT = re.compile(r"(\S{1,64})=(-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?)")


def of_head(state: RunState) -> dict[str, float]:
    """The metrics of the head: those of its commit, and the results of a later test, which replace none of them."""
    late = {f"{reading}/{name}": value for reading, of in _late(state).items() for name, value in of.items()}
    return late | {name: value for name, value in state.metrics.items() if not _ASKED.fullmatch(name)}


def untested(state: RunState, readings: Iterable[str], target: int) -> list[str]:
    """The readings without a result; none if the state is not at the target, where the test is due."""
    if state.step != target:
        return []
    made = {name.rpartition("/")[0] for name in state.metrics if not _ASKED.fullmatch(name)} | _late(state).keys()
    return [reading for reading in readings if reading not in made]


def asked_in_vain(state: RunState, target: int) -> list[str]:
    """The readings that the commit at the target was to carry, and that still have no result."""
    return untested(state, (match[1] for name in state.metrics if (match := _ASKED.fullmatch(name))), target)


def asked(reading: str) -> str:
    """The metric of a commit that lacks this reading; its value is the number of rows to evaluate."""
    return f"{reading}/{ASKED}"


def notes(head: Checkpoint, reading: str, results: Mapping[str, float]) -> list[Noted]:
    """The incidents that hold the results of a reading of the head. Metrics have no blank in their name."""
    parts, room = [""], TEXT - len(tested(reading, head.state_hash, 99, 99, ""))
    for name, value in results.items():
        word = f"{name.removeprefix(f'{reading}/')}={value!r}"
        if len(parts[-1]) + len(word) >= room:
            parts.append("")
        parts[-1] = f"{parts[-1]} {word}".lstrip()
    texts = (tested(reading, head.state_hash, n, len(parts), part) for n, part in enumerate(parts, 1))
    return [Noted(cause=TESTED, text=text, step=head.step) for text in texts]


def _late(state: RunState) -> dict[str, dict[str, float]]:
    """The noted results of the head's state by reading: those of the first session whose parts are all there.

    Each participant can note an incident at any time; one that comes later replaces no result.
    """
    found: dict[tuple[str, int, int], dict[int, dict[str, float]]] = {}
    for one in state.incidents:
        match = _PART.fullmatch(one.text) if one.cause == TESTED else None
        if match and state.head and one.step == state.step and state.head.state_hash.startswith(match[2]):
            parts = found.setdefault((match[1], int(match[4]), one.epoch), {})
            parts.setdefault(int(match[3]), _results(match[5]))
    made: dict[str, dict[str, float]] = {}
    for (reading, count, _), parts in found.items():
        if count and parts.keys() >= set(range(1, count + 1)):
            made.setdefault(reading, {name: value for n in range(1, count + 1) for name, value in parts[n].items()})
    return made


def _results(text: str) -> dict[str, float]:
    """A stranger may have written them: what is not a finite number is left out."""
    found = {match[1]: float(match[2]) for word in text.split() if (match := _RESULT.fullmatch(word))}
    return {name: value for name, value in found.items() if math.isfinite(value)}
