"""A store that is whole, behind a connection that is not: no session goes back, and no command blames a good file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from relay.core.ledger.frozen import TARGET
from storage.base import Missing, Ref, Stat, Store
from storage.wrapper import Wrapper
from tests.app.cli import wrap_stores
from tests.damage.scene import NAMES, Scene, content

HEAD, OLDER = NAMES.checkpoint(30, 3), NAMES.checkpoint(20, 2)
Change = Callable[[bytes, int], bytes]
"""The bytes that arrive at the n-th read of the given ones."""


class Link(Wrapper):
    """Changes the reads of one object from the first to the `until`-th, counted over all clients."""

    reads = 0

    def __init__(self, inner: Store, name: str, change: Change, until: int, hashes: bool) -> None:
        super().__init__(inner)
        self.name, self.change, self.until, self.hashes = name, change, until, hashes

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._arrives(ref, self.inner.get(ref, limit=limit))

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._arrives(ref, self.inner.read_range(ref, start, length))

    def stat(self, ref: Ref) -> Stat:
        """With the server's own hash, where there is one."""
        sha256 = hashlib.sha256(self.inner.get(ref)).hexdigest() if self.hashes else None
        return replace(self.inner.stat(ref), sha256=sha256)

    def _arrives(self, ref: Ref, data: bytes) -> bytes:
        if ref != self.name:
            return data
        Link.reads += 1
        return self.change(data, Link.reads) if Link.reads <= self.until and data else data


def flips(data: bytes, _: int) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def flips_anywhere(data: bytes, nth: int) -> bytes:
    return data[:nth] + bytes([data[nth] ^ 1]) + data[nth + 1 :]


def shortens(data: bytes, _: int) -> bytes:
    return data[:-1]


BAD = {"flipped": (flips, True), "flipped anywhere": (flips_anywhere, False), "shortened": (shortens, False)}
"""And whether the store must have a hash of its own for this to be seen."""


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts every store that commands open behind a link."""

    def put(name: str, change: Change, until: int = 1000, hashes: bool = True) -> None:
        Link.reads = 0
        wrap_stores(monkeypatch, lambda store: Link(store, name, change, until, hashes))

    return put


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
@pytest.mark.parametrize("how", BAD)
def test_i6_a_good_checkpoint_that_arrives_wrong_twice_is_not_left(
    scene: Callable[[str], Scene], behind: Callable[..., None], file: str, how: str
) -> None:
    here = scene("memory")
    before = here.state()
    behind(HEAD + file, BAD[how][0], 2, BAD[how][1])
    refused = here.train(40, code=69)
    assert here.store.address in refused.err and f"{HEAD}{file}" in refused.err
    after = here.state()
    assert (after.step, after.retained) == (before.step, before.retained)
    assert {one.cause for one in after.incidents} - {one.cause for one in before.incidents} <= {TARGET}
    kept = content(here.store)
    here.train(40, code=0)
    state = here.check_sound(kept)
    assert (state.links[-1].from_step, state.links[-1].certified) == (30, "exact")
    assert not [one for one in here.incidents() if one.startswith("rewind")]


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
def test_one_wrong_read_is_nothing(scene: Callable[[str], Scene], behind: Callable[..., None], file: str) -> None:
    here = scene("memory")
    behind(HEAD + file, flips, until=1)
    here.train(40, code=0)
    assert here.state().links[-1].from_step == 30 and here.verify(code=0)["ok"]


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
@pytest.mark.parametrize("how", BAD)
def test_verify_names_the_connection_and_no_good_file(
    scene: Callable[[str], Scene], behind: Callable[..., None], file: str, how: str
) -> None:
    here = scene("memory")
    behind(OLDER + file, BAD[how][0], hashes=BAD[how][1])
    refused = here.command("verify", code=69)
    assert here.store.address in refused.err and f"{OLDER}{file}" in refused.err
    assert "DAMAGED" not in refused.out + refused.err


class Miscounts(Wrapper):
    """A connection that reports a wrong size for one object, or that it is missing; a new connection is correct."""

    def __init__(self, inner: Store, name: str, missing: bool) -> None:
        super().__init__(inner)
        self.name, self.missing = name, missing

    def stat(self, ref: Ref) -> Stat:
        stat = self.inner.stat(ref)
        if ref == self.name and self.missing:
            raise Missing(f"there is no {ref}")
        return replace(stat, size=stat.size + (ref == self.name))

    def fresh(self) -> Store:
        return self.inner


def bad(here: Scene, code: int | None = None) -> list[str]:
    """Doctor's findings on checkpoints."""
    found = json.loads(here.command("doctor", "--json", code=code).out)["findings"]
    return [row["text"] for row in found if row["subject"] == "checkpoint" and not row["ok"]]


@pytest.mark.parametrize("missing", [False, True])
def test_doctor_asks_again_before_it_calls_a_file_damaged(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    here, name = scene("memory"), HEAD + "state.json"
    wrap_stores(monkeypatch, lambda store: Miscounts(store, name, missing))
    assert not bad(here, code=0)
    here.store.put(name, b"short")
    (told,) = bad(here)
    assert all(fact in told for fact in ("30", "account_1"))


class Rotten(Wrapper):
    """A server that returns other bytes of one object than it was sent, but the hash of the original ones."""

    def __init__(self, inner: Store, name: str, sha256: str) -> None:
        super().__init__(inner)
        self.name, self.sha256 = name, sha256

    def stat(self, ref: Ref) -> Stat:
        stat = self.inner.stat(ref)
        return replace(stat, sha256=self.sha256) if ref == self.name else stat


def test_a_file_that_its_server_hands_out_against_its_own_hash_stops_the_run_until_a_person_decides(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, name = scene("memory"), HEAD + "state.json"
    whole = here.picture.store[name]
    wrap_stores(monkeypatch, lambda store: Rotten(store, name, hashlib.sha256(whole).hexdigest()))
    here.store.put(name, flips(whole, 0))
    assert name in here.train(40, code=69).err
    here.command("fork", "--to", "second", "--from-step", "20", code=0)
    here.store.delete(here.store.ref(name))
    here.train(40, code=0)
    (told,) = [text for text in here.incidents() if text.startswith("rewind: ")]
    assert name in told and here.state().step == 40
