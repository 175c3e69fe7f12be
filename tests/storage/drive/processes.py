"""What other processes do to one fake Drive through the real SDK: race for an id or an etag, or upload until killed."""

from __future__ import annotations

import io
import json
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError
from googleapiclient.http import MediaFileUpload, MediaIoBaseUpload

from tests.storage.fakes.redirect import DRIVE, install

BYTES = "application/octet-stream"


def connect(port: int, token: str, version: str = "v3") -> Any:
    """A service of the real SDK on the fake at a port."""
    os.environ[DRIVE] = str(port)
    install()
    return build("drive", version, credentials=Credentials(token))


def small(data: bytes) -> MediaIoBaseUpload:
    """Contents for one request."""
    return MediaIoBaseUpload(io.BytesIO(data), BYTES)


def race_ids(port: int, token: str, racer: int, ids: list[str], barrier: Barrier, results: Path) -> None:
    """Create a file under every id together with the others; write down what came of each: 200 or the error."""
    service, outcomes = connect(port, token), []
    for slot, id_ in enumerate(ids):
        body, media = {"id": id_, "name": "slot"}, small(f"{racer}-{slot}".encode())
        barrier.wait(timeout=60)
        outcomes.append(_status(service.files().create(body=body, media_body=media)))
    results.write_text(json.dumps(outcomes))


def race_etag(port: int, token: str, racer: int, file: str, rounds: int, barrier: Barrier, results: Path) -> None:
    """Replace one file under the etag that all have read, round by round; write down what came of each."""
    service, outcomes = connect(port, token, "v2"), []
    for turn in range(rounds):
        etag = service.files().get(fileId=file, fields="etag").execute()["etag"]
        barrier.wait(timeout=60)
        request = service.files().update(fileId=file, media_body=small(f"{racer}-{turn}".encode()))
        request.headers["If-Match"] = etag
        outcomes.append(_status(request))
        barrier.wait(timeout=60)
    results.write_text(json.dumps(outcomes))


def _status(request: Any) -> int:
    try:
        request.execute()
    except HttpError as error:
        return int(error.resp.status)
    return 200


def send(port: int, token: str, path: Path, id_: str, note: Path) -> None:
    """Upload a file in parts, noting the session's address, as a process that may be killed at any moment."""
    media = MediaFileUpload(str(path), BYTES, chunksize=256 << 10, resumable=True)
    request = connect(port, token).files().create(body={"id": id_, "name": path.name}, media_body=media)
    done = None
    while done is None:
        _, done = request.next_chunk()
        note.write_text(request.resumable_uri)
