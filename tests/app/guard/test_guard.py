"""The guard on a simulated clock, against doubles of three providers: the machine is gone, or the failure is loud."""

from __future__ import annotations

import datetime
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from relay.app.guard import ending, rented
from relay.app.guard.ending import STILL_S, StillRuns, end
from relay.app.guard.rented import NoMachine, NotReachable, WrongMachine, checked, here
from relay.app.guard.standby import LATE_S, Orders, take_over, wait_for_end
from relay.app.guard.watching import Watch
from relay.people.policy import STALE_DAYS
from tests.app.guard.rental import (
    HANGS,
    IDS,
    KEY,
    RECORDS,
    Clock,
    MachineGone,
    Planned,
    Provider,
    Session,
    limits,
    renting,
)
from tests.facts import raising

NOWHERE = Path("/nowhere")
PROVIDERS = sorted(RECORDS)
LOUD = ("MACHINE NOT DELETED", "MACHINE STILL RUNS")
PATIENCE_S = 600.0
"""Of the tests: attempts are real requests."""


@pytest.fixture(autouse=True)
def _less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending.PATIENCE_S >= 3600
    monkeypatch.setattr(ending, "PATIENCE_S", PATIENCE_S)


def watched(session: Session, **given: float) -> tuple[int, list[str]]:
    told: list[str] = []
    of = limits(**given)
    return Watch(session.clock, session.began, of, session, told.append).until_over(), told


def ended(provider: Provider, clock: Clock | None = None) -> tuple[Clock, list[str], BaseException]:
    """End the provider's machine, on which the clock runs: (clock, lines, what ended the process)."""
    clock, told = clock or Clock(gone=lambda: provider.gone), []
    with pytest.raises((MachineGone, StillRuns)) as caught:
        end(provider.machine(), clock, told.append)
    return clock, told, caught.value


def is_loud(told: list[str]) -> bool:
    return any(line.startswith(LOUD) for line in told)


# --- The command's time ----------------------------------------------------------------------------------------------


def test_building_data_does_not_start_the_time_of_training() -> None:
    session = Session(Clock(), commits_at=50 * 60)
    assert watched(session, train=10, total=120)[0] == 75
    (asked, number), *more = session.got
    assert (asked, number) == (60 * 60, signal.SIGUSR1) and not more and session.acknowledged


def test_the_total_ends_a_command_that_never_commits() -> None:
    session = Session(Clock())
    watched(session, train=10, total=60)
    assert session.got == [(55 * 60, signal.SIGUSR1)]


def test_a_hang_is_ended_within_the_total() -> None:
    session = Session(Clock(), commits_at=60, heeds=())
    code, _ = watched(session, train=50, total=60)
    assert code == 137 and [number for _, number in session.got[:3]] == [
        signal.SIGUSR1,
        signal.SIGTERM,
        signal.SIGKILL,
    ]
    assert session.clock.now - session.began <= 60 * 60 + 1


def test_a_command_that_not_even_a_kill_ends_does_not_keep_the_machine() -> None:
    session = Session(Clock())
    session.send = lambda number: None  # type: ignore[method-assign]
    code, _ = watched(session, train=50, total=60)
    assert code == 137 and session.clock.now - session.began <= 61 * 60


@pytest.mark.parametrize("code", [0, 1, 75, 78, 137])
def test_the_end_of_a_command_is_its_own(code: int) -> None:
    session = Session(Clock(), commits_at=60, ends_at=300, code=code)
    assert watched(session)[0] == code and session.got == []


def test_an_upload_that_outlives_sigterm_s_grace_is_waited_for() -> None:
    session = Session(Clock(), commits_at=60, upload_s=200)
    assert watched(session)[0] == 75 and len(session.got) == 1


def test_progress_names_the_money() -> None:
    session = Session(Clock(), commits_at=600, ends_at=1801)
    _, told = watched(session, train=45, total=60, price=12.0)
    assert "no step committed yet" in told[0] and "$0.20 of $12.00" in told[0]
    assert "$6.00 of $12.00" in told[-1] and "training 20.0 of 45 min" in told[-1]


def test_a_small_total_has_a_small_grace() -> None:
    session = Session(Clock(), heeds=(), commits_at=1)
    watched(session, train=4, total=4)
    assert [at for at, _ in session.got[:2]] == [180, 210] and session.got[2][0] == 240


