"""HTTP of the fake Dropbox: requests in, faults, answers and error bodies out; the effects are elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dropbox import common
from dropbox.auth import AuthError_validator
from stone.backends.python_rsrc import stone_serializers
from stone.backends.python_rsrc.stone_validators import ValidationError

from tests.storage.dropbox.fake.control import control
from tests.storage.dropbox.fake.faults import Fault
from tests.storage.dropbox.fake.routes import ROUTES, Call
from tests.storage.dropbox.fake.tree import Refused
from tests.storage.dropbox.fake.world import Account, NoSuchRoot, Unauthorized, World
from tests.storage.fakes import http

HOSTS = {"api": "api.dropboxapi.com", "content": "content.dropboxapi.com", "notify": "notify.dropboxapi.com"}
PORTAL = b"<html><body>Welcome to the hotel. Please log in.</body></html>"


class Answer(http.Answer):
    """Of Dropbox."""

    @staticmethod
    def json(status: int, document: Any) -> Answer:
        return Answer(status, json.dumps(document).encode())


class Handler(http.Handler):
    """One connection."""

    always = MappingProxyType({"x-dropbox-request-id": "fake"})

    def do_GET(self) -> None:
        """www.dropbox.com/oauth2/authorize: the page that shows a code after "Allow", with a marker for tests."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.headers.get("Host") == "www.dropbox.com" and parts.path == "/oauth2/authorize":
            self._send(consent(self.server.world, query), 0)
        else:
            self._send(Answer(404, b"Not found", type="text/plain"), 0)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if self._is_control() else b""
        if self._is_control():
            self._send(Answer.json(200, control(self.server.world, self.path.split("/")[2], json.loads(body))), 0)
        elif self.path == "/oauth2/token":
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._send(token(self.server.world, {k: v[0] for k, v in parse_qs(form.decode()).items()}), 0)
        else:
            self._route(self.path.removeprefix("/2/"))

    def _is_control(self) -> bool:
        return self.path.startswith("/control/")

    def _route(self, route: str) -> None:
        world, account = self.server.world, None
        try:
            account = self._account(route)
        except Unauthorized as error:
            self._body(0)
            self._send(_auth_error(stone_serializers.json_encode(AuthError_validator, error.error)), 0)
            return
        body = self._body(account.rate if account else 0)
        arg = self._argument(route, body)
        fault = account.faults.next(route, arg) if account else None
        answer = _faulty(fault, lambda b: self._answer(world, account, route, arg, b), body)
        if account:
            time.sleep(account.latency)
        self._send(answer, account.rate if account else 0)

    def _account(self, route: str) -> Account | None:
        scope = ROUTES[route][2] if route in ROUTES else "files.metadata.read"
        if not scope:
            return None
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        with self.server.world.lock:
            account = self.server.world.of_token(token, scope)
            account.counts[route] += 1
            return account

    def _argument(self, route: str, body: bytes) -> str:
        rpc = route in ROUTES and ROUTES[route][0].attrs["style"] == "rpc"
        return (body.decode() or "null") if rpc else self.headers.get("Dropbox-API-Arg") or ""

    def _answer(self, world: World, account: Account | None, route: str, text: str, body: bytes) -> Answer:
        if route not in ROUTES:
            return Answer(404, b"Unknown API function", type="text/plain")
        definition, handler, _ = ROUTES[route]
        if (self.headers.get("Host") or "") != HOSTS[definition.attrs["host"]]:
            return Answer(404, b"Wrong host for this function", type="text/plain")
        root = self.headers.get("Dropbox-API-Path-Root")
        try:
            arg = stone_serializers.json_decode(definition.arg_type, text)
            base = stone_serializers.json_decode(common.PathRoot_validator, root) if root else None
            if route == "files/list_folder/longpoll":  # waits, and must not make others wait
                result = handler(Call(world, account, base, arg, body, world.now()))
            else:
                with world.lock:
                    result = handler(Call(world, account, base, arg, body, world.now()))
        except ValidationError as error:
            message = f'Error in call to API function "{route}": request body: {error}'
            return Answer(400, message.encode(), type="text/plain")
        except NoSuchRoot:
            return Answer.json(422, {"error_summary": "no_permission/", "error": {".tag": "no_permission"}})
        except Refused as refused:
            return _error(json.loads(stone_serializers.json_encode(definition.error_type, refused.error)))
        if definition.attrs["style"] == "download":
            told, data = result
            return self._download(stone_serializers.json_encode(definition.result_type, told), data)
        return Answer(200, stone_serializers.json_encode(definition.result_type, result).encode())

    def _download(self, told: str, data: bytes) -> Answer:
        headers = {"dropbox-api-result": told, "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not wanted:
            return Answer(200, data, headers, "application/octet-stream")
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first >= len(data):
            return Answer(416, b"Range not satisfiable", type="text/plain")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return Answer(206, memoryview(data)[first : last + 1], headers, "application/octet-stream")


def token(world: World, form: dict[str, str]) -> Answer:
    """oauth2/token: a code, or a refresh token, and its app's key for a fresh access token."""
    with world.lock:
        if form.get("grant_type") == "authorization_code":
            return _of_consent(world, form) or _first_token(world, form)
        owner = next((a for a in world.accounts.values() if a.refresh_token == form.get("refresh_token")), None)
        if owner is None or owner.revoked:
            text = "refresh token is invalid or revoked"
            return Answer.json(400, {"error": "invalid_grant", "error_description": text})
        owner.counts["oauth2/token"] += 1
        if form.get("client_id") != owner.app_key:
            return Answer.json(400, {"error": "invalid_client: Invalid client_id or client_secret"})
        fresh, life = world.grant(owner)
        return Answer.json(200, {"access_token": fresh, "token_type": "bearer", "expires_in": life})


def consent(world: World, query: dict[str, str]) -> Answer:
    """The code, as the owner of the app's key allows it; scopes that the app lacks are left out."""
    with world.lock:
        owner = next((a for a in world.accounts.values() if a.app_key == query.get("client_id")), None)
        s256 = query.get("code_challenge_method") == "S256" and query.get("token_access_type") == "offline"
        if owner is None or not s256 or query.get("response_type") != "code":
            return Answer(400, b"Invalid request", type="text/html")
        code = f"code-of-consent-{len(world.consents):06d}"
        granted = tuple(scope for scope in query["scope"].split() if scope in owner.scopes)
        world.consents[code] = (owner, query["code_challenge"], granted)
        return Answer(200, f"<html>Enter this code: <b>{code}</b></html>".encode(), type="text/html")


def _of_consent(world: World, form: dict[str, str]) -> Answer | None:
    """The first token for a code of the page; None for any other code."""
    found = world.consents.pop(form.get("code", ""), None)
    if found is None:
        return None
    owner, challenge, scopes = found
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge or form.get("client_id") != owner.app_key:
        return Answer.json(400, {"error": "invalid_grant", "error_description": "invalid code verifier"})
    fresh, life = world.grant(owner)
    told = {"access_token": fresh, "expires_in": life, "token_type": "bearer", "scope": " ".join(scopes)}
    return Answer.json(200, told | {"refresh_token": owner.refresh_token, "account_id": "dbid:1", "uid": "1"})


def _first_token(world: World, form: dict[str, str]) -> Answer:
    """What the page after "Allow" gave a code for; by PKCE, so the verifier must be there."""
    owner = next((a for a in world.accounts.values() if a.app_key == form.get("client_id")), None)
    if owner is None or form.get("code") != f"code-{owner.name}" or not form.get("code_verifier"):
        return Answer.json(400, {"error": "invalid_grant", "error_description": "code doesn't exist or has expired"})
    fresh, life = world.grant(owner)
    told = {"access_token": fresh, "expires_in": life, "token_type": "bearer", "scope": " ".join(owner.scopes)}
    return Answer.json(200, told | {"refresh_token": owner.refresh_token, "account_id": "dbid:1", "uid": "1"})


def _faulty(fault: Fault | None, answer: Any, body: bytes) -> Answer:
    """The answer, or what a fault makes of it."""
    if fault is None:
        return answer(body)
    if fault.kind == "flip":
        flipped = answer(body[:-1] + bytes([body[-1] ^ 1]) if body else body)
        if not body and flipped.body:
            flipped.body = bytes(flipped.body[:-1]) + bytes([flipped.body[-1] ^ 1])
        return flipped
    if fault.kind in ("500-after", "drop-after", "hang-after", "cut"):
        real = answer(body)
        time.sleep(fault.seconds)
        if fault.kind == "cut":
            real.cut = True
            return real
    return _refusal(fault)


def _refusal(fault: Fault) -> Answer:
    wait = {"Retry-After": f"{fault.retry_after:.0f}"}
    if fault.kind == "429":
        error = {"reason": {".tag": "too_many_requests"}, "retry_after": int(fault.retry_after)}
        limited = Answer.json(429, {"error_summary": "too_many_requests/", "error": error})
        limited.headers = wait
        return limited
    texts = {"429-text": 429, "400": 400, "403": 403}
    if fault.kind in texts:
        return Answer(texts[fault.kind], fault.text.encode(), wait if fault.kind == "429-text" else {}, "text/plain")
    if fault.kind == "error":
        return Answer.json(409, {"error_summary": fault.summary, "error": fault.error})
    if fault.kind == "401":
        return _auth_error(json.dumps(fault.error))
    if fault.kind == "html":
        return Answer(200, PORTAL, type="text/html")
    if fault.kind.startswith("500"):
        return Answer(500, b"<h1>Something went wrong</h1>", type="text/html")
    return Answer(0, drop=True)


def _auth_error(error: str) -> Answer:
    document = json.loads(error)
    tag = document if isinstance(document, str) else document[".tag"]
    return Answer.json(401, {"error_summary": f"{tag}/.", "error": document})


def _error(document: dict[str, Any]) -> Answer:
    """A 409, its summary made of the tags as the service does."""
    tags, inner = [], document
    while isinstance(inner, dict) and ".tag" in inner:
        tags.append(inner[".tag"])
        inner = inner.get("reason") or inner.get(inner[".tag"])
    return Answer.json(409, {"error_summary": "/".join(tags) + "/..", "error": document})
