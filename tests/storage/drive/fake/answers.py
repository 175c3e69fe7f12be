"""Answers of the fake Drive and its refusals in the JSON that Google's errors have; knows no route."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.storage.fakes import http

JSON = "application/json; charset=UTF-8"


@dataclass
class Answer(http.Answer):
    """Of Google."""

    type: str = JSON

    @staticmethod
    def json(document: Any, status: int = 200) -> Answer:
        return Answer(status, json.dumps(document, indent=1).encode())


class Refused(Exception):
    """A refusal with Google's two levels of error: the status, and the reason inside the body."""

    def __init__(self, status: int, reason: str, message: str, domain: str = "global", **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, more.pop("code", None)
        self.headers: dict[str, str] = more.pop("headers", {})
        self.details = more.pop("details", None)
        self.item = {"message": more.pop("inner", message), "domain": domain, "reason": reason, **more}

    def answer(self) -> Answer:
        error: dict[str, Any] = {"code": self.status, "message": self.message, "errors": [self.item]}
        if self.code:
            error["status"] = self.code
        if self.details:
            error["details"] = self.details
        answer = Answer.json({"error": error}, self.status)
        answer.headers |= self.headers
        return answer


class PlainText(Exception):
    """What the upload servers say without JSON."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def not_found(file_id: str) -> Refused:
    """Unknown, deleted, or invisible to the asker: all the same."""
    where = {"location": "fileId", "locationType": "parameter"}
    return Refused(404, "notFound", f"File not found: {file_id}.", **where)


def no_permission(file_id: str) -> Refused:
    return Refused(
        403, "insufficientFilePermissions", f"The user does not have sufficient permissions for file {file_id}."
    )


def no_parent_permission() -> Refused:
    return Refused(403, "insufficientParentPermissions", "Insufficient permissions for the specified parent.")


def app_not_authorized(client: str, file_id: str) -> Refused:
    message = f"The user has not granted the app {client.partition('-')[0]} write access to the file {file_id}."
    return Refused(403, "appNotAuthorizedToFile", message)


def id_in_use() -> Refused:
    return Refused(409, "fileIdInUse", "A file already exists with the provided ID.")


def id_not_usable() -> Refused:
    where = {"location": "file.id", "locationType": "other"}
    return Refused(400, "fileIdNotUsable", "The provided file ID is not usable.", **where)


def invalid(location: str, message: str = "Invalid Value", location_type: str = "parameter") -> Refused:
    return Refused(400, "invalid", message, location=location, locationType=location_type)


def bad_request(message: str) -> Refused:
    return Refused(400, "badRequest", message)


def not_writable(field_name: str) -> Refused:
    if field_name == "parents":
        message = (
            "The parents field is not directly writable in update requests. "
            "Use the addParents and removeParents parameters instead."
        )
    else:
        message = "The resource body includes fields which are not directly writable."
    return Refused(403, "fieldNotWritable", message)


def quota_exceeded() -> Refused:
    return Refused(403, "storageQuotaExceeded", "The user's Drive storage quota has been exceeded.")


def service_account_quota() -> Refused:
    message = (
        "Service Accounts do not have storage quota. Leverage shared drives "
        "(https://developers.google.com/workspace/drive/api/guides/about-shareddrives), or use OAuth delegation "
        "(http://support.google.com/a/answer/7281227) instead."
    )
    return Refused(403, "storageQuotaExceeded", message, "usageLimits")


def condition_not_met() -> Refused:
    return Refused(412, "conditionNotMet", "Precondition Failed", location="If-Match", locationType="header")


def not_downloadable() -> Refused:
    message = "Only files with binary content can be downloaded. Use Export with Docs Editors files."
    return Refused(403, "fileNotDownloadable", message, location="alt", locationType="parameter")


def out_of_range(total: int) -> Refused:
    headers = {"Content-Range": f"bytes */{total}"}
    where = {"location": "Range", "locationType": "header"}
    return Refused(416, "requestedRangeNotSatisfiable", "Request range not satisfiable", headers=headers, **where)


def unauthorized() -> Refused:
    """401: an access token that is none, or no longer one."""
    message = (
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
    )
    return Refused(
        401, "authError", message, inner="Invalid Credentials", location="Authorization", locationType="header",
        code="UNAUTHENTICATED", headers={"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'},
    )  # fmt: skip


def no_scope(method: str) -> Refused:
    """403: the token may be good, but not for this."""
    about = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        "domain": "googleapis.com", "metadata": {"service": "drive.googleapis.com", "method": method},
    }  # fmt: skip
    return Refused(
        403, "insufficientPermissions", "Request had insufficient authentication scopes.",
        inner="Insufficient Permission", code="PERMISSION_DENIED", details=[about],
        headers={"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/", error="insufficient_scope"'},
    )  # fmt: skip


def limited(kind: str) -> Refused:
    """The refusals for asking too often, by their documented reasons."""
    table = {
        "429": (429, "rateLimitExceeded", "Rate Limit Exceeded"),
        "rateLimit": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
        "userRateLimit": (403, "userRateLimitExceeded", "User Rate Limit Exceeded"),
        "dailyLimit": (403, "dailyLimitExceeded", "Daily Limit Exceeded"),
    }
    return Refused(*table[kind], domain="usageLimits")
