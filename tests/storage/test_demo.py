"""The demonstration on both kinds of remote address: killed, resumed by another account, the same bytes.

Below a given address (Dropbox; S3 takes the same way) and in a new folder (Drive). Processes are forked and train the
toy; tests/acceptance/test_packaging.py trains a model with the wheel, in a folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.app.demo import place_beneath
from relay.core.errors import UsageError
from storage.base import open_store
from tests.acceptance.processes import Warm
from tests.app.cli import Desk
from tests.storage.shared import SHARED

IMPORTED = (
    *("tests.processes.points", "tests.processes.trainee", "tests.storage.fakes.redirect"),
    *("dropbox", "googleapiclient.discovery", "google_auth_httplib2", "google.oauth2.credentials"),
)
"""By nearly every command of the demonstrations."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with tempfile.TemporaryDirectory() as folder:
        warm = Warm(Path(folder), IMPORTED)
        yield warm
        warm.close()


@pytest.mark.parametrize(
    ("store", "place"),
    [
        ("s3://b", "s3://b/demo-abcdef012345"),
        ("s3://b/p?region=x#id=" + "0" * 32, "s3://b/p/demo-abcdef012345?region=x"),
        ("dropbox:///relay/", "dropbox:///relay/demo-abcdef012345"),
        ("file:///x", "file:///x/demo-abcdef012345"),
        ("drive://new", "drive://new"),
    ],
)
def test_each_demonstration_has_a_folder_of_its_own_beneath_the_address(store: str, place: str) -> None:
    assert place_beneath(store, "abcdef0123456789") == place


def test_a_store_of_drive_that_others_use_is_not_touched() -> None:
    with pytest.raises(UsageError, match="drive://new"):
        place_beneath("drive://someones_folder/someones_first_slot", "abcdef0123456789")


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", ["dropbox", "drive"])
def test_killed_resumed_and_unbroken_end_in_the_same_bytes_on(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warm: Warm,
) -> None:
    shared = SHARED[name](tmp_path)
    for variable, value in shared.environ.items():
        monkeypatch.setenv(variable, value)
    if not shared.asks_for_new:
        open_store(shared.address).put("another/thing", b"of somebody")
    (tmp_path / "here").mkdir()
    python, needed = warm.python(tmp_path / "bin", instead="tests.processes.program")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "here"))
    environ = {**os.environ, **needed, "HOME": str(tmp_path), "TOY_STEP_S": "0.01"}
    done = Desk(tmp_path / "here", environ)("demo", "--steps", "160", "--store", shared.address, "--json")
    found = done.json
    assert found["equal"] and found["resumed_from_step"] < found["killed_at_step"] < 160
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    place, _, identity = found["store"].partition("#id=")
    assert len(identity) == 32 and place.partition("?")[0].removesuffix("new") in done.err
    assert any(stat.name.endswith("manifest.json") for stat in open_store(place).list("checkpoints/demo/relayed/"))
    if not shared.asks_for_new:
        prefix = place.partition("?")[0].rpartition("/")[2] + "/"
        left = {stat.name for stat in open_store(shared.address).list("")}
        assert prefix.startswith("demo-") and {n for n in left if not n.startswith(prefix)} == {"another/thing"}
    assert not list((tmp_path / "here").glob("trm-relay*")), "nothing on this machine"
