"""What is told where a package is missing can be typed as it stands, in a checkout whose environment is not active."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from storage import packages
from storage.base import BadAddress
from storage.s3 import open_s3
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


def test_a_store_that_lacks_its_package_says_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.s3.find_spec", lambda name: None)
    with raising(BadAddress, f"`{packages.install('s3')}`"):
        open_s3("s3://bucket/relay", read_only=True)
