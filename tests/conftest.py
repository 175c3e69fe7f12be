"""For every test: trm comes before torch, because it settles how torch's threads wait; slow tests begin first; people
are told to type `python`, whatever this machine calls it; the simulation adds up what all workers lived through;
hundreds of processes share what one has compiled.
"""

import os
import sys

import pytest

import trm  # noqa: F401
from relay import advice
from tests.simulation import telling


def pytest_configure(config: pytest.Config) -> None:
    """Here, because the process that adds up what the workers report loads no conftest below this one."""
    config.pluginmanager.register(telling, "simulation")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would compile every module of ours again
    sys.dont_write_bytecode = False  # what pytest makes of the tests is half of the time to collect them


@pytest.fixture(autouse=True)
def python_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "interpreter", lambda: "python")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two workers each get one half of the list: both begin with their share of the slow tests, those first that may
    take longest, so that none of them is left alone at the end."""
    slow = sorted((item for item in items if item.get_closest_marker("slow")), key=_patience, reverse=True)
    quick = [item for item in items if not item.get_closest_marker("slow")]
    half = len(quick) // 2
    items[:] = slow[::2] + quick[:half] + slow[1::2] + quick[half:]


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
