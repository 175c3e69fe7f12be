"""HTTP of the fake Hugging Face: the S3 gateway, and those pages of the Hub that make, show and sign in to buckets.

Written from huggingface_hub's source (2.4.0: hf_api.create_bucket and bucket_info, utils/_oauth_device.py, whoami) and
the Hub's documentation. A stranger's question about a private bucket is answered as about an absent one.
"""

from __future__ import annotations

import json
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.storage.fakes import http
from tests.storage.fakes.http import Answer
from tests.storage.hf.fake import gateway
from tests.storage.hf.fake.world import Bucket, World

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Handler(http.Handler):
    """One connection."""

    def do_GET(self) -> None:
        host, body, world = (self.headers.get("Host") or "").lower(), self._body(0), self.server.world
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path.startswith("/control/"):
            told = json.loads(body or b"{}")
            with world.lock:
                self._send(_json(control(world, self.path.split("/")[2], told)), 0)
            return
        given = headers.get("authorization", "")
        kind = "signed" if given.startswith("AWS4") else "token" if given else ""
        with world.lock:
            world.asked.append((host, f"{self.command} {self.path}", kind))
        if host == gateway.HOST:
            answer = gateway.answer(world, self.command, self.path, headers, body)
            if self.command == "HEAD":
                self._head(answer)
                return
        else:
            with world.lock:
                user = world.tokens.get(given.removeprefix("Bearer "))
                answer = hub(world, self.command, urlsplit(self.path).path, user, body)
        self._send(answer, 0)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def _head(self, answer: Answer) -> None:
        """The headers of an answer whose body is not sent."""
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()


def hub(world: World, method: str, path: str, user: str | None, body: bytes) -> Answer:
    """The answer of huggingface.co itself."""
    if world.down:
        return Answer(503, b"<h1>Service Unavailable</h1>", type="text/html")
    if path == "/oauth/device":
        code = secrets.token_hex(16)
        world.waiting[code] = "pending"
        page = "https://huggingface.co/oauth/device"
        told = {"device_code": code, "user_code": "52AT-FLYZ", "verification_uri": page}
        return _json({**told, "verification_uri_complete": f"{page}?user_code=52AT-FLYZ", "interval": 0})
    if path == "/oauth/token":
        return _token(world, {name: values[0] for name, values in parse_qs(body.decode()).items()})
    if path == "/api/whoami-v2":
        known = {"type": "user", "name": user, "auth": {"type": "oauth"}}
        return _json(known) if user else _error(401, "Invalid credentials in Authorization header")
    if path.startswith("/api/buckets/") and path.count("/") == 4:
        return _bucket(world, method, path.removeprefix("/api/buckets/"), user, body)
    return _error(404, "Not found")


def _bucket(world: World, method: str, name: str, user: str | None, body: bytes) -> Answer:
    there, mine = world.buckets.get(name), user == name.split("/")[0]
    if method == "POST":
        if not mine:
            return _error(403 if user else 401, "You don't have the rights to create a bucket under this namespace")
        if there:
            text = "You already created this bucket repo"
            return _json({"error": text, "url": f"https://huggingface.co/buckets/{name}"}, 409)
        world.buckets[name] = Bucket(private=json.loads(body or b"{}").get("visibility") == "private")
        return _json({"url": f"https://huggingface.co/buckets/{name}"})
    if there is None or (there.private and not mine):
        return _error(404 if user else 401, "Bucket not found")
    size = sum(len(one.data) for one in there.objects.values())
    told = {"id": name, "private": there.private, "createdAt": "2026-11-01T00:00:00.000Z", "size": size}
    return _json({**told, "totalFiles": len(there.objects)})


def _token(world: World, form: dict[str, str]) -> Answer:
    state = world.waiting.get(form.get("device_code", ""), "expired_token")
    if form.get("grant_type") != _GRANT or not form.get("client_id"):
        return _error(400, "unsupported_grant_type")
    if state == "pending":
        world.waiting[form["device_code"]] = world.outcome
    if state in ("pending", "expired_token", "access_denied"):
        error = "authorization_pending" if state == "pending" else state
        return _json({"error": error, "error_description": "by the fake"}, 400)
    told = {"access_token": world.token(state), "token_type": "bearer", "expires_in": 2592000}
    return _json({**told, "refresh_token": f"hf_refresh_{secrets.token_hex(12)}"})


def control(world: World, verb: str, told: dict[str, Any]) -> Any:
    """What tests do outside the protocol. Raises KeyError for a verb that is none."""
    if verb == "bucket":
        world.buckets[told["name"]] = Bucket(told["private"])
        return None
    if verb == "visibility":
        world.buckets[told["name"]].private = told["private"]
        return None
    if verb == "key":
        return dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), world.key(), strict=True))
    if verb == "token":
        return world.token(told["user"])
    if verb == "set":
        for name, value in told.items():
            setattr(world, name, value)
        return None
    return {
        "look": lambda: {
            "buckets": {name: {"private": one.private, "names": sorted(one.objects), "uploads": len(one.uploads)}
                        for name, one in world.buckets.items()},
            "asked": world.asked, "tokens": list(world.tokens),
        }
    }[verb]()  # fmt: skip


def _json(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode())


def _error(status: int, text: str) -> Answer:
    return Answer(status, json.dumps({"error": text}).encode(), {"X-Error-Message": text})
