"""Names in a store, and names people choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import BadConfig
from relay.core.names import NAME, TOKEN, BadName, Names, check_name, nearest, one_edit_apart
from storage.base import check_name as check_stored

good = st.from_regex(NAME, fullmatch=True)
numbers = st.integers(0, 10**15)


@given(good, good, numbers, numbers)
def test_every_name_can_be_stored_and_a_checkpoint_name_reads_back(p: str, r: str, step: int, epoch: int) -> None:
    names = Names(p, r)
    for name in (names.heartbeat(epoch), names.stop(epoch), names.history(epoch), names.manifest(step, epoch)):
        assert check_stored(name) and len(name) <= 200
    for token in ("", "0123456789abcdef"):
        name = names.checkpoint(step, epoch, token) + "model.safetensors"
        assert check_stored(name)
        assert names.parse_checkpoint(name) == (step, epoch, "model.safetensors", token)
        assert names.is_manifest(names.manifest(step, epoch, token), step, epoch)
        assert not names.is_manifest(names.manifest(step + 1, epoch, token), step, epoch)
        assert not names.is_manifest(name, step, epoch)


@given(good, good, st.integers(0, 10**12), st.integers(0, 10**7))
def test_a_manifest_with_a_token_fits_into_an_entry(p: str, r: str, step: int, epoch: int) -> None:
    assert len(Names(p, r).manifest(step, epoch, "f" * TOKEN)) <= 200


@given(good, good, numbers)
def test_a_sign_of_life_and_a_stop_request_read_back_and_lie_under_their_prefixes(p: str, r: str, epoch: int) -> None:
    names = Names(p, r)
    for name, prefix in zip((names.heartbeat(epoch), names.stop(epoch)), names.signs, strict=True):
        assert name.startswith(prefix) and names.parse_sign(name) == epoch
        assert names.parse_sign(prefix) is names.parse_sign(prefix + "00") is names.parse_sign(name + ".bak") is None
        assert Names(p, r + "x" if len(r) < 64 else r[:-1]).parse_sign(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/p/r/step_1.e1/",
        "checkpoints/p/r/step_01.e1/x",
        "checkpoints/p/r/step_1.e01/x",
        "checkpoints/p/r/step_1.e1./x",
        "checkpoints/p/r/step_1.e1.0123456789abcde/x",
        "checkpoints/p/r/step_1.e1.0123456789abcdef0/x",
        "checkpoints/p/r/step_1.e1.0123456789ABCDEF/x",
        "checkpoints/p/r/step_1.e1.0123456789abcdeg/x",
        "checkpoints/p/r/step_1.e1/a/b",
        "checkpoints/p/r/step_1.e1/../x",
        "checkpoints/p/r/step_1.e1/.x",
        "checkpoints/p/r/step_1.e1/X",
        "checkpoints/p/r2/step_1.e1/x",
        "checkpoints/p/r/step_1/x",
        "checkpoints/p/r/step_1.e1/x\n",
        "checkpoints/p/r/step_١.e1/x",
        "xcheckpoints/p/r/step_1.e1/x",
    ],
)
def test_no_other_name_is_a_checkpoint_file_of_the_run(name: str) -> None:
    assert Names("p", "r").parse_checkpoint(name) is None


@pytest.mark.parametrize(
    ("wrong", "proposal"),
    [("My Run", "my_run"), ("../etc", "etc"), ("", "run_1"), ("_x", "x"), ("x" * 70, "x" * 64), ("été", "t")],
)
def test_a_wrong_name_is_refused_with_a_right_one(wrong: str, proposal: str) -> None:
    with pytest.raises(BadName) as error:
        check_name("run", wrong)
    assert error.value.proposal == proposal
    assert check_name("run", proposal) == proposal
    with pytest.raises(BadConfig):
        Names("p", wrong)


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_one_edit_apart_is_what_it_says(a: str, b: str) -> None:
    edits = {a}
    for i in range(len(a) + 1):
        edits |= {a[:i] + c + a[i:] for c in "ab"} | {a[:i] + c + a[i + 1 :] for c in "ab"}
        edits |= {a[:i] + a[i + 1 :], a[:i] + a[i + 1 : i + 2] + a[i : i + 1] + a[i + 2 :]}
    assert one_edit_apart(a, b) == (b in edits) == one_edit_apart(b, a)


def test_nearest() -> None:
    assert nearest("acount_1", ["account_1", "kaggle"]) == "account_1"
    assert nearest("zzz", ["account_1"]) is None
