"""s3:// addresses: what opens, what is printed, what is refused and that no secret is ever repeated."""

from __future__ import annotations

import pytest

from storage.base import BadAddress, open_store
from storage.s3.address import parse
from storage.s3.store import S3Store, _safe_start
from tests.facts import raising


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket",
        "s3://bucket/a/Folder_1",
        "s3://bucket?region=eu-central-1",
        "s3://my.bucket/x?endpoint_url=https://abc.r2.cloudflarestorage.com&region=auto",
        "s3://bucket/x?endpoint_url=http://127.0.0.1:9000&addressing=virtual",
        "s3://bucket/x?endpoint_url=http://[::1]:9000",
    ],
)
def test_the_printed_address_is_the_given_one_and_opens_the_same_store(address: str) -> None:
    store = open_store(address)
    assert isinstance(store, S3Store)
    assert store.address == address
    assert parse(store.address) == store.where


def test_quoted_and_loosely_written_addresses_mean_the_same() -> None:
    assert str(parse("s3://bucket/a/?endpoint_url=https%3A%2F%2Fhost%3A9000%2F")) == (
        "s3://bucket/a?endpoint_url=https://host:9000"
    )
    assert parse("s3://bucket/a").root == "a/" and parse("s3://bucket").root == ""


@pytest.mark.parametrize(
    ("address", "fact"),
    [
        ("s3://", "s3://"),
        ("s3://Bucket", "s3://"),
        ("s3://ab", "s3://"),
        ("s3://bucket:80/x", "s3://"),
        ("s3://bucket/../x", "s3://"),
        ("s3://bucket/a//b", "s3://"),
        ("s3://bucket/a%20b", "s3://"),
        ("s3://bucket/" + "a" * 200, "s3://"),
        ("s3://bucket?access_key=hunter2-key", "access_key"),
        ("s3://bucket?region", "key=value"),
        ("s3://bucket?region=", "region"),
        ("s3://bucket?region=Europe!", "region"),
        ("s3://bucket?region=a&region=b", "region"),
        ("s3://bucket?addressing=dns", "addressing"),
        ("s3://bucket?endpoint_url=ftp://host", "endpoint_url"),
        ("s3://bucket?endpoint_url=host:9000", "endpoint_url"),
        ("s3://bucket?endpoint_url=http://host:99999", "endpoint_url"),
        ("s3://bucket?endpoint_url=http://user:hunter2@host", "endpoint_url"),
        ("s3://key:hunter2@bucket", "s3://"),
        ("s3://key:hunter2/with+slash@bucket/x", "s3://"),
        ("s3://key:hunter2/bucket", "'key:…'"),
        ("s3://[bucket", "[bucket"),
    ],
)
def test_what_cannot_be_an_address_is_refused_with_the_reason(address: str, fact: str) -> None:
    with raising(BadAddress, fact) as caught:
        open_store(address)
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_of_the_environment_is_part_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    assert open_store("s3://bucket").address == "s3://bucket?endpoint_url=http://general:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special:2/")
    assert open_store("s3://bucket").address == "s3://bucket?endpoint_url=http://special:2"
    assert open_store("s3://bucket?endpoint_url=http://mine:3").address == "s3://bucket?endpoint_url=http://mine:3"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://key:hunter2@host")
    with raising(BadAddress, "endpoint_url") as caught:
        open_store("s3://bucket")
    assert "hunter2" not in str(caught.value)


def test_a_listing_begins_where_no_server_order_hides_a_later_name() -> None:
    """Against the orders of AWS (by key) and SeaweedFS (folder by folder), on every pair of a hundred names."""
    parts = ["a", "ab", "b", "b-1", "b.x", "b0"]
    names = [*parts, *(f"{x}/{y}" for x in parts for y in parts), *(f"b/{x}/{y}" for x in parts for y in parts)]
    begun = 0
    for after in names:
        folder = after.rpartition("/")[0]
        for prefix in {"", folder, f"{folder}/" * bool(folder), after[:1]}:
            start = _safe_start(prefix, after)
            begun += bool(start)
            for name in (name for name in names if start and name.startswith(prefix) and name > after):
                assert name > start
                assert name.split("/") > start.split("/") and not name.startswith(start + "/")
    assert begun > 50
    slot = "runs/p/r/ledger/00000000000000000012.json"
    assert _safe_start("runs/p/r/ledger/", slot) == "runs/p/r/ledger/0000000000000000001"
