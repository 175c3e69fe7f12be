"""A store of each kind behind a proxy that changes downloads on their way, and the ways in which it changes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import pytest
from dropbox.content_hash import content_hash

from storage.base import Ref, Store, open_store
from storage.drive.store import DriveStore
from tests.storage.fakes.redirect import DRIVE, DROPBOX
from tests.storage.s3.proxy import Change, Proxy, Reply, Request, proxy_to
from tests.storage.s3.servers import ENVIRONMENT, server

KINDS = ("s3", "dropbox", "drive")
_number = count()
_RESULT = "dropbox-api-result"


@dataclass
class Link:
    """A new store of one kind, reached through a proxy."""

    kind: str
    address: str
    """drive://new until one was made."""
    proxy: Proxy

    def store(self, address: str = "", *, read_only: bool = False) -> Store:
        """A new client."""
        return open_store((address or self.address).partition("#")[0], read_only=read_only)

    def alter(self, change: Change, ref: Ref, *, skip: int = 0, times: int | None = None) -> None:
        """Change downloads of an object, whole or in part: all of them, or `times` after the first `skip`."""
        self.proxy.alter(change, lambda request: _downloads(self.kind, request, ref), skip=skip, times=times)

    def downloads(self, ref: Ref) -> list[Request]:
        """Requests for the bytes of an object so far."""
        return [request for request in self.proxy.seen if _downloads(self.kind, request, ref)]


@contextmanager
def link(kind: str, patch: pytest.MonkeyPatch) -> Iterator[Link]:
    """A link while it is open; commands in this process reach the store by it too."""
    for name, value in ENVIRONMENT.items():
        patch.setenv(name, value)
    if kind == "s3":
        running = server("ministack")
        with proxy_to(running.endpoint_url) as proxy:
            yield Link(kind, running.address(f"links-{next(_number)}", proxy.endpoint_url), proxy)
        return
    port, variable, environ = _fake(kind)
    with proxy_to(f"http://127.0.0.1:{port}") as proxy:
        for name, value in {**environ, variable: str(proxy.port)}.items():
            patch.setenv(name, value)
        yield Link(kind, "dropbox:///relay" if kind == "dropbox" else "drive://new", proxy)


def _fake(kind: str) -> tuple[int, str, dict[str, str]]:
    """The port of a fake service, the variable that tells it to clients, and a new person's credentials."""
    if kind == "dropbox":
        from tests.storage.dropbox.handle import running as dropbox

        return dropbox().port, DROPBOX, dropbox().account().environ
    from tests.storage.drive.handle import running as drive
    from tests.storage.drive.stores import holding

    return drive().port, DRIVE, holding(drive().person())


def _downloads(kind: str, request: Request, ref: Ref) -> bool:
    path = request.path.partition("?")[0]
    if kind == "s3":
        return request.method == "GET" and path.endswith(f"/{ref}")
    if kind == "dropbox":
        return path.endswith("/files/download") and f'/{ref}"' in request.headers.get("dropbox-api-arg", "")
    return request.method == "GET" and path.endswith(f"/files/{ref}") and "alt=media" in request.path


def overwrite(store: Store, ref: Ref, data: bytes) -> None:
    """Change what is stored, as somebody else would."""
    if isinstance(store, DriveStore):
        store.files.update(str(ref), "whatever", data)
    else:
        store.put(str(ref), data)


# --- what a link does to an answer ----------------------------------------------------------------------------------


def flip(_: Request, reply: Reply) -> None:
    """One bit, always the same."""
    if reply.content:
        reply.content = flipped(reply.content)


def flipped(data: bytes, at: int = 7) -> bytes:
    at = min(at, len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def flips_anywhere() -> Change:
    """One bit, another one each time."""
    places = count(1)

    def change(_: Request, reply: Reply) -> None:
        reply.content = flipped(reply.content, next(places)) if reply.content else b""

    return change


def shorten(_: Request, reply: Reply) -> None:
    """The last bytes are left out, and the headers say which bytes are there."""
    reply.content = reply.content[:-3]
    _range(reply, lambda first, last, total: f"bytes {first}-{last - 3}/{total}")


def shorten_in_secret(request: Request, reply: Reply) -> None:
    """The last bytes are left out, and the headers say that the object ends there."""
    shorten(request, reply)
    _range(reply, lambda first, last, _: f"bytes {first}-{last}/{last + 1}")


def from_elsewhere(_: Request, reply: Reply) -> None:
    """As many bytes as were asked for, from another place."""
    _range(reply, lambda first, last, total: f"bytes {first + 1}-{last + 1}/{total}")


def without_place(_: Request, reply: Reply) -> None:
    reply.headers.pop("content-range", None)


def tells_too_many(_: Request, reply: Reply) -> None:
    reply.length = len(reply.content) + 3


def tells_too_few(_: Request, reply: Reply) -> None:
    reply.length = len(reply.content) - 3


def ends_before(_: Request, reply: Reply) -> None:
    reply.status, reply.content = 416, b""
    reply.headers.pop("content-range", None)


def as_a_part(_: Request, reply: Reply) -> None:
    """The answer to a request for all."""
    reply.content = reply.content[:-1]
    reply.status, reply.headers["content-range"] = 206, f"bytes 0-{len(reply.content) - 1}/{len(reply.content) + 1}"


def stale(old: bytes) -> Change:
    """What a cache would hand out that kept other bytes: a consistent answer."""

    def change(request: Request, reply: Reply) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        reply.content = old[int(asked[1]) : int(asked[2]) + 1] if asked else old
        if asked:
            reply.headers["content-range"] = f"bytes {asked[1]}-{int(asked[1]) + len(reply.content) - 1}/{len(old)}"
        if _RESULT in reply.headers:
            told = json.loads(reply.headers[_RESULT]) | {"size": len(old), "content_hash": content_hash(old)}
            reply.headers[_RESULT] = json.dumps(told)

    return change


def _range(reply: Reply, told: Callable[[int, int, int], str]) -> None:
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", reply.headers.get("content-range", ""))
    if found:
        reply.headers["content-range"] = told(*map(int, found.groups()))
