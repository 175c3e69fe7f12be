"""Behind a proxy that loses and invents answers: nothing is sent twice, what is unknown is called so, appends settle.

Servers that keep no promise are refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.base import BadAddress, Corrupt, Denied, Exists, Missing, OutcomeUnknown, Throttled, TooLong, Unavailable
from storage.log import Log, Lost, Won
from storage.retry import RetryStore
from storage.s3 import client
from storage.s3.store import S3Store
from storage.selftest import self_test
from storage.transfer import Wanted, download, file_digest
from tests.storage.s3.conftest import opened
from tests.storage.s3.proxy import RETRY_AFTER_S, Fault, Proxy, Request
from tests.storage.s3.servers import Server, server

pytestmark = pytest.mark.slow

LOG = "runs/p/r/ledger/"


def conditional(request: Request) -> bool:
    return request.conditional


def puts(request: Request) -> bool:
    return request.method == "PUT"


def gets(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.path


@pytest.fixture
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits two seconds for an answer, where the server stalls."""
    if "stall" in request.node.callspec.params["fault"]:
        monkeypatch.setattr(client, "_READ_S", 2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["before", "after", "error after", "stall after", "conflict", "slow down"])
def test_a_conditional_write_is_sent_once_and_its_unknown_outcome_is_said(
    faulty: S3Store, direct: S3Store, proxy: Proxy, fault: Fault
) -> None:
    proxy.fail(fault, conditional, times=1)
    with pytest.raises(Unavailable):
        faulty.put_if_absent("slot", b"mine")
    assert len([r for r in proxy.seen if r.conditional]) == 1, "not repeated by the SDK"
    landed = fault in ("after", "error after", "stall after")
    if landed:
        patient = RetryStore(direct, sleep=lambda _: None, jitter=lambda: 0.0)
        assert patient.get(direct.ref("slot")) == b"mine"
    else:
        with pytest.raises(Missing):
            direct.get(direct.ref("slot"))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["before", "after", "error after", "stall after", "conflict", "slow down"])
def test_an_append_settles_by_reading_the_winner_knows_it_won(faulty: S3Store, proxy: Proxy, fault: Fault) -> None:
    slept: list[float] = []
    log = Log(faulty, LOG, sleep=slept.append)
    proxy.fail(fault, conditional, times=1)
    assert isinstance(log.append(0, b"mine"), Won)
    assert log.append(0, b"other") == Lost(b"mine")
    assert slept == {"before": [0.5], "conflict": [0.5], "slow down": [RETRY_AFTER_S]}.get(fault, [])


def test_a_conflict_that_stores_nothing_is_never_taken_for_somebody_elses(faulty: S3Store, proxy: Proxy) -> None:
    proxy.fail("conflict", conditional)
    with pytest.raises(OutcomeUnknown):
        Log(faulty, LOG, sleep=lambda _: None).append(0, b"mine", attempts=3)
    assert len([r for r in proxy.seen if r.conditional]) == 3


def test_an_answer_that_breaks_off_is_no_shorter_object(faulty: S3Store, direct: S3Store, proxy: Proxy) -> None:
    ref = direct.put("data", b"x" * 100_000)
    reads: list[Callable[[], bytes]] = [lambda: faulty.get(ref), lambda: faulty.read_range(ref, 0, 200_000)]
    for read in reads:
        proxy.fail("cut", gets, times=1)
        with pytest.raises(Unavailable):
            read()
        assert len(read()) == 100_000


def test_a_download_goes_on_through_broken_answers(
    faulty: S3Store, direct: S3Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.transfer.CHUNK", 10_000)
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 400)
    ref = direct.put("data", source)
    proxy.fail("cut", gets, every=3)
    patient = RetryStore(faulty, sleep=lambda _: None, jitter=lambda: 0.0)
    download(patient, [Wanted(ref, "copy", *file_digest(source))], tmp_path)
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert len(proxy.failed) >= 3


def test_throttling_says_how_long(faulty: S3Store, proxy: Proxy) -> None:
    proxy.fail("slow down", lambda _: True)
    for ask in (lambda: faulty.get(faulty.ref("a")), lambda: faulty.put("a", b""), faulty.now):
        with pytest.raises(Throttled) as caught:
            ask()
        assert caught.value.retry_after == RETRY_AFTER_S


