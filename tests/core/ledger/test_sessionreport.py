"""A report that is read back is one that a session wrote; any other is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.views.sessiontext import read_report
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.sessionreport import MAX_BYTES, MAX_CHECKPOINTS, Newer, decode, encode
from tests.app.recorded import report, stored
from tests.core.lab import Lab


def test_the_largest_report_fits() -> None:
    wide = "\U0001f600" * 500
    big = report(
        environment={f"{'k' * 30}_{chr(97 + n)}": wide for n in range(20)},
        checkpoints=[{"step": 2**53 - 1, "state_hash": "f" * 64, "bytes": 2**53 - 1}] * MAX_CHECKPOINTS,
        stall_s=[1 / 3] * MAX_CHECKPOINTS,
        metrics={f"{n:064d}": 1 / 3 for n in range(32)},
        incidents=[{"at": 1.7e9 + 1 / 3, "step": 2**53 - 1, "cause": wide, "text": wide}] * 20,
        why=wide,
        end=wide,
    )
    assert 20_000 < len(encode(big)) <= MAX_BYTES
    assert decode(encode(big)) == big


HOSTILE: dict[str, Callable[[dict[str, object]], object]] = {
    "an unknown field": lambda told: told | {"host": "h"},
    "a number as text": lambda told: told | {"epoch": "3"},
    "a negative time": lambda told: told | {"wall_s": -1.0},
    "an endless time": lambda told: told | {"wall_s": 1e300},
    "an unknown phase": lambda told: told | {"phases": {"mining": 1.0}},
    "too many checkpoints": lambda told: told | {"checkpoints": [{"step": 1, "state_hash": "f" * 64, "bytes": 1}] * 51},
    "another schema": lambda told: told | {"schema": "relay.run/1"},
    "a path as a provider": lambda told: told | {"provider": "/home/ana"},
}


def sealed(document: object) -> bytes:
    """As a store holds it, its hash right."""
    return dumps({"report": document, "sha256": digest(dumps(document))})


def test_a_flipped_bit_anywhere_is_seen() -> None:
    good = encode(report())
    for at in range(len(good)):
        with pytest.raises(ValueError, match=r"."):
            decode(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


@pytest.mark.parametrize("how", HOSTILE)
def test_what_no_session_writes_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(sealed(HOSTILE[how](report().document())))


def test_a_newer_one_is_told_apart() -> None:
    with pytest.raises(Newer, match="format 2"):
        decode(sealed(report().document() | {"format": 2, "schema": "relay.session/2"}))


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


def test_a_report_of_another_run_or_epoch_is_left_aside(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20))
    names, state = lab.session("ben").ctx.names, lab.state()
    good = stored(lab)
    assert good and read_report(lab.shared, names, state, 1) == (good, "")
    for change in ({"run_id": "2" * 32}, {"epoch": 2}, {"run": "other"}):
        lab.shared.put(names.session(1), encode(good.model_copy(update=change)))
        found, why = read_report(lab.shared, names, state, 1)
        assert found is None and "another session" in why
    lab.shared.put(names.session(1), b"x" * (MAX_BYTES + 1))
    assert "left aside" in read_report(lab.shared, names, state, 1)[1]
    assert "no report" in read_report(lab.shared, names, state, 7)[1]
