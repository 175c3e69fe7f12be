"""Asks a rented machine's metadata address whether the cloud will take the machine back soon.

The answers are documented by each cloud: EC2 "Spot Instance interruption notices", Compute Engine "Spot VMs",
Azure "Scheduled Events for Linux VMs". Any other answer (an error, a login page, none) is not a notice.
"""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from relay.app.machine.env import Cloud
from relay.core.clock import Runtime
from relay.core.errors import BadConfig

ADDRESS = "http://169.254.169.254"
"""The link-local address of all three clouds; a host name would need a name server."""
TIMEOUT_S = 2.0
"""For one request, from connecting to the last byte of the answer."""
MOST_BYTES = 65_536
"""Size limit of an answer, including headers."""
GCP_LEFT_S = 25.0
"""Compute Engine gives 30 s; a poll sees the notice up to 5 s late."""
AWS_MOST_S, AZURE_MOST_S = 120.0, 900.0
"""Longest notice periods; a longer one means a wrong clock."""
STARTED_S = 10.0
"""Assumed if Azure reports that the eviction has begun."""
OF_AZURE = {"Metadata": "true"}
"""The header that every request to Azure needs."""
TOKEN_S = 21_600
"""Life of an IMDSv2 token; the longest that EC2 grants."""


@dataclass(frozen=True)
class Notice:
    """The cloud's notice that it takes the machine back."""

    cloud: Cloud
    left_s: float
    """Seconds from the answer until the machine stops."""

    @property
    def text(self) -> str:
        """For people and for the link."""
        return f"spot notice from {self.cloud}, {self.left_s:.0f} s left"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of the metadata address."""

    status: int
    body: bytes
    at: float | None
    """The server's clock, unix seconds; this machine's may be wrong."""


class SpotQuery(Protocol):
    """Asks one cloud for a notice."""

    def __call__(self) -> Notice | None:
        """The notice, if there is one. Raises nothing; takes a few seconds at most without an answer."""
        ...


class _BoundedReader(io.RawIOBase):
    """A socket reader for http.client with a deadline and `MOST_BYTES`; beyond either it raises OSError."""

    def __init__(self, connection: socket.socket, now: Callable[[], float], until: float) -> None:
        self._socket, self._now, self._until, self._room = connection, now, until, MOST_BYTES

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - self._now()
        if left <= 0 or self._room <= 0:
            raise TimeoutError("too slow, or too long")
        self._socket.settimeout(left)
        count = self._socket.recv_into(buffer)
        self._room -= count
        return count


class Metadata:
    """Client of the metadata address: no proxies, no redirects, short timeouts, small answers."""

    def __init__(self, now: Callable[[], float], address: str = ADDRESS) -> None:
        """`now` is a monotonic clock. Raises BadConfig (78) for an invalid address."""
        self._now = now
        try:
            parts = urlsplit(address)
            host, self._port = parts.hostname or "", parts.port or 80
        except ValueError:
            host = ""
        if not host or parts.scheme != "http":
            raise BadConfig(f"RELAY_SPOT_ADDRESS must look like {ADDRESS}, not {address!r}. Correct it or unset it.")
        self._host = host

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Answer | None:
        """The answer; None if it is missing, not HTTP, too slow or too long."""
        until = self._now() + TIMEOUT_S
        connection = HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers=dict(headers))
            response = HTTPResponse(
                cast(socket.socket, _BoundedReader(connection.sock, self._now, until)), method=method
            )
            response.begin()
            body = response.read(MOST_BYTES)  # a Content-Length can be any number
            at = _unix(response.headers.get("Date"))
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()
        return Answer(response.status, body, at)

    def read(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        """The answer if it is 200."""
        answer = self.ask(path, headers)
        return answer if answer is not None and answer.status == 200 else None


class Aws:
    """`instance-action` appears two minutes before the end; 404 until then. IMDSv2: a token first."""

    def __init__(self, metadata: Metadata, wall: Callable[[], float]) -> None:
        self._metadata, self._wall = metadata, wall
        self._token: str | None = None

    def __call__(self) -> Notice | None:
        self._token = self._token or self._new_token()
        if self._token is None:
            return None
        answer = self._metadata.ask("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": self._token})
        if answer is not None and answer.status == 401:
            self._token = None  # it has expired
        if answer is None or answer.status != 200:
            return None
        until = _unix(_document(answer).get("time"))
        return Notice("aws", _left(until, answer, self._wall, AWS_MOST_S)) if until is not None else None

    def _new_token(self) -> str | None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        answer = self._metadata.ask("/latest/api/token", headers, "PUT")
        text = answer.body.decode("ascii", "replace").strip() if answer and answer.status == 200 else ""
        return text if text.isascii() and text.isprintable() and 0 < len(text) <= 1000 and " " not in text else None


class Gcp:
    """`preempted` turns TRUE when the preemption begins."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def __call__(self) -> Notice | None:
        answer = self._metadata.read("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        return Notice("gcp", GCP_LEFT_S) if answer and answer.body.strip() == b"TRUE" else None


class Azure:
    """Events of type Preempt (or Terminate, of a scale set). A whole group gets them; they must name this machine."""

    def __init__(self, metadata: Metadata, wall: Callable[[], float]) -> None:
        self._metadata, self._wall = metadata, wall

    def __call__(self) -> Notice | None:
        answer = self._metadata.read("/metadata/scheduledevents?api-version=2020-07-01", OF_AZURE)
        events = _ends(answer) if answer else []
        if answer is None or not events:
            return None
        name = self._name()
        ours = [self._left(event, answer) for event in events if _names(event, name)]
        return Notice("azure", min(ours)) if ours else None

    def _name(self) -> str:
        answer = self._metadata.read("/metadata/instance/compute/name?api-version=2021-02-01&format=text", OF_AZURE)
        return answer.body.decode("utf-8", "replace").strip() if answer else ""

    def _left(self, event: Mapping[str, Any], answer: Answer) -> float:
        until = _unix(event.get("NotBefore"))
        return STARTED_S if until is None else _left(until, answer, self._wall, AZURE_MOST_S)


def spot_query(cloud: Cloud, runtime: Runtime, address: str = ADDRESS) -> SpotQuery:
    """The query of a cloud. Raises BadConfig (78) for an invalid address."""
    metadata = Metadata(runtime.monotonic, address)
    if cloud == "gcp":
        return Gcp(metadata)
    return Aws(metadata, runtime.wall) if cloud == "aws" else Azure(metadata, runtime.wall)


def _left(until: float, answer: Answer, wall: Callable[[], float], most_s: float) -> float:
    return min(most_s, max(0.0, until - (wall() if answer.at is None else answer.at)))


def _document(answer: Answer) -> dict[str, Any]:
    """The JSON object of the answer; empty if it is not one."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ends(answer: Answer) -> list[dict[str, Any]]:
    """Events that take the machine away. Others (Freeze, Reboot, Redeploy) end a session by a signal or not at all."""
    events = _document(answer).get("Events")
    found = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    return [event for event in found if event.get("EventType") in ("Preempt", "Terminate")]


def _names(event: Mapping[str, Any], name: str) -> bool:
    """Whether an event is for this machine; True without a name, because an early end costs little."""
    named = event.get("Resources")
    return not name or not isinstance(named, list) or name in named


def _unix(text: object) -> float | None:
    """Unix seconds of 2017-09-18T08:22:00Z or Mon, 19 Sep 2016 18:29:47 GMT; None for anything else."""
    if not isinstance(text, str):
        return None
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text.strip())
        except (ValueError, OverflowError):
            continue
        return found.timestamp() if found.tzinfo is not None else None
    return None
