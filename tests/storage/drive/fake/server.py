"""HTTP of the fake Google Drive: requests in, faults, answers and error bodies out; the effects are elsewhere.

Written from what is published, and from nothing else. What each promise rests on:

Documented (discovery documents of v2 and v3 in the SDK, public guides): paths, parameters, scopes, field names and
types; `fields`; generateIds and 409 for a repeated create; resumable uploads (Location, 308 with Range, multiples of
256 KiB, `bytes */N`, 404 after a week, 200 for a question after the end); the error reasons and messages of
rateLimitExceeded (403 and 429), userRateLimitExceeded, dailyLimitExceeded, storageQuotaExceeded, authError, notFound,
insufficientFilePermissions, appNotAuthorizedToFile, fileNotDownloadable, teamDrivesParentLimit; only owners trash, and
nobody else sees their trash; service accounts own no storage; supportsAllDrives; lists of trashed files too; names
that are not unique; 124 bytes a property; `fields` required by about.get.

Reported from the field: reasons fileIdInUse and fileIdNotUsable and their messages; 400 "Invalid Value" for an id that
was deleted; v3 ignores If-Match; the body of v2's 412 and that a write moves `version` by more than one; the message of
a service account's storageQuotaExceeded, in domain usageLimits; insufficientParentPermissions, also for a folder that
drive.file does not show; 404 for `root` under drive.file; upload servers keep whole units of 256 KiB, answer 503 in
plain text to a part that begins too late, and 400 to one too short, and take parts by POST and in chunks, as rclone
sends them; lists by name that lag behind; the body of a 403 for a missing scope.

Assumed, because neither says: who may use a generated id (`World.ids`), what drive.file shows of other users' files
(`World.sees`), when the loser of a resumable race learns it (`World.race`), that a refused upload stays refused, that
If-Match of v2 counts at the beginning and at the end of a resumable upload, 403 for a property that is too long and for
generated ids of Docs Editors formats, 413 for more than 5 MiB in a simple or multipart upload, parents that the client
cannot see are not told, that checksums follow the stored bytes, 499 for a DELETE of a session.

Not played (501): copy, export, labels, revisions, changes, comments, batch requests, domain-wide access.
"""

from __future__ import annotations

import json
import re
import time
from urllib.parse import parse_qsl, urlsplit

from tests.storage.drive.fake import answers, media, oauth, schema
from tests.storage.drive.fake.answers import Answer
from tests.storage.drive.fake.control import control
from tests.storage.drive.fake.faults import Fault
from tests.storage.drive.fake.files import Call
from tests.storage.drive.fake.mishaps import faulty
from tests.storage.drive.fake.schema import Method
from tests.storage.drive.fake.uploads import Session
from tests.storage.drive.fake.world import Access, Account, Grant
from tests.storage.fakes import http

NOT_MEDIA = re.compile(r"metadata")


