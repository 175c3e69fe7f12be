"""rclone, which people use with the real Dropbox and which shares no line with us, takes the fake for it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.storage.drive.tunnel import program, tunnel
from tests.storage.dropbox.handle import Person

Rclone = Callable[..., bytes]
FILES = {"it's odd.bin": 1000, "sub dir/Big": 9_000_000, "sub dir/exact": 8 << 20, "empty": 0}

pytestmark = pytest.mark.slow


@pytest.fixture
def rclone(person: Person, tmp_path: Path) -> Iterator[Rclone]:
    """Runs rclone as this person; what it prints. The test fails if it does."""
    kept = {"token_type": "bearer", "access_token": "", "expiry": "2020-01-01T00:00:00Z"}
    token = json.dumps(kept | {"refresh_token": person.holds["refresh_token"]})
    remote = {"TYPE": "dropbox", "CLIENT_ID": person.holds["app_key"], "CLIENT_SECRET": "unused", "TOKEN": token}
    options = {"CONFIG": os.devnull, "RETRIES": "1", "LOW_LEVEL_RETRIES": "3", "DROPBOX_PACER_MIN_SLEEP": "1ms"}
    options |= {"DROPBOX_CHUNK_SIZE": "4Mi", "DROPBOX_BATCH_MODE": "off"}
    with tunnel(person.fake.port, "dropboxapi.com", tmp_path) as by_proxy:
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


def test_a_folder_goes_up_and_comes_down_the_same(rclone: Rclone, folder: Path, tmp_path: Path, person: Person) -> None:
    rclone("copy", str(folder), "fake:x/y")
    rclone("check", str(folder), "fake:x/y")
    rclone("copy", "fake:x/y", str(tmp_path / "back"))
    for name in FILES:
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    ranged = rclone("cat", "--offset", "10", "--count", "50", "fake:x/y/sub dir/Big")
    assert ranged == (folder / "sub dir/Big").read_bytes()[10:60]
    assert json.loads(rclone("about", "--json", "fake:"))["used"] == sum(FILES.values())
    (folder / "empty").write_bytes(b"no more")
    rclone("copy", str(folder / "empty"), "fake:x/y")
    assert person.look()["files"]["/x/y/empty"] == 7
    rclone("deletefile", "fake:x/y/empty")
    assert "/x/y/empty" not in person.look()["files"]
    rclone("purge", "fake:x/y")
    assert person.look()["files"] == {}


def test_rclone_outlives_what_the_service_does_at_bad_times(rclone: Rclone, folder: Path, person: Person) -> None:
    for kind, route in (("429", "list_folder"), ("500-before", "append_v2"), ("drop-before", "files/upload")):
        person.fault(kind, route=route, retry_after=0)
    person.fault("500-after", route="append_v2", skip=1)
    rclone("copy", str(folder), "fake:x")
    rclone("check", str(folder), "fake:x")
    assert len(person.look()["met"]) == 4
