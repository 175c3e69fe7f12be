"""Compiled code in the store: a machine runs only code that was signed with its key, and otherwise compiles."""

from __future__ import annotations

import pytest

from relay.core.checkpoint.compilecache import AT_ONCE, MAX_BYTES
from relay.core.errors import Exit
from relay.core.names import CACHES
from storage.base import QuotaExceeded
from tests.core.compiled import GOOD, NAME, SECRET, heard, session, signed, told
from tests.core.lab import Lab

HOSTILE = {
    "another team's key": (signed(GOOD, secret=b"f" * 32), "signature"),
    "this team's, of another card": (signed(GOOD, key="cd" * 32), "signature"),
    "one bit": (signed(GOOD)[:-1] + b"|", "signature"),
    "cut off": (signed(GOOD)[:-4], "signature"),
    "shorter than a signature": (b"short", "signature"),
    "empty": (b"", "signature"),
    "unsigned": (GOOD, "signature"),
    "huge": (b"0" * (MAX_BYTES + 1), "longer"),
    "signed, but no archive": (signed(b"no archive"), "Expecting value"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_whatever_lies_in_its_place_is_refused_and_the_session_goes_on_cold(lab: Lab, case: str) -> None:
    data, why = HOSTILE[case]
    lab.shared.put(NAME, data)
    made, kernels = session(lab, "one", target_steps=10)
    assert lab.run(made).exit_code == Exit.OK
    assert kernels.counts()["kernels_compiled"] == 2
    line = told(made)[0]
    assert heard(made)[0].found == "refused" and why in line, line
    assert why == "Expecting value" or kernels.unpacked == [], "nothing unsigned reaches the workload"
    assert SECRET.decode() not in "".join(made.told)
    after, kernels = session(lab, "two", target_steps=20)
    lab.run(after)
    assert "hit" in told(after)[0], "refused code is replaced"


def test_what_was_refused_is_replaced_also_where_nobody_counts_kernels(lab: Lab) -> None:
    """An older Triton does not report what it compiled."""
    lab.shared.put(NAME, signed(GOOD, secret=b"f" * 32))
    made, kernels = session(lab, "one", target_steps=10)
    kernels.counts = dict  # type: ignore[method-assign]
    lab.run(made)
    assert "refused" in told(made)[0] and "stored" in told(made)[1]


def test_a_flood_of_objects_holds_no_commit_up(lab: Lab) -> None:
    for number in range(1000):
        lab.shared.put(f"{CACHES}{number:064x}", b"x")
    made = lab.session(target_steps=20)
    full = [QuotaExceeded("full")]

    def fail(verb: str, name: str) -> None:
        if verb == "put" and name.startswith("checkpoints/") and full:
            raise full.pop()

    made.store.fail = fail
    assert lab.run(made).exit_code == Exit.OK
    assert len(list(lab.shared.list(CACHES))) == 1000 - AT_ONCE
