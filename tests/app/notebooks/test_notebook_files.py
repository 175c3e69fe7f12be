"""The notebooks are built from one source, valid, short, without logic, outputs or keys."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from relay.app.notebooks.notebook import Notebook
from relay.app.notebooks.writing import FOLDER, SERVICES, Service, notebook
from relay.app.redact import redact
from storage.guides import GUIDES
from storage.packages import CODE

LOGIC = (ast.If, ast.For, ast.While, ast.Try, ast.FunctionDef, ast.ClassDef, ast.With, ast.Lambda, ast.comprehension)
each = pytest.mark.parametrize("place", SERVICES, ids=lambda place: place.page)


def text_of(place: Service) -> str:
    return (FOLDER / f"{place.page}.ipynb").read_text(encoding="utf-8")


def code_of(place: Service) -> list[str]:
    """Python of each cell; lines for the shell and IPython left out."""
    cells = [cell for cell in nbformat.reads(text_of(place), as_version=4).cells if cell.cell_type == "code"]
    return ["\n".join(line for line in cell.source.splitlines() if line[:1] not in "!%") for cell in cells]


def test_there_are_no_others() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{place.page}.ipynb" for place in SERVICES}


@each
def test_the_file_is_what_its_source_says_now(place: Service) -> None:
    assert text_of(place) == notebook(place), "run python -m relay.app.notebooks.writing"


@each
def test_it_is_valid_short_and_empty(place: Service) -> None:
    document = json.loads(text_of(place))
    nbformat.validate(document)
    assert document["nbformat"] == 4 and document["nbformat_minor"] >= 5
    assert len(document["cells"]) == 5 == len({cell["id"] for cell in document["cells"]})
    for cell in document["cells"][1:]:
        assert cell["outputs"] == [] and cell["execution_count"] is None and len(cell["source"]) <= 9


@each
def test_no_cell_holds_logic_and_every_call_exists(place: Service) -> None:
    for source in code_of(place):
        for node in ast.walk(ast.parse(source)):
            assert not isinstance(node, LOGIC), source
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "notebook":
                assert callable(getattr(Notebook, node.attr)), node.attr


@each
def test_after_a_first_cell_that_stopped_each_later_one_says_so(place: Service) -> None:
    for source in code_of(place)[1:]:
        with pytest.raises(SystemExit, match="cell 1"):
            exec(source, {})  # noqa: S102 (as a kernel does)


@each
def test_nothing_in_it_looks_like_a_key_or_an_address_of_somebody(place: Service) -> None:
    text = text_of(place)
    assert redact(text) == text
    assert not re.search(r"[0-9a-f]{32}|[\w.]+@[\w.]+\.\w+|(s3|drive|dropbox|file)://", text)


@each
def test_set_up_is_a_cell_of_its_own_and_the_machine_goes_last_and_only_by_choice(place: Service) -> None:
    first, *_, last = code_of(place)
    assert "set_up()" in first and "train" not in first and "settings" not in first
    assert (place.page == "colab") == ("release_runtime(RELEASE_RUNTIME)" in last)
    assert "RELEASE_RUNTIME = True" not in text_of(place)
    assert "pip install" not in text_of(place), "what is installed is decided where torch is pinned"


def test_what_the_first_cell_imports_needs_no_package() -> None:
    """It runs before anything is installed."""
    code = f"import sys; sys.path.insert(0, {str(FOLDER.parent)!r}); import relay.app.notebooks.notebook"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_the_notebooks_are_beside_the_program() -> None:
    assert Path(__file__).parents[3] / "notebooks" == FOLDER


PLACEHOLDER = re.compile(r"YOUR-|OWNER/|REPOSITORY|example\.(com|org)|CODE is empty|TODO")


@each
def test_no_placeholder_is_left_once_the_address_is_set(place: Service) -> None:
    address = "https://git.lab/people/relay"
    text = notebook(place, address)
    assert f'CODE = \\"{address}\\"' in text and f"{address}/blob/main/{GUIDES[place.page]}" in text
    assert not PLACEHOLDER.search(text)
    assert bool(PLACEHOLDER.search(text_of(place))) == (not CODE), "without one, the first cell says what to type"


def test_no_page_names_a_repository_that_is_not_there() -> None:
    pages = [FOLDER.parent / "README.md", *(FOLDER.parent / "docs" / "how-to").glob("*.md")]
    assert not [page.name for page in pages if "YOUR-TEAM" in page.read_text(encoding="utf-8")]


SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
done = shell.run_cell(open(sys.argv[1]).read())
print(type(done.error_in_exec).__name__, done.error_in_exec, "Notebook" in shell.user_ns)
"""


@pytest.mark.slow
@each
@pytest.mark.parametrize("address", ["", "nowhere"])
def test_a_first_cell_without_the_project_says_one_thing_and_stops(
    place: Service, address: str, tmp_path: Path
) -> None:
    (cell,) = (cell for cell in json.loads(text_of(place))["cells"] if cell["id"] == "set-up")
    source = "".join(cell["source"]).replace(place.folder, str(tmp_path / "project"))
    typed = re.sub(r'^CODE = "[^"]*"', f'CODE = "{tmp_path / address if address else ""}"', source, flags=re.M)
    (tmp_path / "cell.py").write_text(typed)
    words = [sys.executable, "-c", SHELL, str(tmp_path / "cell.py")]
    said = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    *_, last = said.stdout.splitlines()
    assert last.startswith("SystemExit") and "CODE" in last and last.endswith("False")
    assert not re.search("Traceback|ModuleNotFoundError|NameError", said.stdout + said.stderr)
    assert ("git" in said.stdout + said.stderr or "fatal" in said.stdout + said.stderr) == bool(address)
