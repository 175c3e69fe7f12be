"""What is told where a package is missing can be typed as it stands, in a checkout whose environment is not active."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from storage import packages
from storage.base import BadAddress, make_store, open_store
from tests.facts import raising


@pytest.mark.parametrize(("own", "told"), [(True, ".venv/bin/python"), (False, packages.interpreter())])
def test_the_pip_is_that_of_the_python_that_runs(own: bool, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(packages.ROOT / ".venv" if own else Path("/usr")))
    assert shlex.split(packages.install("plot")) == [told, "-m", "pip", "install", "trm-relay[plot]"]


def test_where_the_project_is_not_installed_no_index_is_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", unknown)
    assert shlex.split(packages.install("s3"))[-2:] == ["-e", ".[s3]"]


ADDRESSES = {
    "s3": "s3://bucket/relay",
    "dropbox": "dropbox:///relay",
    "drive": f"drive://{'f' * 20}/{'a' * 20}",
    "hf": "hf://buckets/ana/relay",
}
MADE = {"drive": "drive://new", "hf": "hf://new/ana/relay"}


@pytest.mark.parametrize("kind", ADDRESSES)
def test_a_store_that_lacks_its_package_names_the_command_that_installs_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"storage.{kind}.find_spec", lambda name: None)
    for use in (open_store, make_store) if kind in MADE else (open_store,):
        with raising(BadAddress, f"`{packages.install(kind)}`"):
            use(MADE[kind] if use is make_store else ADDRESSES[kind])


def test_a_folder_loads_no_sdk() -> None:
    code = "import sys; from storage.base import open_store; open_store('/tmp/x'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"boto3", "botocore", "dropbox", "googleapiclient"} & set(loaded)
