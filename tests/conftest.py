"""For every test: trm comes before torch, because it settles how torch's threads wait; which tests `make test` leaves
out; slow tests begin first; people are told to type `python`, whatever this machine calls it; the simulation adds up
what all workers lived through; hundreds of processes share what one has compiled.
"""

import os
import sys
from pathlib import Path

import pytest

import trm  # noqa: F401
from relay import advice
from tests.simulation import telling

HERE = Path(__file__).parent
WHOLE = tuple(
    HERE / name
    for name in (
        *("acceptance", "damage", "dashboard", "model", "pictures", "processes", "simulation", "sinks"),
        *("storage/dropbox", "storage/drive", "storage/s3", "trm_kernels"),
    )
)
"""Folders that are slow as a whole: processes, servers, a browser, other people's packages, whole worlds, an
interpreter of kernels. The other folders hold unit tests and contracts on memory and a local folder."""
QUICK = "not slow"
"""What `make test` asks for."""


def pytest_configure(config: pytest.Config) -> None:
    """Here, because the process that adds up what the workers report loads no conftest below this one."""
    config.pluginmanager.register(telling, "simulation")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would compile every module of ours again
    sys.dont_write_bytecode = False  # what pytest makes of the tests is half of the time to collect them


@pytest.fixture(autouse=True)
def python_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "interpreter", lambda: "python")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What would be left out test by test need not be imported first."""
    return True if config.option.markexpr == QUICK and collection_path in WHOLE else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker gets an equal part of the list: all begin with their share of the slow tests, those first that may
    take longest, so that none of them is left alone at the end."""
    for item in items:
        if any(folder in item.path.parents for folder in WHOLE):
            item.add_marker(pytest.mark.slow)
    slow = sorted((item for item in items if item.get_closest_marker("slow")), key=_patience, reverse=True)
    quick = [item for item in items if not item.get_closest_marker("slow")]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    parts = (_share(slow, n, workers) + _share(quick, n, workers) for n in range(workers))
    items[:] = [item for part in parts for item in part]


def _share(items: list[pytest.Item], number: int, workers: int) -> list[pytest.Item]:
    """Of one worker, in pieces of a few neighbours, which may have a fixture in common."""
    size = 4
    return [item for begin in range(number * size, len(items), workers * size) for item in items[begin : begin + size]]


def _patience(item: pytest.Item) -> float:
    """Seconds that a test asks for; 0 for the usual."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests measured: the property `summary` of each, one line."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid.rpartition('/')[2].partition('::')[0]}: {value}")