# --- The machine's end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    ("deletions", "lingers"),
    [
        ([200], 0),
        ([429, 429, 200], 0),
        ([500, 503, 200], 1),
        ([HANGS, 200], 0),
        (["refuses", 200], 0),
        ([200], 3),
        ([401, 200], 0),
        ([404, 200], 0),
    ],
    ids=str,
)
def test_a_machine_is_deleted_in_the_end(
    name: str, deletions: list[Planned], lingers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rented, "TIMEOUT_S", 0.1)
    with renting(name, deletions=list(deletions), lingers=lingers) as provider:
        _, told, over = ended(provider)
        assert isinstance(over, MachineGone) and provider.deleted
        assert is_loud(told) == (deletions != [200])
        assert {path.rstrip("/").rsplit("/")[-1] for _, path in provider.calls} == {IDS[name]}
        assert provider.keys == {f"Bearer {KEY}"} and KEY not in " ".join(told)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(("deletion", "reading"), [(401, 401), (403, 403), (500, 500), (404, 200), ("refuses", 200)])
def test_a_machine_that_cannot_be_deleted_is_shouted_about(name: str, deletion: Planned, reading: int) -> None:
    with renting(name, deletions=[deletion], reading=reading) as provider:
        clock, told, over = ended(provider)
        assert isinstance(over, StillRuns) and over.machine == IDS[name]
        assert sum(line.startswith(LOUD[0]) for line in told) == len(told) > PATIENCE_S / 61
        assert provider.record.console in told[-1] and KEY not in f"{told}{over}"
        assert clock.now - 1000 < PATIENCE_S + 61


def test_a_machine_that_runs_although_it_is_called_deleted_is_shouted_about() -> None:
    with renting("runpod") as provider:
        _, told, over = ended(provider, Clock())
        assert isinstance(over, StillRuns) and told[0].startswith("RunPod reports")
        assert all(line.startswith(LOUD[1]) for line in told[1:]) and len(told) > (PATIENCE_S - STILL_S) / 61


def test_a_deletion_that_never_takes_effect_is_shouted_about_after_a_while() -> None:
    with renting("prime", lingers=float("inf")) as provider:
        _, told, over = ended(provider)
        assert isinstance(over, StillRuns) and not told[0].startswith(LOUD) and told[-1].startswith(LOUD)


def test_a_key_that_may_not_read_can_still_delete() -> None:
    """Vast.ai's own key of an instance, as one of its pages has it: the second deletion finds no machine."""
    with renting("vast", reading=403, deletions=[200, 404]) as provider:
        clock = Clock()
        with pytest.raises(StillRuns):
            end(provider.machine(), clock, (told := list[str]()).append)
        assert any("reports 4242 as deleted" in line for line in told)


def test_a_provider_that_asks_for_time_gets_it() -> None:
    with renting("runpod", deletions=[429, 200], retry_after="40") as provider:
        assert ended(provider)[0].now == 1040


# --- Which machine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_machine_is_known_by_the_provider_s_variable(name: str, tmp_path: Path) -> None:
    environ = {RECORDS[name].id: IDS[name], RECORDS[name].key: KEY}
    found = here(environ, tmp_path, IDS[name])
    assert (found.record.name, found.name) == (name, IDS[name])


def first_process(root: Path, **variables: str) -> None:
    (root / "proc" / "1").mkdir(parents=True)
    (root / "proc" / "1" / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in variables.items()))


def test_a_login_without_the_provider_s_variables_finds_them(tmp_path: Path) -> None:
    first_process(tmp_path, RUNPOD_POD_ID="mypod123", RUNPOD_API_KEY=KEY)
    assert here({}, tmp_path, None).name == "mypod123"


def test_an_id_from_another_machine_is_refused(tmp_path: Path) -> None:
    first_process(tmp_path, RUNPOD_POD_ID="mypod123", RUNPOD_API_KEY=KEY)
    with raising(WrongMachine, "otherpod", "mypod123"):
        here({"RUNPOD_POD_ID": "otherpod"}, tmp_path, None)
    with raising(WrongMachine, "otherpod", "mypod123"):
        here({}, tmp_path, "otherpod")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "RUNPOD_POD_ID"),
        ({"RUNPOD_POD_ID": "mypod123"}, "RUNPOD_API_KEY"),
        ({"RUNPOD_POD_ID": "mypod123", "CONTAINER_ID": "7", "RUNPOD_API_KEY": KEY}, "CONTAINER_ID"),
        ({"RUNPOD_POD_ID": "../mypod", "RUNPOD_API_KEY": KEY}, "RUNPOD_POD_ID"),
        ({"CONTAINER_ID": "7?all", "CONTAINER_API_KEY": KEY}, "CONTAINER_ID"),
        (
            {"CONTAINER_ID": "7", "CONTAINER_API_KEY": KEY, "RELAY_GUARD_ADDRESS": "http://example.com"},
            "RELAY_GUARD_ADDRESS",
        ),
    ],
)
def test_a_machine_that_cannot_be_deleted_later_is_refused(environ: dict[str, str], named: str) -> None:
    with raising(NoMachine, named) as error:
        here(environ, NOWHERE, None)
    assert KEY not in str(error.value)


