"""Nothing is sent twice, what is unknown is called so, appends settle by reading, and what passes is waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.base import Ref, Store, Unavailable
from storage.dropbox import client as dropbox_client
from storage.log import Log, Lost, Won
from storage.retry import RetryStore
from storage.s3 import client as s3_client
from storage.transfer import Wanted, download, file_digest
from tests.storage.remote.services import WAIT_S, Fault, Service

LOG = "runs/p/r/ledger/"
FAULTS: dict[str, list[Fault]] = {
    "s3-ministack": ["drop-before", "drop-after", "500-after", "hang-after", "429", "conflict"],
    "hf": ["drop-before", "drop-after", "500-after", "hang-after", "429", "conflict"],
    "dropbox": ["500-before", "drop-before", "drop-after", "500-after", "hang-after", "429"],
    "drive": ["500-before", "drop-before", "drop-after", "500-after", "429"],
    "drive-newest": ["500-before", "drop-before", "drop-after", "500-after", "429"],
}
EVERYWHERE = [pytest.param(name, fault, id=f"{name}-{fault}") for name, faults in FAULTS.items() for fault in faults]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait less than a service hangs."""
    monkeypatch.setattr(dropbox_client, "TIMEOUT_S", 0.6)
    monkeypatch.setattr(s3_client, "_READ_S", 2)


def create(store: Store, name: str, data: bytes) -> Ref:
    """A write that only one may win, as an append makes it."""
    if store.unique_names:
        return store.put_if_absent(name, data)
    (ref,) = store.reserve(1)  # type: ignore[attr-defined]
    return store.create(ref, name, data)  # type: ignore[attr-defined]


ONCE = [case for case in EVERYWHERE if not str(case.id).startswith(("drive-newest", "drive-drop"))]
"""Where a connection breaks Google's SDK sends again by itself, under the same id."""


@pytest.mark.parametrize(("service", "fault"), ONCE, indirect=["service"])
def test_a_write_that_only_one_may_win_is_sent_once_and_its_unknown_outcome_is_said(
    service: Service, fault: Fault
) -> None:
    store, landed = service.store(), fault in ("drop-after", "500-after", "hang-after")
    store.put("other", b"what a client asks only once is asked by now")
    before = service.sent()
    service.fault(fault, "write", times=9)
    with pytest.raises(Unavailable):
        create(store, "slot", b"mine")
    assert service.sent() == before + 1
    service.heal()
    there = [stat.ref for stat in RetryStore(store, sleep=lambda _: None, jitter=float).list("slot")]
    assert len(there) == landed and all(store.get(ref) == b"mine" for ref in there)


@pytest.mark.parametrize(("service", "fault"), EVERYWHERE, indirect=["service"])
def test_an_append_settles_by_reading_and_the_winner_knows_it_won(service: Service, fault: Fault) -> None:
    slept: list[float] = []
    log = Log(service.store(), LOG, sleep=slept.append)
    assert isinstance(log.append(0, b"genesis"), Won)
    service.fault(fault, "write")
    assert isinstance(log.append(1, b"mine"), Won)
    assert service.met() == 1 + (service.kind == "drive-newest")
    service.heal()
    assert log.append(1, b"other") == Lost(b"mine")
    waits = {"429": [WAIT_S], "500-before": [0.5], "conflict": [0.5], "drop-before": [0.5] * (not service.repeats)}
    if service.kind != "drive-newest":  # where one append is two writes, and both met it
        assert slept == waits.get(fault, []), "an answer that was only lost costs no wait"


def test_a_download_goes_on_through_broken_answers(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.transfer.CHUNK", 10_000)
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 400)
    ref = service.store().put("data", source)
    service.fault("cut", "read", times=5, chance=0.5)
    patient = RetryStore(service.store(), sleep=lambda _: None, jitter=lambda: 0.0, attempts=20)
    download(patient, [Wanted(ref, "copy", *file_digest(source))], tmp_path)
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert service.met() == 5


def test_the_wait_that_is_asked_for_is_kept(service: Service) -> None:
    slept: list[float] = []
    store = RetryStore(service.store(), sleep=slept.append, jitter=lambda: 0.0)
    service.fault("429", "write", times=2)
    ref = store.put("a", b"data")
    assert store.get(ref) == b"data" and slept == [WAIT_S] * 2


def test_a_storm_of_refusals_passes(service: Service) -> None:
    """Half of all requests are refused in one way or another; everything is there in the end."""
    store = RetryStore(service.store(), sleep=lambda _: None, jitter=lambda: 0.0, attempts=30)
    kinds: list[Fault] = ["429", "500-after", "drop-after", "drop-before"]
    for kind in kinds:
        service.fault(kind, chance=0.15, times=-1)
    refs = {}
    for number in range(20):
        name = f"x/{number}"
        refs[name] = store.put(name, b"%d" % number)
        assert store.get(refs[name]) == b"%d" % number
    store.delete(refs.pop("x/0"))
    assert [stat.name for stat in store.list("x/")] == sorted(refs)
    assert service.met() > 20


def test_an_answer_that_breaks_off_is_no_shorter_object(service: Service) -> None:
    store = service.store()
    ref = store.put("data", b"x" * 100_000)
    reads: list[Callable[[], bytes]] = [lambda: store.get(ref), lambda: store.read_range(ref, 0, 200_000)]
    for read in reads:
        service.fault("cut", "read")
        with pytest.raises(Unavailable):
            read()
        assert read() == b"x" * 100_000
