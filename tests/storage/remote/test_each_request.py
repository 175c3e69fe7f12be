"""Each request that a run's beginning, a lease, an upload and a clean-up send is refused once: none of them ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.lease.heartbeat import place_of_beats, sign_of_life
from relay.core.names import Names
from relay.core.runs.opening import begin_run, open_run
from storage.base import Store, make_store
from storage.capabilities import give_up, unfinished
from storage.drive import upload as drive_upload
from storage.dropbox import store as dropbox_store
from storage.dropbox import upload as dropbox_upload
from storage.log import Log, Won
from storage.retry import RetryStore
from storage.s3 import store as s3_store
from storage.transfer import upload
from tests.core.making import pair_of
from tests.storage.badlinks import KINDS, link
from tests.storage.s3.proxy import Reply, Request

NAMES = Names("p", "r")


def life(store: Store, folder: Path) -> None:
    """What commands and sessions ask of a store, each at least once."""
    begun = begin_run(pair_of(store), "p", "r", {"a": 1}, init=True)
    beat = place_of_beats(store)
    if beat:
        store.claim(NAMES.heartbeat(1), beat)  # type: ignore[attr-defined]
    store.put(NAMES.heartbeat(1), b"{}")
    assert sign_of_life(store, NAMES, 1, beat) is not None and store.now() > 0
    log = Log(store, "runs/p/other/ledger/", sleep=lambda _: None)
    assert isinstance(log.append(0, b"zero"), Won) and isinstance(log.append(1, b"one"), Won)
    log.publish_hint(1, "0" * 64)
    assert log.tail(1) == 1 and log.hint() is not None and log.gaps(1) == []
    (sent,) = upload(store, folder, {"file": "checkpoints/p/r/step_1.e1/file"})
    assert store.stat(sent.ref).size == (folder / "file").stat().st_size
    assert store.read_range(sent.ref, 5, 3) == (folder / "file").read_bytes()[5:8]
    assert unfinished(store, "checkpoints/") == []
    give_up(store, "checkpoints/p/r/step_1.e1/file")
    store.delete(sent.ref)
    opened = open_run(pair_of(store, expected=begun.view.state.ledger_store), "p", "r")
    assert opened is not None


def once_each() -> Callable[[Request], bool]:
    """True for the first of all equal requests."""
    met: set[tuple[str, str, bytes]] = set()

    def first(request: Request) -> bool:
        boundary = request.headers.get("content-type", "").partition('boundary="')[2].rstrip('"')
        body = request.body.replace(boundary.encode(), b"") if boundary else request.body
        told = request.path.encode() + _range(request) + body
        if b"selftest" in told or "upload_id=" in request.path:
            return False  # test_selftest.py: it tries again under fresh names; test_uploads.py: parts of a session
        what = (request.method, request.path, hashlib.sha256(told).digest())
        return not (what in met or met.add(what))  # type: ignore[func-returns-value]

    return first


def _range(request: Request) -> bytes:
    return (request.headers.get("range", "") + request.headers.get("dropbox-api-arg", "")).encode()


def unavailable(_: Request, reply: Reply) -> None:
    """It had its effect, and the answer is a server's error."""
    reply.status, reply.headers, reply.content = 503, {"content-type": "text/plain", "retry-after": "0"}, b""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("storage.retry", "storage.log"):
        monkeypatch.setattr(f"{module}._FIRST_WAIT", 0.0001)
    for module, name in ((drive_upload, "SMALL"), (dropbox_store, "SMALL"), (s3_store, "IN_PARTS")):
        monkeypatch.setattr(module, name, 1 << 20)
    monkeypatch.setattr(dropbox_upload, "PART", 1 << 20)
    monkeypatch.setattr(drive_upload, "PART", 1 << 20)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer-lost"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_request_may_be_refused_once(
    kind: str, lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789" * 110_000)
    with link(kind, monkeypatch) as behind:
        address = make_store(behind.address)
        store = RetryStore(behind.store(address), sleep=lambda _: None, jitter=lambda: 0.0)
        if lost:
            behind.proxy.alter(unavailable, once_each())
        else:
            behind.proxy.fail("slow down", once_each())
        life(store, tmp_path)
        assert len(behind.proxy.failed) > 20
