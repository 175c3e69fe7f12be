"""Every way in which an S3 server refuses, or does not answer, is one clear error of the right kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from storage.base import BadAddress, Denied, Missing, QuotaExceeded, StoreError, Throttled, Unavailable
from storage.guides import GUIDES
from storage.s3.errors import translate
from storage.s3.store import S3Store
from tests.facts import raising
from tests.storage.s3.conftest import opened
from tests.storage.s3.servers import Server, own_port

AT = "s3://bucket/p"


def answered(code: str, status: int, **headers: str) -> ClientError:
    details = {"Error": {"Code": code, "Message": "the reason"}}
    about = {"HTTPStatusCode": status, "HTTPHeaders": {k.replace("_", "-"): v for k, v in headers.items()}}
    return ClientError({**details, "ResponseMetadata": about}, "Any")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "kind", "fact"),
    [
        ("NoSuchKey", 404, Missing, "a/name"),
        ("404", 404, Missing, "a/name"),
        ("NoSuchBucket", 404, BadAddress, "endpoint_url"),
        ("NoSuchUpload", 404, Unavailable, "NoSuchUpload"),
        ("AccessDenied", 403, Denied, GUIDES["s3"]),
        ("403", 403, Denied, "ListBucket"),
        ("InvalidAccessKeyId", 403, Denied, "AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, Denied, "AWS_SECRET_ACCESS_KEY"),
        ("Unauthorized", 401, Denied, "AWS_ACCESS_KEY_ID"),
        ("ExpiredToken", 400, Denied, "ExpiredToken"),
        ("RequestTimeTooSkewed", 403, Denied, "NTP"),
        ("QuotaExceeded", 403, QuotaExceeded, "a/name"),
        ("XMinioStorageFull", 507, QuotaExceeded, "a/name"),
        ("Whatever", 507, QuotaExceeded, "a/name"),
        ("SlowDown", 503, Throttled, "1 s"),
        ("ServiceUnavailable", 503, Throttled, "1 s"),
        ("TooManyRequests", 429, Throttled, "1 s"),
        ("ConditionalRequestConflict", 409, Unavailable, "ConditionalRequestConflict"),
        ("OperationAborted", 409, Unavailable, "OperationAborted"),
        ("InternalError", 500, Unavailable, "InternalError"),
        ("RequestTimeout", 400, Unavailable, "RequestTimeout"),
        ("BadDigest", 400, Unavailable, "BadDigest"),
        ("NeverHeardOf", 418, Unavailable, "NeverHeardOf"),
        ("NotImplemented", 501, BadAddress, "NotImplemented"),
        ("PermanentRedirect", 301, BadAddress, "?region="),
        ("ExistingObjectIsDirectory", 409, Denied, "ExistingObjectIsDirectory"),
    ],
)
def test_answers(code: str, status: int, kind: type[StoreError], fact: str) -> None:
    meant = translate(answered(code, status), AT, "a/name")
    assert type(meant) is kind
    assert fact in str(meant) and AT in str(meant)


def test_the_region_that_a_server_names_is_passed_on() -> None:
    meant = translate(answered("PermanentRedirect", 301, x_amz_bucket_region="eu-west-3"), AT, "x")
    assert "?region=eu-west-3" in str(meant)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("12", 12), ("0", 0), ("-5", 0), ("1e9", 300), ("nan", 1), ("soon", 1), ("Sat, 01 Jan 2000 00:00:00 GMT", 0)],
)
def test_retry_after_is_seconds_or_a_date_and_bounded(header: str, seconds: float) -> None:
    meant = translate(answered("SlowDown", 503, retry_after=header), AT, "x")
    assert isinstance(meant, Throttled) and meant.retry_after == seconds


@pytest.mark.parametrize(
    ("error", "kind", "fact"),
    [
        (boto.NoCredentialsError(), Denied, "AWS_ACCESS_KEY_ID"),
        (boto.PartialCredentialsError(provider="env", cred_var="secret"), Denied, "AWS_SECRET_ACCESS_KEY"),
        (boto.ProfileNotFound(profile="mine"), Denied, "mine"),
        (boto.EndpointConnectionError(endpoint_url="http://x"), Unavailable, "http://x"),
        (boto.ConnectTimeoutError(endpoint_url="http://x"), Unavailable, "http://x"),
        (boto.ReadTimeoutError(endpoint_url="http://x"), Unavailable, ""),
        (boto.ConnectionClosedError(endpoint_url="http://x"), Unavailable, ""),
        (boto.SSLError(endpoint_url="https://x", error="self-signed"), Unavailable, "AWS_CA_BUNDLE"),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), Unavailable, ""),
        (boto.EndpointProviderError(msg="no rule"), BadAddress, "endpoint_url"),
        (ResponseParserError("not XML"), Unavailable, ""),
    ],
)
def test_silence(error: Exception, kind: type[StoreError], fact: str) -> None:
    meant = translate(error, AT, "x")
    assert type(meant) is kind
    assert fact in str(meant)


def test_nobody_at_the_address_is_unavailable_at_each_verb() -> None:
    store = opened(f"s3://bucket?endpoint_url=http://127.0.0.1:{own_port()}")
    ref = store.ref("a")
    asks: list[Callable[[], object]] = [
        *(lambda: store.get(ref), lambda: store.stat(ref), lambda: store.delete(ref), lambda: list(store.list(""))),
        *(lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), store.now),
    ]
    for ask in asks:
        with raising(Unavailable, store.address):
            ask()


def test_without_credentials_each_verb_is_denied_and_says_how_to_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = opened("s3://bucket?endpoint_url=http://127.0.0.1:1")
    assert store.credentials_source() is None
    for ask in (lambda: store.get(store.ref("a")), lambda: store.put("a", b""), store.now):
        with pytest.raises(Denied, match="AWS_ACCESS_KEY_ID"):
            ask()
    monkeypatch.setenv("AWS_PROFILE", "nosuch")
    with pytest.raises(Denied, match="nosuch"):
        opened("s3://bucket?endpoint_url=http://127.0.0.1:1").now()


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_never_an_empty_one(ministack: Server) -> None:
    address = f"s3://no-such-bucket/x?endpoint_url={ministack.endpoint_url}"
    ref = opened(address).ref("a")
    asks: list[Callable[[S3Store], object]] = [
        *(lambda s: s.get(ref), lambda s: s.stat(ref), lambda s: s.read_range(ref, 0, 5), lambda s: list(s.list(""))),
        *(lambda s: s.put("a", b""), lambda s: s.put_if_absent("a", b""), lambda s: s.now()),
    ]
    for ask in asks:
        with raising(BadAddress, address):
            ask(opened(address))


@pytest.mark.slow
def test_where_credentials_come_from_is_told_and_never_what_they_are(ministack: Server) -> None:
    store = opened(ministack.address("source"))
    assert store.credentials_source() == "env"
