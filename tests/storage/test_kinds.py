"""The table of kinds is whole: what else a backend needs outside its folder exists for each entry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from relay.app.redact import redact
from storage.guides import GUIDES
from storage.kinds import KINDS, SIGNED_IN, function
from storage.promises import PROMISES
from tests.storage.backend_table import TESTED
from tests.storage.backends import BACKENDS

ROOT = Path(__file__).parents[2]
OUTSIDE = sorted(name for name, kind in KINDS.items() if kind.extra)
"""Those of other people's packages."""
MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("name", KINDS)
def test_every_function_that_the_table_names_exists(name: str) -> None:
    kind = KINDS[name]
    assert all(callable(function(named)) for named in (kind.opens, kind.makes, kind.signs_in) if named)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_kind_is_installed_explained_promised_and_tried(name: str) -> None:
    kind = KINDS[name]
    assert kind.extra in PYPROJECT, "pyproject.toml: optional-dependencies"
    wanted = " ".join(PYPROJECT[kind.extra])
    assert kind.packages and all(package in wanted for package in kind.packages)
    assert re.search(rf"trm-relay\[[\w,]*\b{kind.extra}\b", PYPROJECT["dev"][0]), "pyproject.toml: the extra dev"
    assert re.search(rf"^EXTRAS = .*\b{kind.extra}\b", (ROOT / "Makefile").read_text(), re.MULTILINE), (
        "Makefile: EXTRAS"
    )
    assert kind.modules and kind.access and kind.credentials
    assert name in GUIDES, "storage/guides.py"
    assert name in PROMISES, "storage/promises.py"
    assert name in {tested.kind for tested in TESTED}, "tests/storage/backend_table.py"
    assert any(backend.partition("-")[0] == name for backend in BACKENDS), "tests/storage/backends.py"


def test_the_workflow_script_installs_what_each_kind_needs() -> None:
    """It runs before any of our packages can be imported, so it has words of its own."""
    script = (ROOT / "multi_account_workflow.sh").read_text()
    found = re.findall(r"\b(\w+):\*\) needed\+='((?:, \w+)+)' extra\+=,(\w+)", script)
    assert {scheme: (set(modules.split(", ")) - {""}, extra) for scheme, modules, extra in found} == {
        name: (set(KINDS[name].modules), KINDS[name].extra) for name in OUTSIDE
    }


def test_every_guide_is_a_page_with_that_heading() -> None:
    from tests.test_documentation import anchors

    for subject, address in GUIDES.items():
        file, _, anchor = address.partition("#")
        assert (ROOT / file).exists(), subject
        assert not anchor or anchor in anchors(ROOT / file), subject


def test_no_other_file_decides_the_address_of_a_page() -> None:
    """The notebooks are written from the table; docstrings may name a page."""
    written = re.compile(r"""["'][^"'\n]*docs/how-to/""")
    sources = [path for folder in ("storage", "relay", "trm", "lm") for path in (ROOT / folder).rglob("*.py")]
    holders = {str(path.relative_to(ROOT)) for path in sources if written.search(path.read_text().replace('"""', ""))}
    assert holders <= {"storage/guides.py"}


def test_credentials_are_masked_wherever_text_is_shown() -> None:
    for name in SIGNED_IN:
        for group in KINDS[name].credentials:
            for variable in group.needed:
                if re.search("SECRET|TOKEN", variable):
                    assert "s3cr3t-value-0123456789" not in redact(f"{variable}=s3cr3t-value-0123456789")
