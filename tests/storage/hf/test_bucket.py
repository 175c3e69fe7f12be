"""A bucket of Hugging Face as a store: private or refused, made private, and what the gateway lacks costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.base import BadAddress, Denied, Exists, make_store, open_store
from storage.hf import store as hf_store
from storage.hf.place import HFAddress
from storage.hf.store import HFStore
from storage.s3.store import IN_PARTS
from storage.selftest import self_test
from tests.facts import raising
from tests.storage.hf.handle import Fake, running


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Its users' machines hold no token unless a test gives one."""
    service = running()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{service.port}")
    monkeypatch.setenv("HF_TOKEN_PATH", "/nonexistent/token")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return service


def opened(address: str, read_only: bool = False) -> HFStore:
    store = open_store(address, read_only=read_only)
    assert isinstance(store, HFStore)
    return store


@pytest.mark.parametrize("tail", ["", "/a/b", "?public=1", "/a?public=1"])
def test_the_printed_address_opens_the_same_place(tail: str) -> None:
    store = opened(f"hf://buckets/My-Org/my.bucket{tail}")
    assert store.address == f"hf://buckets/My-Org/my.bucket{tail}"
    assert HFAddress.parse(store.address) == store.where
    assert store.where.endpoint_url == "https://s3.hf.co/My-Org" and store.where.addressing == "path"
    assert store.fresh().address == store.address and isinstance(store.fresh(), HFStore)


def test_a_public_bucket_is_refused_before_anything_is_written_into_it(fake: Fake) -> None:
    address = fake.bucket(private=False)
    for write in (lambda: opened(address).put("a", b"x"), lambda: self_test(opened(address))):
        with raising(BadAddress, address, "?public=1"):
            write()
    name = address.removeprefix("hf://buckets/")
    assert fake.look()["buckets"][name]["names"] == []
    opened(address, read_only=True).now()
    opened(f"{address}?public=1").put("a", b"x")


def test_a_bucket_that_becomes_public_is_refused_by_the_next_client(fake: Fake) -> None:
    address = fake.bucket()
    opened(address).put("a", b"x")
    fake.control("visibility", name=address.removeprefix("hf://buckets/"), private=False)
    with raising(BadAddress, address):
        opened(address).put("b", b"x")


def test_where_the_hub_gives_no_answer_a_session_goes_on_and_the_check_says_so(fake: Fake) -> None:
    address = fake.bucket()
    assert "is private" in opened(address).describe()[0]
    fake.control("set", down=True)
    try:
        store = opened(address)
        store.put("a", b"x")
        assert "not known" in store.describe()[0]
    finally:
        fake.control("set", down=False)


def test_the_question_carries_no_token_and_the_gateway_gets_none(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    address = fake.bucket()
    token = fake.control("token", user="ana")
    monkeypatch.setenv("HF_TOKEN", token)
    before = len(fake.look()["asked"])
    self_test(opened(address))
    asked = fake.look()["asked"][before:]
    assert {kind for host, _, kind in asked if host == "s3.hf.co"} == {"signed"}
    assert [kind for host, _, kind in asked if host != "s3.hf.co"] == [""] * 1


def test_a_new_bucket_is_private_although_the_hub_makes_public_ones(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", fake.control("token", user="ana"))
    address = make_store("hf://new/ana/made")
    assert address == "hf://buckets/ana/made" == make_store("hf://new/ana/made") == make_store(address)
    assert fake.look()["buckets"]["ana/made"]["private"] is True
    opened(address).put("a", b"x")
    assert make_store("hf://new/ana/open?public=1") == "hf://buckets/ana/open?public=1"
    assert fake.look()["buckets"]["ana/open"]["private"] is False
    with raising(BadAddress, "hf://buckets/ana/open"):
        make_store("hf://new/ana/open")
    with raising(Denied, "ben"):
        make_store("hf://new/ben/made")


def test_without_a_token_no_bucket_is_made(fake: Fake) -> None:
    with raising(Denied, "HF_TOKEN"):
        make_store("hf://new/ana/never")
    assert "ana/never" not in fake.look()["buckets"]


def test_credentials_of_amazon_are_not_sent(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    with raising(Denied, "AWS_ACCESS_KEY_ID", "HFAK"):
        open_store(fake.bucket())


def test_wrong_credentials_and_a_missing_bucket_are_told_apart(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with raising(BadAddress, "hf://buckets/ana/nowhere"):
        opened("hf://buckets/ana/nowhere").put("a", b"x")
    for name, value in (fake.key() | {"AWS_SECRET_ACCESS_KEY": "mistyped-secret"}).items():
        monkeypatch.setenv(name, value)
    with raising(Denied, "refuses the credentials") as refused:
        opened(fake.bucket()).put("a", b"x")
    assert "mistyped-secret" not in str(refused.value)


def test_files_in_parts_arrive_where_the_gateway_lists_no_uploads(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(range(256)) * ((IN_PARTS >> 8) + 5))
    fake.control("set", lists_uploads=False)
    try:
        store = opened(fake.bucket())
        ref = store.put("model", file)
        assert store.get(ref) == file.read_bytes()
        assert list(store.unfinished("")) == []
    finally:
        fake.control("set", lists_uploads=True)


def test_what_must_be_new_is_refused_also_in_parts_where_no_condition_counts(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x" * (IN_PARTS + 1))
    monkeypatch.setattr(hf_store, "ONE_REQUEST", IN_PARTS)
    store = opened(fake.bucket())
    store.put_new("model", file)
    with pytest.raises(Exists):
        store.put_new("model", file)
