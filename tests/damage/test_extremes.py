"""States that a stranger forged to fit each other, with the largest numbers that fit: shown without a crash."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from relay.core.clock import RealRuntime
from relay.core.ledger.canonical import dumps, loads
from relay.core.ledger.entry import Entry
from relay.core.ledger.frozen import MAX_ENTRY_BYTES
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.names import Names
from tests.core.making import follower, forged
from tests.damage.scene import NAMES, OTHER, PROJECT, Picture, Scene, slot

NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    2**53 - 1,
    10**19,
    -(10**18),
    sys.float_info.max,
    -sys.float_info.max,
    5e-324,
    99999999999.0,
)
READERS = ("status", "report", "next", "verify", "doctor", "gc")


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand in a document."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, (*path, key))
    elif isinstance(value, list):
        for at, part in enumerate(value[-1:], len(value) - 1):  # the newest stands for all
            yield from numbers(part, (*path, at))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with one part exchanged."""
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = put(value[path[0]], path[1:], new)
    return copied


def believed(here: Scene, state: RunState, names: Names = NAMES) -> None:
    """Two entries after the newest one: the first claims the state, the second properly follows from it."""
    tail = max(name for name in here.picture.store if name.startswith(names.ledger))
    raw = here.picture.store[tail]
    last = Entry.model_validate_json(dumps(loads(raw, MAX_ENTRY_BYTES)["body"]))
    first = forged(raw, last, epoch=state.epoch, state=state.model_dump(mode="json"))
    here.store.put(slot(names, last.seq + 1), first)
    claimed = Entry.model_validate_json(dumps(loads(first, MAX_ENTRY_BYTES)["body"]))
    here.store.put(slot(names, last.seq + 2), follower(first, claimed, state))
    assert RunLedger(here.store, names.project, names.run, RealRuntime()).read().state.usage == state.usage


def plain_state(picture: Picture, make: Any) -> dict[str, Any]:
    return dict(json.loads(make.state().model_dump_json()))


def test_no_number_in_a_forged_state_crashes_whoever_shows_it(scene: Any, picture: Picture) -> None:
    """Every number of the state at once where it can be, for each of the extremes."""
    plain = plain_state(picture, scene("memory"))
    for new in NUMBERS:
        hurt, changed = plain, 0
        for path in numbers(plain):
            if path == ("format",):
                continue
            for kind in (new, float(new) if abs(new) < 1e300 else new, int(new) if abs(new) < 1e20 else new):
                tried = put(hurt, path, kind)
                try:
                    RunState.model_validate_json(json.dumps(tried))
                except ValidationError:
                    continue
                hurt, changed = tried, changed + 1
        assert changed
        here = scene("memory")
        believed(here, RunState.model_validate_json(json.dumps(hurt)))
        for command in READERS:
            words = (command, *(("--dry-run",) if command == "gc" else ()))
            here.command(*words, "--json")
        here.command("report")


@pytest.mark.parametrize("new", NUMBERS, ids=repr)
def test_a_session_that_meets_a_forged_state_ends_by_the_table(scene: Any, picture: Picture, new: Any) -> None:
    here = scene("memory")
    state = here.state()
    links = tuple(link.model_copy(update={"seconds": 5e-324, "to_step": 2**53 - 1}) for link in state.links)
    use = state.usage["account_1"].model_copy(
        update={"seconds": float(new), "steps": int(new) if abs(new) < 1e20 else 0}
    )
    believed(here, state.model_copy(update={"links": links, "usage": {**state.usage, "account_1": use}}))
    other = RunLedger(here.store, PROJECT, "other", RealRuntime()).read().state
    believed(here, other.model_copy(update={"usage": {"account_1": use}}), OTHER)
    for words in (("report", "--json"), ("report",), ("next",), ("status", "--json")):
        here.command(*words, code=0)
    done = here.train(40)
    assert done.code == 0 and here.check_sound(here.picture.store).step == 40, "a writer validates every slot"
