"""Short names of GPUs, and the contribution of each kind, in the ledger (P4, P12)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from relay.core.gpus import LONGEST, gpu_name
from relay.core.ledger import usage
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import By, Commit, Lease, Release
from relay.core.ledger.frozen import MAX_FURTHER, MAX_GPUS
from relay.core.ledger.rules import apply
from relay.core.ledger.state import Link, RunState, Usage
from tests.core.lab import Lab
from tests.core.making import checkpoint, genesis, id_of
from tests.core.toy import ToyWorkload

NOW = 1.7e9


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"device": "cuda", "gpu": "NVIDIA H100 80GB HBM3"}, "H100 80GB HBM3"),
        ({"device": "cuda", "gpu": "Tesla T4"}, "T4"),
        ({"device": "cuda", "gpu": "NVIDIA GeForce RTX 4090 Laptop GPU"}, "RTX 4090 Laptop GPU"),
        ({"device": "cuda", "gpu": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}, "RTX PRO 6000 Blackwell"),
        ({"device": "cpu", "instructions": "AVX2"}, "cpu"),
        ({"gpu": "\x1b[31mH100\u202e\U0001f600"}, "31mH100"),
        ({"gpu": "x" * 99}, "x" * LONGEST),
        ({"gpu": "\u4e00"}, None),
        ({}, None),
    ],
)
def test_a_name_is_short_and_plain(told: dict[str, str], name: str | None) -> None:
    assert gpu_name(told) == name


@given(st.text())
def test_whatever_a_driver_calls_it_the_name_fits_into_an_entry(told: str) -> None:
    name = gpu_name({"gpu": told})
    assert name is None or Lease(gpu=name).gpu == name


class Run:
    """A run whose sessions follow each other."""

    def __init__(self) -> None:
        self.state = apply(None, "genesis", genesis().model_dump(mode="json"), By(id_of(1), None, 0, NOW))

    def session(self, account: str, gpu: str | None, steps: int, seconds: float) -> RunState:
        who = By(id_of(1), account, self.state.epoch + 1, NOW)
        state = apply(self.state, "lease", Lease(gpu=gpu).model_dump(mode="json"), who)
        if steps:
            change = Commit(checkpoint=checkpoint(state.step + steps, state.epoch))
            state = apply(state, "commit", change.model_dump(mode="json"), who)
        release = Release(reason="budget", seconds=seconds)
        self.state = apply(state, "release", release.model_dump(mode="json"), who)
        return self.state


def test_each_kind_of_gpu_has_its_seconds_and_steps() -> None:
    run = Run()
    run.session("ana", "H100 80GB HBM3", 100, 50.0)
    run.session("ben", "T4", 5, 60.0)
    run.session("ana", "T4", 7, 70.0)
    state = run.session("ana", "T4", 0, 30.0)
    assert [link.gpu for link in state.links] == ["H100 80GB HBM3", "T4", "T4", "T4"]
    assert state.gpus == ("H100 80GB HBM3", "T4")
    assert usage.by_gpu([state], "ana") == {
        "H100 80GB HBM3": usage.OnGpu(seconds=50, steps=100),
        "T4": usage.OnGpu(seconds=100, steps=7),
    }
    assert usage.by_gpu([state, state], "ben") == {"T4": usage.OnGpu(seconds=120, steps=10)}
    assert usage.by_gpu([state], "cid") == {}


def test_a_run_that_was_never_told_a_kind_is_written_as_the_first_version_wrote_it() -> None:
    run = Run()
    state = run.session("ana", None, 10, 5.0)
    assert not {"gpu", "gpus", "by_gpu"} & set(re.findall(r"\w+", state.model_dump_json()))
    assert "gpu" not in Lease().model_dump(mode="json")
    told = run.session("ana", "T4", 5, 5.0)
    assert (told.usage["ana"].steps, usage.by_gpu([told], "ana")["T4"].steps) == (15, 5)
    assert RunState.model_validate_json(dumps(told.model_dump(mode="json"))) == told


def test_kinds_beyond_what_a_state_holds_are_counted_and_not_told() -> None:
    run = Run()
    for n in range(MAX_GPUS + 2):
        run.session("ana", f"GPU {n}", 10, 10.0)
    assert run.state.usage["ana"].steps == 10 * (MAX_GPUS + 2)
    assert sum(one.steps for one in usage.by_gpu([run.state], "ana").values()) == 10 * MAX_GPUS
    assert run.state.links[-1].gpu == f"GPU {MAX_GPUS + 1}", "a link names its own"


def test_an_account_s_first_kind_always_has_room_and_the_others_while_there_is() -> None:
    table = {f"a{n}": Usage(by_gpu=((0, 1, 1), (1, 1, 1))) for n in range(MAX_FURTHER)}
    full = usage.trained(table, "a0", 5, gpu=2)
    assert (full["a0"].steps, full["a0"].by_gpu) == (5, table["a0"].by_gpu)
    assert usage.trained(table, "new", 5, gpu=2)["new"].by_gpu == ((2, 0, 5),)
    assert usage.trained(table, "a0", 5, gpu=1)["a0"].by_gpu == ((0, 1, 1), (1, 1, 6))


def test_kinds_take_the_room_of_intervals_and_no_time_is_lost() -> None:
    table: dict[str, Usage] = {f"a{n}": Usage(intervals=((n, n + 1),)) for n in range(900)}
    table["busy"] = Usage(intervals=tuple((n, n + 1) for n in range(0, 1198, 2)))
    grown = usage.trained(usage.ended(table, "busy", 2000.0, 1.0, 2000.0), "a0", 1, gpu=0)
    assert sum(len(one.intervals) for one in grown.values()) == 1500 - 1
    assert sum(end - start for start, end in grown["busy"].intervals) == 600


def test_more_than_the_rules_let_in_is_no_crash() -> None:
    table = {f"a{n}": Usage(intervals=((0, 1),), by_gpu=((0, 1, 1),)) for n in range(1500)}
    assert len(usage.ended(table, "a0", 0.0, 1.0, 1.0)["a0"].intervals) == 1


@pytest.mark.parametrize(
    "use", [Usage(by_gpu=((0, 1, 1),)), Usage(by_gpu=((0, 1, 1),) * (MAX_FURTHER + 2))], ids=["unknown", "too many"]
)
def test_a_state_whose_kinds_do_not_fit_is_refused(use: Usage) -> None:
    state = Run().state
    gpus = ("T4",) if len(use.by_gpu) > 1 else ()
    hurt = state.model_copy(update={"usage": {"ana": use}, "gpus": gpus})
    with pytest.raises(ValidationError) as error:
        RunState.model_validate_json(hurt.model_dump_json())
    assert error.value.error_count() == 1 and "GPU" in str(error.value)


def test_a_session_says_what_it_trains_on_before_it_trains(lab: Lab) -> None:
    lab.run(lab.session("ana", workload=ToyWorkload(environment={"gpu": "NVIDIA L4"}), target_steps=20))
    assert [link.gpu for link in lab.state().links] == ["L4"]
    assert usage.by_gpu([lab.state()], "ana")["L4"].steps == 20


def test_a_link_of_the_first_version_says_that_its_kind_is_not_told() -> None:
    link = Link(epoch=1, account="ana", from_step=0, to_step=1, started=NOW)
    assert "gpu" not in link.model_dump() and link.gpu is None