@pytest.mark.parametrize(
    ("more", "state"),
    [({"reading": 401}, "refused"), ({"reading": 404}, "gone"), ({"wrong": {"id": "another0"}}, "another")],
)
def test_before_the_start_the_provider_must_know_this_machine(more: dict[str, Any], state: str) -> None:
    with renting("runpod", **more) as provider, raising(NotReachable, IDS["runpod"]) as error:
        checked(provider.machine())
    assert error.value.state == state


@pytest.mark.parametrize(("reading", "warns"), [(200, False), (403, True), (500, True)])
def test_a_provider_that_does_not_answer_does_not_keep_training_from_its_start(reading: int, warns: bool) -> None:
    with renting("runpod", reading=reading) as provider:
        assert bool(checked(provider.machine())) == warns
        assert all(method == "GET" for method, _ in provider.calls)


def test_an_old_record_is_warned_of() -> None:
    record = RECORDS["vast"]
    read = datetime.datetime.fromisoformat(f"{record.as_of}T12:00:00+00:00").timestamp()
    assert rented.stale(record, read + STALE_DAYS * 86400 - 86400) == ""
    assert record.url in rented.stale(record, read + STALE_DAYS * 86400 + 2 * 86400)


def test_a_public_address_that_is_not_this_machine_s_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prime Intellect gives a pod no variable, so a person could set another pod's id."""
    monkeypatch.setattr(rented, "own_address", lambda: "8.8.8.8")
    with renting("prime", wrong={"ip": "9.9.9.9"}) as provider, raising(NotReachable, IDS["prime"]):
        checked(provider.machine())
    with renting("prime", wrong={"ip": "8.8.8.8"}) as provider:
        assert checked(provider.machine()) == ""


# --- The second process ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heeds", "code"), [((signal.SIGTERM,), 75), ((), 137)], ids=["commits", "hangs"])
def test_the_second_process_ends_the_command_then_the_machine(heeds: tuple[signal.Signals, ...], code: int) -> None:
    with renting("vast") as provider:
        clock, over = Clock(gone=lambda: provider.gone), list[bool]()
        session = Session(clock, upload_s=25, heeds=heeds)
        provider.ordered = lambda: over.append(session.ends_at is not None)

        def alive(group: int) -> bool:
            return session.alive()

        def send(group: int, number: int) -> None:
            session.send(signal.Signals(number))

        with pytest.raises(MachineGone):
            take_over(provider.machine(), 7, clock, lambda text: None, alive, send)
        assert session.got[0] == (0, signal.SIGTERM) and session.code == code
        assert over == [True] and session.acknowledged == (code == 75)


def test_a_guard_that_hangs_past_the_end_is_relieved() -> None:
    clock = Clock()

    def silent() -> Any:
        yield b'{"group": 7}'
        while True:
            clock.now += 1
            yield None

    assert wait_for_end(clock.now + 60, silent(), clock) == (False, 7) and clock.now == 1060 + LATE_S
    assert wait_for_end(clock.now, iter([b'{"group": 7}', b'{"over": true}']), clock) == (True, 7)
    assert wait_for_end(clock.now + 60, iter([b'{"group": 7}']), clock) == (False, 7), "it was killed"


@pytest.mark.parametrize("name", PROVIDERS)
def test_orders_hold_no_key(name: str) -> None:
    with renting(name) as provider:
        orders = Orders.of(provider.machine(), 5.0)
        assert KEY not in repr(orders) and orders.machine(provider.environ, NOWHERE) == provider.machine()


# --- The page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_page_has_the_line_of_each_provider(name: str) -> None:
    record = RECORDS[name]
    page = Path(__file__).parents[3] / "docs" / "how-to" / "guard.md"
    (row,) = re.findall(rf"(?m)^\| {re.escape(record.title)} \|.*$", page.read_text())
    assert all(f"`{word}`" in row for word in (record.id, record.key, f"DELETE {record.address}")), row
    assert all(status in row for status in record.gone) and ("you set" in row) == (record.set_by == "person")
    assert record.address.startswith("https://") and record.url.startswith("https://")
