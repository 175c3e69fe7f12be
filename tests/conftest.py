"""Sets up every test.

- trm comes before torch, because it settles how torch's threads wait.
- It selects the tests that `make test` leaves out, and begins slow tests first.
- Advice tells people to type `python`, under any name of the interpreter on this machine.
- Random tests try few examples; `--hypothesis-profile soak` tries many.
- The simulation adds up the results of all workers.
- Hundreds of processes share the files that one has compiled.
- Workers are forked from one process, which imports the tests once.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import trm  # noqa: F401
from storage import packages
from tests.simulation import telling
from tests.workers import Workers

os.environ["TRITON_INTERPRET"] = "1"  # not left to the kernels' own tests: any module may import Triton before them
settings.register_profile("soak", max_examples=1000, deadline=None)
settings.register_profile("few", max_examples=40, deadline=None)
settings.load_profile("few")
"""Examples of a random test that sets no number itself. Here, because tests take the profile when they are imported."""
HERE = Path(__file__).parent
WHOLE = tuple(
    f"{HERE / name}/"
    for name in (
        *(
            "acceptance",
            "damage",
            "app/dashboard",
            "model",
            "app/plots",
            "processes",
            "reports",
            "simulation",
            "app/trackers",
        ),
        *("storage/dropbox", "storage/drive", "storage/remote", "storage/s3", "trm/kernels"),
        *("core/session/test_faults.py", "core/checkpoint/test_lending.py"),
        *("app/checks/test_repair.py", "app/checks/test_repair_page.py"),
        *("trm/test_sharedtable.py", "trm/test_sharedtable_bases.py", "trm/test_sharedtable_choice.py"),
        *("trm/test_sharedtable_refused.py", "trm/test_examples.py", "trm/test_split.py", "test_documentation.py"),
    )
)
"""Folders and files that are slow as a whole: processes, servers, a browser, other people's packages, whole worlds, an
interpreter of kernels, whole runs, trained models, every page. The others hold unit tests and contracts on memory and a
local folder."""
SHARING = tuple(f"{HERE / name}/" for name in ("damage", "app/dashboard", "storage/s3"))
"""Folders with something that is set up once a worker and takes seconds."""
FEW = 4
"""Tests, of those that say that they take long."""
QUICK = "not slow"
"""What `make test` asks for."""
GARBAGE = 20_000
"""New objects until Python looks for garbage; by itself it looks after 700."""
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that have to be free there; `make test` writes some 200 MiB."""


def pytest_configure(config: pytest.Config) -> None:
    """Here, because the process that adds up the workers' reports loads no conftest below this one."""
    config.pluginmanager.register(telling, "simulation")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each process would compile every module of ours again
    sys.dont_write_bytecode = False  # compiling the tests is half of the time to collect them
    if config.option.markexpr == QUICK and _is_roomy(MEMORY):  # each durable file waits 10 ms for a slow disk
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers, each on this machine, from one process that has imported the tests."""
    able = sys.platform == "linux" and pytest.version_tuple >= (9,)  # 8.4 loses folders' fixtures in a fork
    if len(specs) > 1 and able and all(spec.popen for spec in specs):
        profile = config.getoption("--hypothesis-profile")
        options = ["-m", config.option.markexpr, *(["--hypothesis-profile", profile] if profile else [])]
        workers = Workers(options, config.args)
        config.add_cleanup(workers.close)
        for spec in specs:
            spec.python = workers.python


def _is_roomy(folder: Path) -> bool:
    """Whether tests may put all their files there, and run scripts among them."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ROOM and not disk.f_flag & os.ST_NOEXEC


@pytest.fixture
def pinned(snapshot: Any) -> Any:
    """A file that holds the text it is compared with."""
    from tests.pinned import TextFile

    return snapshot.use_extension(TextFile)


@pytest.fixture(scope="session", autouse=True)
def power_that_never_fails() -> Iterator[None]:
    """No file in this process waits until a disk has it: hundreds of times a session, for 4 ms and more.

    Which calls are made, in which order, tests with `diskcalls` tell. Processes of their own wait as users' do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # also refuses what is no open file
        yield


@pytest.fixture(autouse=True)
def python_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "interpreter", lambda: "python")


@pytest.fixture
def hangups() -> Iterator[None]:
    """SIGHUP as a terminal's programs find it: under nohup it would be ignored in all the tests' processes."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests left out one by one need not be imported first."""
    return True if config.option.markexpr == QUICK and f"{collection_path}/" in WHOLE else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: looking for garbage among them again and again is a tenth of the time.

    Tests make much that stays too (SDK clients, stores in memory). Looking less often saves a twentieth of theirs.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker gets an equal part of the list: all begin with their share of the slow tests, those first that may
    take longest, so that none of them is left alone at the end."""
    for item in items:
        if f"{item.path}/".startswith(WHOLE):
            item.add_marker(pytest.mark.slow)
    slow = sorted((item for item in items if item.get_closest_marker("slow")), key=_patience, reverse=True)
    quick = [item for item in items if not item.get_closest_marker("slow")]
    parts: list[list[pytest.Item]] = [[] for _ in range(getattr(config, "workerinput", {}).get("workercount", 1))]
    for piece in chain(_pieces(slow), _pieces(quick)):
        min(parts, key=len).extend(piece)
    items[:] = [item for part in parts for item in part]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Unfreeze, except in a worker.

    Triton's nanobind takes objects still frozen at the end for leaks, and prints that. To take all of them apart costs
    2 s after a whole run: a worker, which has reported everything, is spared that.
    """
    if hasattr(config, "workerinput"):
        atexit.register(_end)
    else:
        gc.unfreeze()


def _end() -> None:
    """As an interpreter ends, but without taking apart the imported and collected objects."""
    atexit.unregister(_end)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _pieces(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """The share of one worker: tests with the same slow set-up together, and few of those that take minutes."""
    for _, group in groupby(items, _together):
        together = list(group)
        size = FEW if _patience(together[0]) else len(together)
        yield from (together[begin : begin + size] for begin in range(0, len(together), size))


def _together(item: pytest.Item) -> Path:
    """A file, or the folder whose files share a server, a browser or a run's history."""
    return item.path.parent if str(item.path).startswith(SHARING) else item.path


def _patience(item: pytest.Item) -> float:
    """Seconds that a test asks for; 0 for the usual."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The measurements of tests: the property `summary` of each, one line."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid.rpartition('/')[2].partition('::')[0]}: {value}")
