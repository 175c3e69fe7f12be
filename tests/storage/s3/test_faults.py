"""Behind a proxy that loses and invents answers: nothing is sent twice, what is unknown is called so, appends settle.

Servers that keep no promise are refused by name.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from storage import selftest
from storage.base import BadAddress, Corrupt, Denied, Exists, OutcomeUnknown, TooLong
from storage.log import Log, Lost, Won
from storage.retry import RetryStore
from storage.s3.store import S3Store
from storage.selftest import FEW, races, self_test
from storage.transfer import Wanted, download, file_digest
from tests.facts import raising
from tests.storage.s3.conftest import opened
from tests.storage.s3.proxy import Proxy, Reply, Request
from tests.storage.s3.servers import Server, server

pytestmark = pytest.mark.slow

LOG = "runs/p/r/ledger/"


def conditional(request: Request) -> bool:
    return request.conditional


def test_a_conflict_that_stores_nothing_is_never_taken_for_somebody_elses(faulty: S3Store, proxy: Proxy) -> None:
    proxy.fail("conflict", conditional)
    with pytest.raises(OutcomeUnknown):
        Log(faulty, LOG, sleep=lambda _: None).append(0, b"mine", attempts=3)
    assert len([r for r in proxy.seen if r.conditional]) == 3


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


def test_who_may_only_read_gives_no_part_up(ministack: Server, prefix: str) -> None:
    reader = opened(ministack.address(prefix), read_only=True)
    with raising(Denied):
        reader.give_up("a")
    assert not reader.clock_is_local


# --- servers that must not hold a run -------------------------------------------------------------------------------


def test_a_server_that_ignores_conditions_is_refused_by_name() -> None:
    rclone = server("rclone")
    with raising(BadAddress, rclone.endpoint_url):
        self_test(opened(rclone.address("x")))


def test_moto_is_refused_by_its_name_and_each_other_server_races_as_often_as_is_known_of_it() -> None:
    with raising(BadAddress, "moto"):
        self_test(opened(server("moto").address("raced")))
    raced = {name: races(opened(server(name).address("raced"))) for name in ("ministack", "seaweedfs")}
    assert raced == {"ministack": selftest.MANY, "seaweedfs": FEW}
    assert races(opened("s3://bucket/relay")) == FEW, "AWS, without a request"


def test_two_that_were_told_that_they_won_are_told_apart_on_an_unknown_server(
    faulty: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    log = Log(faulty, LOG, sleep=lambda _: None)
    assert isinstance(log.append(0, b"zero"), Won)

    def overwritten(request: Request, _: Reply) -> None:
        direct.put(log.name(1), b"of another that won too")

    proxy.alter(overwritten, conditional)
    assert log.append(1, b"mine") == Lost(b"of another that won too")


def test_a_server_that_checks_first_and_writes_then_is_refused(faulty: S3Store, proxy: Proxy) -> None:
    """What moto and several other servers do now and then, here every time."""
    proxy.fail("racy", conditional)
    with raising(BadAddress, faulty.address):
        self_test(faulty)


def test_a_server_that_drops_the_condition_later_is_met_when_the_slot_is_read(
    faulty: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    """The writer believes that it won; everybody reads what is there, and the overwritten entry is void to all."""
    self_test(faulty)
    assert isinstance(Log(direct, LOG, sleep=lambda _: None).append(0, b"first"), Won)
    proxy.fail("unconditional", conditional)
    with raising(BadAddress, faulty.address):
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