def test_a_listing_that_breaks_off_goes_on(faulty: S3Store, direct: S3Store, proxy: Proxy) -> None:
    for number in range(5):
        direct.put(f"n/{number}", b"")
    proxy.fail("after", lambda request: "list-type" in request.path, times=2)
    patient = RetryStore(faulty, sleep=lambda _: None, jitter=lambda: 0.0)
    assert [stat.name for stat in patient.list("n/")] == [f"n/{number}" for number in range(5)]


def test_a_limit_reads_nothing_and_leaves_the_connection_usable(direct: S3Store) -> None:
    ref = direct.put("long", b"x" * 3_000_000)
    for _ in range(3):
        with pytest.raises(TooLong):
            direct.get(ref, limit=10)
    assert len(direct.get(ref)) == 3_000_000


def test_reading_only_writes_nothing_whatever_is_asked(ministack: Server, prefix: str, direct: S3Store) -> None:
    direct.put("there", b"1")
    reader = opened(ministack.address(prefix), read_only=True)
    for write in (
        lambda: reader.put("a", b""),
        lambda: reader.put_if_absent("a", b""),
        lambda: reader.delete(reader.ref("there")),
        lambda: reader.give_up("a"),
        lambda: self_test(reader),
    ):
        with pytest.raises(Denied, match="reading only"):
            write()
    assert abs(reader.now() - direct.now()) < 60 and not reader.clock_is_local
    assert reader.stat(reader.ref("there")).size == 1
    assert [stat.name for stat in direct.list("")] == ["there"]


# --- servers that must not hold a run -------------------------------------------------------------------------------


def test_a_server_that_ignores_conditions_is_refused_by_name() -> None:
    rclone = server("rclone")
    with pytest.raises(BadAddress, match="put_if_absent overwrote an object") as caught:
        self_test(opened(rclone.address("x")))
    assert rclone.endpoint_url in str(caught.value)


def test_a_server_that_checks_first_and_writes_then_is_refused(faulty: S3Store, proxy: Proxy) -> None:
    """What moto and several other servers do now and then, here every time."""
    proxy.fail("racy", conditional)
    with pytest.raises(BadAddress, match="of 8 simultaneous put_if_absent"):
        self_test(faulty)


def test_a_server_that_drops_the_condition_later_is_met_when_the_slot_is_read(
    faulty: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    """The writer believes that it won; everybody reads what is there, and the overwritten entry is void to all."""
    self_test(faulty)
    assert isinstance(Log(direct, LOG, sleep=lambda _: None).append(0, b"first"), Won)
    proxy.fail("unconditional", conditional)
    with pytest.raises(BadAddress, match="overwrote"):
        self_test(faulty)


def test_a_server_that_keeps_wrong_checksums_is_read_back(tmp_path: Path) -> None:
    """moto takes any SHA-256 on trust, so nothing that it tells of a file counts as verified."""
    store = opened(server("moto").address("x"))
    source = tmp_path / "source"
    source.write_bytes(b"small")
    stat = store.stat(store.put("small", source))
    assert (stat.sha256, stat.block_hash) == (None, None)
    assert not store._checksums.of_objects and not store._checksums.of_parts
    assert [found.name for found in store.list("")] == ["small"], "the probes are gone"
    assert list(store.unfinished("")) == []


@pytest.mark.parametrize("name", ["ministack", "seaweedfs"])
def test_a_server_that_refuses_wrong_checksums_is_believed(name: str, tmp_path: Path) -> None:
    store = opened(server(name).address("checked"))
    source = tmp_path / "source"
    source.write_bytes(b"small")
    ref = store.put("small", source)
    stat, reader = store.stat(ref), opened(store.address, read_only=True)
    assert (stat.sha256, stat.hash_tested) == (file_digest(source)[1], True)
    assert not reader.stat(ref).hash_tested, "who may not write cannot have tried"
    for small in (store.put("bytes", b"some"), store.put_if_absent("slot", b"some")):
        assert store.stat(small).sha256 == hashlib.sha256(b"some").hexdigest(), "from then on these carry one too"
    with pytest.raises(Exists):
        store.put_if_absent("slot", b"other")
    assert [found.name for found in store.list("")] == ["bytes", "slot", "small"], "the probes are gone"


def test_an_object_that_somebody_replaced_is_noticed(direct: S3Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"mine")
    ref = direct.put("data", source)
    direct.put("data", b"your")
    with pytest.raises(Corrupt):
        download(direct, [Wanted(ref, "copy", *file_digest(source))], tmp_path)
    with pytest.raises(Exists):
        direct.put_if_absent("data", b"again")
