"""Variables that change how a CPU or GPU rounds are part of the environment, and only where they are set."""

from __future__ import annotations

import pytest
import torch

from relay.core.checkpoint.certify import difference
from relay.core.ledger.sessionreport import named
from relay.torch.fingerprint import ALWAYS, MKL, ON_GPU, OPENBLAS, fingerprint, variables

EVERY = (*ALWAYS, *MKL, *OPENBLAS, *ON_GPU)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in EVERY:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["OMP_THREAD_LIMIT", "OMP_DYNAMIC", "MKL_CBWR"])
def test_a_variable_that_changes_sums_is_named_as_the_difference(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name in MKL and "Math Kernel Library" not in torch.__config__.show():
        monkeypatch.setattr(torch.__config__, "show", lambda: "Math Kernel Library Version 2024.2")
    before = fingerprint(CPU)
    monkeypatch.setenv(name, "1")
    now = fingerprint(CPU)
    assert {key for key in now if key not in before} == {name.lower()}, "a run without it keeps its fingerprint"
    assert f"{name.lower()} absent -> 1" in difference(before, now)
    assert named(now)[name.lower()] == "1"


def test_each_can_be_stored_and_shows_no_text_of_a_person() -> None:
    found = dict(variables(EVERY, dict.fromkeys(EVERY, "COMPATIBLE,STRICT")))
    assert set(found) == {name.lower() for name in EVERY} and set(found.values()) == {"COMPATIBLE,STRICT"}
    assert all(len(name) <= 60 for name in found) and named(found)
    assert dict(variables(("OMP_SCHEDULE",), {"OMP_SCHEDULE": "my /home/me \n text"})) == {"omp_schedule": "set"}
    assert not dict(variables(EVERY, {"OMP_DYNAMIC": " "}))
