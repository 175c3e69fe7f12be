"""Turns answers of an S3 server, or missing ones, into StoreErrors with advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from storage.answers import seconds_to_wait
from storage.contract import BadAddress, Denied, Missing, QuotaExceeded, StoreError, Throttled, Unavailable
from storage.guides import guide


class NotS3(Exception):
    """A successful answer lacks a part that S3 always sends."""


_NONSENSE = (KeyError, TypeError, ValueError, OverflowError)
"""What the SDK raises for a number or a date that is none."""
Failure = (BotoCoreError, ClientError, ResponseParserError, HTTPError, NotS3, *_NONSENSE)
"""All exceptions that a request or the reading of its answer raises."""

_LONGEST_WAIT = 300.0
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE and ~/.aws/credentials)"

_ABSENT = {"NoSuchKey", "404", "NoSuchVersion", "NotFound"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "StorageFull", "InsufficientCapacity"}
_BUSY = {
    *("SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestThrottled", "TooManyRequests"),
    *("RequestLimitExceeded", "BandwidthLimitExceeded", "RequestThrottledException"),
}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
BAD_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "Unauthorized", "401"}
_ELSEWHERE = {
    *("PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed"),
    *("IllegalLocationConstraintException", "InvalidRegionName"),
}
_IN_THE_WAY = {"ExistingObjectIsDirectory", "ExistingObjectIsFile", "XMinioParentIsObject", "KeyTooLongError"}
_NO_KEYS = (
    *(boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError, boto.ProfileNotFound),
    *(boto.TokenRetrievalError, boto.SSOError, boto.ConfigParseError, boto.MetadataRetrievalError),
    *(boto.ConfigNotFound, boto.InvalidConfigError, boto.NoAuthTokenError, boto.UnknownCredentialError),
)
_BAD_SETTINGS = (
    *(boto.EndpointProviderError, boto.ValidationError, boto.ParamValidationError, boto.BaseEndpointResolverError),
    *(boto.UnsupportedS3ConfigurationError, boto.InvalidRetryConfigurationError, boto.InvalidProxiesConfigError),
)


@contextmanager
def s3_errors(address: str, what: str) -> Iterator[None]:
    """Turns the SDK's exceptions in the block into StoreErrors for `what` in the store at `address`."""
    try:
        yield
    except Failure as error:
        raise translate(error, address, what) from error


def translate(error: Exception, address: str, what: str) -> StoreError:
    """The StoreError for an exception of the SDK. An unknown one is Unavailable, never Missing."""
    if isinstance(error, ClientError):
        return _answered(error, address, what)
    reason = " ".join(str(error).split())
    if isinstance(error, _NO_KEYS):
        return Denied(f"{address}: no usable credentials ({reason}). Set {_KEYS}.")
    if isinstance(error, _BAD_SETTINGS):
        return BadAddress(f"{address} cannot be reached: {reason}. Check the bucket, region and endpoint_url.")
    if isinstance(error, boto.SSLError):
        return Unavailable(
            f"{address}: no trusted connection ({reason}). Check the endpoint_url. If your network inspects TLS, name "
            "its authority's certificate file in AWS_CA_BUNDLE."
        )
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError | boto.ProxyConnectionError):
        return Unavailable(
            f"{address} cannot be reached ({reason}). Check the network, the region and the endpoint_url, then try "
            "again."
        )
    if isinstance(error, (NotS3, ResponseParserError, *_NONSENSE)) and not isinstance(error, BotoCoreError | HTTPError):
        return _not_s3s(address, what, reason)
    return Unavailable(f"{address}: no answer for {what} ({reason}). Try again.")


def _not_s3s(address: str, what: str, why: str) -> Unavailable:
    return Unavailable(f"{address}: the answer to {what} is not S3's ({why[:200]}). Is a proxy or login in the way?")


def is_page(error: Exception) -> bool:
    """Whether a refusal is an HTML page, which an S3 server sends at most to a HEAD."""
    return header_of(error, "content-type").startswith("text/html")


def code_of(error: Exception) -> str:
    """S3's code of an error; '' if it has none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: Exception) -> int:
    """The HTTP status of an answer; 0 if there is none."""
    if not isinstance(error, ClientError):
        return 0
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status if isinstance(status, int) else 0


def header_of(error: Exception, name: str) -> str:
    """A header of an answer, its name in lower case; '' if there is none."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get(name, ""))


def _answered(error: ClientError, address: str, what: str) -> StoreError:
    code, status = code_of(error), status_of(error)
    reason = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())[:300]
    said = f"{code}: {reason}" if reason else code or f"status {status}"
    if code in _FULL or status == 507:
        return QuotaExceeded(f"{address}: no space for {what} ({said}). Free some space or raise the quota there.")
    if code in _BUSY or status in (429, 503, 509):
        wait = seconds_to_wait(header_of(error, "retry-after"), _LONGEST_WAIT, 1.0)
        return Throttled(f"{address} asks to wait {wait:g} s ({said}).", wait)
    if is_page(error) and error.operation_name != "HeadObject":
        return _not_s3s(address, what, f"a page with status {status}")
    refused = _refused(code, status, address, what, said)
    if refused:
        return refused
    if code == "NoSuchBucket":
        return BadAddress(f"{address}: the server has no such bucket. Check its name, the region and the endpoint_url.")
    if code in _ELSEWHERE or (status in (301, 307) and header_of(error, "x-amz-bucket-region")):
        return BadAddress(f"{address}: {_region(error, said)}")
    if code in ("NotImplemented", "InvalidBucketName", "MethodNotAllowed") or status in (405, 501):
        return BadAddress(
            f"{address} cannot hold a run: the server refused {what} ({said}). Use another kind of storage."
        )
    if code in _ABSENT:
        return Missing(f"{address}: no {what}.")
    return Unavailable(f"{address}: {what} failed ({said}). Try again.")


def _refused(code: str, status: int, address: str, what: str, said: str) -> Denied | None:
    """Denied, with advice, if the answer is a refusal; otherwise None."""
    if code == "RequestTimeTooSkewed":
        return Denied(f"{address} refuses this machine's clock ({said}). Set the clock (NTP) and run again.")
    if code in EXPIRED:
        return Denied(f"{address}: the credentials have expired ({said}). Get new ones and run again.")
    if code in BAD_KEYS or status == 401:
        return Denied(f"{address} refuses the credentials ({said}). Check {_KEYS}.")
    if code in _IN_THE_WAY:
        return Denied(f"{address} cannot store {what} ({said}). Use another name.")
    if status == 403 or code == "AccessDenied":
        return Denied(
            f"{address}: no permission for {what} ({said}). The credentials need the rights listed in "
            f"{guide('s3')}; without s3:ListBucket S3 does not report a missing object."
        )
    return None


def _region(error: ClientError, said: str) -> str:
    """Advice for a bucket in another region."""
    region = error.response.get("Error", {}).get("Region") or header_of(error, "x-amz-bucket-region")
    if region and str(region).replace("-", "").isalnum():
        return f"the bucket is in region {region}. Write ?region={region} in the address."
    return f"the bucket is in another region ({said}). Write its region in the address: ?region=…"
