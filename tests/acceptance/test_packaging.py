"""The installed wheel is complete, and foreign modules that hide it are named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT, Warm

pytestmark = pytest.mark.slow
PACKAGES = ("lm/", "relay/", "storage/", "trm/")
SMALL = ("batch_size=4", "data.train_rows=1000", "arch.H_cycles=1", "arch.L_cycles=1")
"""Of a training: little arithmetic."""
WHOLE = os.environ.get("RELAY_INSTALL") == "whole"
"""Whether dependencies are installed too (`make accept`), which needs minutes and an index; else those of the tests."""


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True)
    return set(listed.stdout.splitlines())


def built(source: Path, to: Path, *hooks: str) -> Path:
    """The wheel of a source folder; the backend's hooks that pip would call make it and more archives."""
    make = "import setuptools.build_meta as b, sys; _, to, *names = sys.argv; [getattr(b, n)(to) for n in names]"
    to.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", make, str(to), *hooks], cwd=source, check=True, capture_output=True)
    (wheel,) = to.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone: nothing that a checkout holds besides may reach the wheel, or be missed in it."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(folder / "tracked.tar", "w") as archive:
        for name in sorted(tracked()):
            if not name.startswith("tests/") and (ROOT / name).exists():
                archive.add(ROOT / name, name)
    with tarfile.open(folder / "tracked.tar") as archive:
        archive.extractall(folder / "tree", filter="data")
    return folder / "tree"


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("wheel"), "build_wheel", "build_sdist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel.

    Its dependencies are found where the tests have them, except the project itself: an editable install is not looked
    up through a path that another environment names.
    """
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, symlinks=True, with_pip=WHOLE)
    if WHOLE:
        words = ("install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[train]")
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", *words], check=True, capture_output=True, text=True
        )
        return folder / "bin"
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
    subprocess.run([*pip, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "bin"


def of_nobody(home: Path) -> dict[str, str]:
    """An environment without settings of the relay or of Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))}
    return kept | {"HOME": str(home)}


def call(installed: Path, folder: Path, *words: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(installed / "trm-relay"), *words],
        cwd=folder,
        env=of_nobody(folder) | environ,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_wheel_holds_every_tracked_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {name for name in tracked() if name.startswith(PACKAGES)} | {"trm_relay.py"}


def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    again = built(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "wheel", "build_wheel")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {info.filename: info.CRC for info in one.infolist() if ".dist-info/" not in info.filename} == {
            info.filename: info.CRC for info in other.infolist() if ".dist-info/" not in info.filename
        }


def test_the_demonstration_runs_from_the_wheel_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Its processes are forked from one of the wheel's; that each starts from scratch too is a matter of `make accept`.

    A session that starts from scratch is below (`CELLS`).
    """
    words = ("demo", "--steps", "160", "--json", *SMALL)
    done = call(installed, tmp_path / "empty", *words).stdout if WHOLE else forked(installed, tmp_path, *words)
    found = json.loads(done)
    assert found["equal"] and found["resumed_from_step"] < found["killed_at_step"] < 160
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    assert not list((tmp_path / "empty").glob("relay_store")), "it was made in a scratch folder"


def forked(installed: Path, folder: Path, *words: str) -> str:
    """Output of a command whose processes are forked from an interpreter that has imported the wheel."""
    program = shutil.copy(ROOT / "tests" / "acceptance" / "warm.py", installed)  # far from the checkout's packages
    (folder / "empty").mkdir()
    with tempfile.TemporaryDirectory() as short:
        warm = Warm(Path(short), program=[str(installed / "python"), str(program)], cwd=Path(short))
        _, needed = warm.python(folder / "bin")
        environ = of_nobody(folder / "empty") | needed
        where = warm.start((), environ, short, folder / "where", ("-c", "import relay, trm; print(relay, trm)"))
        assert where.communicate(60)[0].count(str(installed.parent)) == 2, "the checkout was imported"
        demo = warm.start(words, environ, str(folder / "empty"), folder / "demo", ("-m", "relay.app.cli"))
        out, err = demo.communicate(240)
        warm.close()
    assert demo.returncode == 0, out + err
    return out


@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "module") for name in ("lm", "relay", "storage", "trm")), ("relay", "package"), ("relay", "folder")],
)
def test_a_foreign_module_in_front_is_named(installed: Path, tmp_path: Path, name: str, form: str) -> None:
    mine = tmp_path / "mine"
    (mine / name).mkdir(parents=True)
    if form == "module":
        (mine / name).rmdir()
        (mine / f"{name}.py").write_text("")
    elif form == "package":
        (mine / name / "__init__.py").write_text("")
    hides = form != "folder"  # a folder without __init__.py gives way to a package further back
    done = call(installed, tmp_path / "here", "status", "--help", code=78 if hides else 0, PYTHONPATH=str(mine))
    assert (str(mine / name) in done.stderr) == hides


def test_importing_relay_loads_only_the_standard_library(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import relay; "
        "print(*{m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([str(installed / "python"), "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["relay"]), done.stderr


CELLS = """
import os, sys
from relay.app.notebooks.notebook import Notebook
notebook = Notebook(environ=dict(os.environ))
notebook.set_up()
notebook.settings("Ana", store=sys.argv[1], trial=True)
notebook.train(until_step=2)
notebook.relay("status")
assert notebook.ended["exit_code"] == 75, notebook.ended
"""


def test_a_notebook_s_cells_work_with_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config_multi_account.yaml").write_text("batch_size: 4\ndata: {train_rows: 100}\narch: {H_cycles: 1}\n")
    words = [str(installed / "python"), "-c", CELLS, (tmp_path / "store").as_uri()]
    done = subprocess.run(words, cwd=home, env=of_nobody(home), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Training as ana-local" in done.stdout and (home / "sync").is_dir()
    told = call(installed, home, "next", RELAY_STORE=words[-1]).stdout
    assert "-m trm_relay run" in told and "rotate_accounts" not in told + done.stdout