class Handler(http.Handler):
    """One connection."""

    def do_GET(self) -> None:
        self._dispatch()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _dispatch(self) -> None:
        parts = urlsplit(self.path)
        host, query = (self.headers.get("Host") or "").lower(), dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path.startswith("/control/"):
            told = json.loads(self._body(0) or b"{}")
            self._send(Answer.json(control(self.server.world, parts.path.split("/")[2], told)), 0)
        elif (host, parts.path) == oauth.CONSENT:
            with self.server.world.lock:
                self._send(oauth.consent(self.server.world, query), 0)
        elif (host, parts.path) in oauth.TOKEN:
            self._oauth("oauth2.token", query, parts.path)
        elif (host, parts.path) in oauth.TOKENINFO:
            self._oauth("oauth2.tokeninfo", query, parts.path)
        elif host != "www.googleapis.com":
            self._body(0)
            self._send(Answer(404, b"<h1>404. That's an error.</h1>", type="text/html"), 0)
        else:
            self._drive(parts.path, query)

    def _oauth(self, route: str, query: dict[str, str], path: str) -> None:
        """Both endpoints of tokens; their faults are those of the token's user."""
        body, world = self._body(0), self.server.world
        form = query | dict(parse_qsl(body.decode())) | oauth.basic(self.headers.get("Authorization") or "")
        with world.lock:
            if route == "oauth2.token":
                grant = oauth.owner(world, form)
                run = lambda flip, keep: oauth.token(world, form, grant)  # noqa: E731
            else:
                grant = world.of_token(form.get("access_token", ""))
                version = path.split("/")[2] if path.startswith("/oauth2") else "v3"
                run = lambda flip, keep: oauth.tokeninfo(world, version, form.get("access_token", ""))  # noqa: E731
            account = grant.account if grant else None
            fault = self._meet(account, route, path)
            answer = faulty(fault, run)
        self._slowly(account, answer)

    def _drive(self, path: str, query: dict[str, str]) -> None:
        world, verb = self.server.world, self.command
        override = self.headers.get("X-HTTP-Method-Override")
        if override:
            verb, query = override, query | dict(parse_qsl(self._body(0).decode()))
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or query.get("access_token", "")
        with world.lock:
            grant = world.of_token(bearer)
            session = world.uploads.find(query["upload_id"], world.now()) if "upload_id" in query else None
        try:
            body = b"" if override else self._body(grant.account.rate if grant else 0)
        except http.Gone as gone:
            if session and verb in ("PUT", "POST"):
                with session.lock:
                    media.abandon(session, self.headers, gone.body)
            raise
        if grant is None:
            self._send(answers.unauthorized().answer(), 0)
        elif "upload_id" in query:
            self._upload(grant, verb, path, session, body)
        else:
            self._method(grant, verb, path, query, body)

    def _upload(self, grant: Grant, verb: str, path: str, session: Session | None, body: bytes) -> None:
        """What is said to an upload session."""
        given = self.headers.get("Content-Range") or ""
        route = f"{path.split('/')[3]}.upload/{'probe' if given.startswith('bytes */') else 'put'}"

        def run(flip: bool, keep: int | None) -> Answer:
            if session is None or verb not in ("PUT", "POST", "DELETE"):
                return Answer(404, b"Not Found", type="text/plain; charset=utf-8")
            with session.lock:
                if verb == "DELETE":
                    session.used = 0.0
                    return Answer(499, type="text/plain; charset=utf-8")
                changed = media.flipped(body) if flip else body
                return media.put(session, self.headers, changed, self.server.world.now(), keep)

        fault = self._meet(grant.account, route, f"{verb} {self.path} {given}")
        self._slowly(grant.account, faulty(fault, run))

    def _method(self, grant: Grant, verb: str, path: str, query: dict[str, str], body: bytes) -> None:
        """What is asked of a method of the API."""
        found = schema.find(verb, path)
        if found is None:
            self._send(Answer(404, b"<h1>404. That's an error.</h1>", type="text/html"), 0)
            return
        method, ids = found
        way = query.get("uploadType") if method.upload else query.get("alt", "").replace("json", "")
        route = f"{method.name}/{way}" if way else method.name

        def run(flip: bool, keep: int | None) -> Answer:
            if method.name not in media.ROUTES:
                return Answer(501, f"The fake does not play {method.name}.".encode(), type="text/plain")
            _check_scopes(grant, method, query)
            access = Access(self.server.world, grant, query.get("supportsAllDrives") == "true")
            now = self.server.world.now()
            call = Call(access, method, ids, query, self.headers, {}, None, "", now)
            answer = media.carry(call, body, flip)
            if flip and not method.upload:
                answer.body = media.flipped(answer.body)
            return answer

        fault = self._meet(grant.account, route, f"{verb} {self.path} {body[:2000]!r}")
        self._slowly(grant.account, faulty(fault, run))

    def _meet(self, account: Account | None, route: str, text: str) -> Fault | None:
        """Count a request; the fault it meets."""
        if account is None:
            return None
        with self.server.world.lock:
            account.counts[route] += 1
            return account.faults.next(route, text)

    def _slowly(self, account: Account | None, answer: Answer) -> None:
        time.sleep(account.latency if account else 0)
        self._send(answer, account.rate if account else 0)

    def version_string(self) -> str:
        return "ESF"


def _check_scopes(grant: Grant, method: Method, query: dict[str, str]) -> None:
    """Raises Refused if a token may not call a method; scopes of metadata give no contents."""
    enough = set(grant.scopes) & method.scopes
    if query.get("alt") == "media":
        enough = {scope for scope in enough if not NOT_MEDIA.search(scope)}
    if not enough:
        raise answers.no_scope(method.name)
