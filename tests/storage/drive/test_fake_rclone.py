"""rclone, which people use with the real Google Drive and which shares no line with us, takes the fake for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.drive.handle import Person, running
from tests.storage.drive.tunnel import program, tunnel

Rclone = Callable[..., bytes]
ODD = "it's \\ odd.bin"
FILES = {ODD: 1000, "sub dir/big": 900_000, "sub dir/exact": 4 * (256 << 10), "empty": 0}

pytestmark = pytest.mark.slow


@pytest.fixture
def person() -> Person:
    return running().person(("drive",))


@pytest.fixture
def rclone(person: Person, tmp_path: Path) -> Iterator[Rclone]:
    """Runs rclone as this person; what it prints. The test fails if it does."""
    kept = {"token_type": "Bearer", "access_token": "", "expiry": "2020-01-01T00:00:00Z"}
    remote = {
        "TYPE": "drive", "SCOPE": "drive", "CLIENT_ID": person.holds["client_id"],
        "CLIENT_SECRET": person.holds["client_secret"],
        "TOKEN": json.dumps(kept | {"refresh_token": person.holds["refresh_token"]}),
    }  # fmt: skip
    options = {"CONFIG": os.devnull, "RETRIES": "1", "DRIVE_CHUNK_SIZE": "256Ki", "DRIVE_UPLOAD_CUTOFF": "300Ki"}
    options |= {"DRIVE_PACER_MIN_SLEEP": "1ms", "LOW_LEVEL_RETRIES": "3"}
    with tunnel(person.fake.port, "googleapis.com", tmp_path) as by_proxy:
        environ = {**os.environ, **by_proxy, **{f"RCLONE_CONFIG_FAKE_{name}": value for name, value in remote.items()}}
        environ |= {f"RCLONE_{name}": value for name, value in options.items()}

        def run(*words: str) -> bytes:
            command = [program("rclone"), *words]
            done = subprocess.run(command, env=environ, capture_output=True, timeout=100, check=False)
            assert done.returncode == 0, f"{words}: {done.stderr.decode()}"
            return done.stdout

        yield run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = Random(1)
    for name, size in FILES.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return tmp_path / "source"


def listed(rclone: Rclone, where: str, *options: str) -> dict[str, dict[str, Any]]:
    """What lies there, by path."""
    return {item["Path"]: item for item in json.loads(rclone("lsjson", "-R", "--hash", *options, where))}


def test_a_folder_goes_up_and_comes_down_the_same(rclone: Rclone, folder: Path, tmp_path: Path) -> None:
    rclone("copy", str(folder), "fake:x/y")
    rclone("check", str(folder), "fake:x/y")
    found = listed(rclone, "fake:x/y", "--files-only")
    for name, size in FILES.items():
        assert found[name]["Size"] == size
        for kind in ("md5", "sha1", "sha256"):
            assert found[name]["Hashes"][kind] == hashlib.new(kind, (folder / name).read_bytes()).hexdigest()
    rclone("copy", "fake:x/y", str(tmp_path / "back"), "--multi-thread-cutoff", "300Ki")
    for name in FILES:
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    ranged = rclone("cat", "--offset", "10", "--count", "50", "fake:x/y/sub dir/big")
    assert ranged == (folder / "sub dir/big").read_bytes()[10:60]


def test_what_was_sent_is_moved_replaced_trashed_and_counted(rclone: Rclone, folder: Path, person: Person) -> None:
    rclone("copy", str(folder), "fake:x")
    rclone("moveto", f"fake:x/{ODD}", "fake:elsewhere/n")
    (folder / "empty").write_bytes(b"no more")
    rclone("copy", str(folder / "empty"), "fake:x")
    assert listed(rclone, "fake:", "--files-only")["x/empty"]["Size"] == 7
    assert listed(rclone, "fake:elsewhere")["n"]["Size"] == 1000
    rclone("deletefile", "fake:x/empty")
    assert "empty" not in listed(rclone, "fake:x") and "empty" in listed(rclone, "fake:x", "--drive-trashed-only")
    used = json.loads(rclone("about", "--json", "fake:"))
    assert (used["used"], used["trashed"]) == (person.look()["used"], 7)
    rclone("purge", "fake:x", "--drive-use-trash=false")
    assert set(listed(rclone, "fake:")) == {"elsewhere", "elsewhere/n"}


def test_rclone_outlives_what_the_service_does_at_bad_times(rclone: Rclone, folder: Path, person: Person) -> None:
    for kind, route in (("userRateLimit", "files.list"), ("500-before", "upload/put"), ("429", "files.create")):
        person.fault(kind, route=route)
    person.fault("keep", route="upload/put", bytes=0, skip=3)
    person.fault("500-after", route="upload/put", skip=5)
    rclone("copy", str(folder), "fake:x")
    rclone("check", str(folder), "fake:x")
    assert len(person.look()["met"]) == 5
