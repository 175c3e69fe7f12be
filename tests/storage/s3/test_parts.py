"""Files in parts: verified by the server, resumed after a kill from what the server has, no parts left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import pytest

from storage.base import BlockHash, Unavailable
from storage.capabilities import give_up
from storage.digests import Digests
from storage.s3 import multipart, store
from storage.s3.multipart import part_size
from storage.s3.store import S3Store
from storage.transfer import upload
from tests.storage.remote.work import SPAWN
from tests.storage.s3.conftest import opened
from tests.storage.s3.killed import send
from tests.storage.s3.proxy import Fault, Proxy, Request, proxy_to
from tests.storage.s3.servers import BUCKET, Server, server

pytestmark = pytest.mark.slow

PART = 5 << 20
"""The smallest that S3 takes."""
PARTS = 4
CHECKSUM = "x-amz-checksum-sha256"
Recorder = Callable[[str, object], None]
POINTS = Random(1).sample([*product(range(1, PARTS + 3), ("before", "after"))], 2 * (PARTS + 2))
"""Each request of an upload, unsent or on its way."""
KILLS = int(os.environ.get("RELAY_KILLS", "16"))
"""Every fourth is followed by a clean-up, which here meets a third of the points and in the long mode all."""
KILLED = {"ministack": 1 << 20, "seaweedfs": PART}
"""Servers, and bytes of a part there: MiniStack takes shorter ones than S3 does, which take less time."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART", PART)
    monkeypatch.setattr(store, "IN_PARTS", PART)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of four parts, the last of them short."""
    path = tmp_path_factory.mktemp("parts") / "model"
    path.write_bytes(Random(1).randbytes((PARTS - 1) * PART + 12_345))
    return path


def number(request: Request) -> int | None:
    """Of the part that a request sends."""
    if request.method != "PUT" or "partNumber=" not in request.path:
        return None
    return int(request.path.partition("partNumber=")[2].partition("&")[0])


def sent(requests: list[Request]) -> list[int]:
    return sorted(n for n in map(number, requests) if n is not None and len(requests))


def completes(request: Request) -> bool:
    return request.method == "POST" and "uploadId=" in request.path


def test_part_sizes_follow_from_the_size_alone_and_stay_within_what_s3_allows() -> None:
    for size in (1, PART, 80 << 30, (80 << 30) + 1, 5 << 40):
        step = part_size(size)
        assert PART <= step <= 5 << 30 and -(-size // step) <= 10_000
    assert part_size(10 << 30) == PART


@pytest.mark.parametrize("name", ["ministack", "seaweedfs"])
def test_the_servers_own_hash_of_the_parts_verifies_a_file(name: str, source: Path, prefix: str) -> None:
    mine = opened(server(name).address(prefix))
    ref = mine.put("model", source)
    stat = mine.stat(ref)
    assert stat.block_hash == Digests(source, PART).over_blocks() and isinstance(stat.block_hash, BlockHash)
    assert mine.get(ref) == source.read_bytes()
    assert list(mine.unfinished("")) == []
    assert upload(mine, source.parent, {"model": "model"})[0].ref == ref, "present: not sent again"


def test_each_part_carries_its_checksum_and_what_is_present_is_not_sent_again(
    faulty: S3Store, proxy: Proxy, source: Path
) -> None:
    upload(faulty, source.parent, {"model": "m"})
    parts = [r for r in proxy.seen if number(r) and "selftest" not in r.path]
    assert sent(parts) == [1, 2, 3, 4]
    checksums = [{name for name in r.headers if "checksum" in name} for r in parts]
    assert checksums == [{CHECKSUM}] * 4, "whoever is told the algorithm as well may hash twice"
    proxy.seen.clear()
    upload(faulty, source.parent, {"model": "m"})
    assert sent(proxy.seen) == []


@pytest.mark.parametrize("fault", ["before", "after", "error after"])
def test_a_part_whose_answer_is_lost_is_sent_again_and_the_file_is_whole(
    faulty: S3Store, direct: S3Store, proxy: Proxy, source: Path, fault: Fault
) -> None:
    proxy.fail(fault, lambda r: number(r) == 2, times=2)
    faulty.put("m", source)
    assert direct.get(direct.ref("m")) == source.read_bytes()
    assert len(proxy.failed) == 2


@pytest.mark.parametrize("fault", ["after", "error after"])
def test_a_lost_answer_to_the_last_request_is_settled_by_looking(
    faulty: S3Store, proxy: Proxy, source: Path, fault: Fault
) -> None:
    proxy.fail(fault, completes, times=1)
    faulty.put("m", source)
    assert len([r for r in proxy.seen if completes(r)]) == 1


def test_a_last_request_that_did_not_arrive_costs_no_part_twice(
    faulty: S3Store, direct: S3Store, proxy: Proxy, source: Path
) -> None:
    proxy.fail("before", completes, times=1)
    with pytest.raises(Unavailable):
        faulty.put("m", source)
    proxy.seen.clear()
    faulty.put("m", source)
    assert sent(proxy.seen) == []
    assert direct.get(direct.ref("m")) == source.read_bytes()


def test_other_unfinished_uploads_of_the_name_are_given_up_and_strange_parts_replaced(
    ministack: Server, direct: S3Store, prefix: str, source: Path
) -> None:
    sdk = ministack.sdk()
    place = {"Bucket": direct.where.bucket, "Key": f"{prefix}/m"}
    for _ in range(3):
        begun = sdk.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")
        sdk.upload_part(**place, UploadId=begun["UploadId"], PartNumber=2, Body=b"not of this file" * 400_000)
        sdk.upload_part(**place, UploadId=begun["UploadId"], PartNumber=9, Body=b"beyond its end")
    neighbour = sdk.create_multipart_upload(Bucket=direct.where.bucket, Key=f"{prefix}/m-2")
    direct.put("m", source)
    assert direct.get(direct.ref("m")) == source.read_bytes()
    assert [name for name, _ in direct.unfinished("")] == ["m-2"]
    direct.give_up("m-2")
    direct.give_up("m-2")
    assert list(direct.unfinished("")) == []
    assert neighbour


def test_two_clients_sending_one_name_leave_one_whole_file(
    direct: S3Store, ministack: Server, prefix: str, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").write_bytes(Random(2).randbytes(3 * PART))
    other = opened(ministack.address(prefix))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        sends = [pool.submit(direct.put, "m", source), pool.submit(other.put, "m", tmp_path / "model")]
        outcomes = [send.exception() for send in sends]
    assert all(outcome is None or isinstance(outcome, Unavailable) for outcome in outcomes)
    if None in outcomes:
        assert direct.get(direct.ref("m")) in (source.read_bytes(), (tmp_path / "model").read_bytes())
    direct.put("m", source)
    assert direct.get(direct.ref("m")) == source.read_bytes()
    assert list(direct.unfinished("")) == []


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("name", KILLED)
def test_after_a_kill_at_any_request_no_acknowledged_part_is_sent_again(
    name: str, prefix: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, record_property: Recorder
) -> None:
    """Killed with the request unsent or on its way; the next session finds out from the server alone, or `gc` clears
    away what nobody goes on with."""
    chance, running, part = Random(seed), server(name), KILLED[name]
    monkeypatch.setattr(multipart, "PART", part)
    monkeypatch.setattr(store, "IN_PARTS", part)
    source = tmp_path / "model"
    source.write_bytes(chance.randbytes((PARTS - 1) * part + 12_345))
    cleared, turn = seed % 4 == 3, seed // 4
    fatal, fault = POINTS[(turn if cleared else 3 * turn + seed % 4) % len(POINTS)]
    direct = opened(running.address(prefix))
    with proxy_to(running.endpoint_url) as proxy:
        address = running.address(prefix, proxy.endpoint_url)
        code = killed_upload(address, source, part, proxy, fatal, fault)  # type: ignore[arg-type]
        assert code == -signal.SIGKILL
        acknowledged = set(sent([r for r in proxy.answered if "selftest" not in r.path]))
        proxy.seen.clear()
        if cleared:
            give_up(direct, "m")
        else:
            upload(opened(address), source.parent, {"model": "m"})
            again = set(sent([r for r in proxy.seen if "selftest" not in r.path]))
            assert not acknowledged & again
            assert direct.get(direct.ref("m")) == source.read_bytes()
    assert list(direct.unfinished("")) == [] == unlisted(running, prefix), "no part is left behind"
    record_property("kills", 1)


def killed_upload(address: str, source: Path, part: int, proxy: Proxy, fatal: int, fault: Fault) -> int | None:
    """Exit code of a process that uploads and is killed at its `fatal`-th request."""
    child = SPAWN.Process(target=send, args=(address, source, part))
    met = 0

    def kills(request: Request) -> bool:
        nonlocal met
        met += request.method in ("PUT", "POST") and "selftest" not in request.path
        if met != fatal or child.pid is None:
            return False
        met += 1
        os.kill(child.pid, signal.SIGKILL)
        return True

    proxy.fail(fault, kills, times=1)
    child.start()
    child.join(60)
    return child.exitcode


def unlisted(running: Server, prefix: str) -> list[str]:
    """Keys of unfinished uploads, by the SDK itself."""
    found = running.sdk().list_multipart_uploads(Bucket=BUCKET, Prefix=f"{prefix}/").get("Uploads", [])
    return [upload["Key"] for upload in found]
