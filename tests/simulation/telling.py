"""Adds up the seeds' actions over all workers and prints one line; too few kinds of trouble fail the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from tests.simulation import seeds
from tests.simulation.mutations import tally
from tests.simulation.trace import Summary

WANTED = {
    "kinds": (
        "genesis", "lease", "commit", "retire", "rewind", "release", "incident", "resume", "archive",
        "unarchive", "delete",
    ),
    "exits": (
        "0", "1", "65", "69", "73", "74", "75", "76", "130", "143", "fork-0", "register-0", "verify-whole",
        "77", "archive-0", "archive-73", "unarchive-0", "delete-0", "delete-77", "gc-0",
    ),
    "faults": (
        "before", "down", "full", "throttled", "after-put", "after-put_if_absent", "after-delete",
        "late-put", "late-put_if_absent", "late-delete", "landed-late", "landed-late-after-death", "landed-too-late",
        "listing-hid", "listing-stale", "own-exists", "lost-race",
        "killed", "kill-before-call", "kill-after-call", "sleeps", "budget", "damage", "non-finite", "crashes",
        "other-device", "signal-stop", "signal-sigterm", "signal-sigint",
        "read-cut", "read-flipped", "read-flickering", "read-silent", "read-old", "passed-over",
        "takeover", "takeover-same-host", "halted", "certified-exact", "certified-not-exact", "certified-unknown",
    ),
}  # fmt: skip
"""What the seeds of CI must have met at least once: otherwise the simulation proves less than it says."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the controller, whichever worker ran the test."""
    if report.when == "call":
        for name, value in report.user_properties:
            if name == "simulation":
                lived = Summary.of(value)
                _Added.totals[lived.store] = _Added.totals.get(lived.store, Summary()) + lived
            if name == "mutation":
                _Added.mutations.append(tally.Found(*value))


class _Added:
    """The sum so far; a hook for reports has no other place to keep it."""

    totals: ClassVar[dict[str, Summary]] = {}
    """By the name of the backend."""
    mutations: ClassVar[list[tally.Found]] = []


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A whole set of seeds that met too little is a failure of the tests."""
    if _missing() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a backend of everything counted, and one of the mutations; their table where it is asked for."""
    if _Added.mutations:
        terminalreporter.write_line(tally.line(_Added.mutations))
        if table := os.environ.get("RELAY_SIM_MUTATIONS"):
            tally.write(_Added.mutations, Path(table))
    for _, total in sorted(_Added.totals.items()):
        terminalreporter.write_line(total.line())
    if missing := _missing():
        terminalreporter.write_line(f"simulation: FAILED, it never met {', '.join(missing)}", red=True)


def _missing() -> list[str]:
    """The kinds of trouble that so many seeds should have met and did not; fewer seeds need not meet any."""
    enough = [total for total in _Added.totals.values() if total.seeds >= seeds.CI_SEEDS]
    return [
        f"{group} {name} on {total.store}"
        for total in enough
        for group, names in WANTED.items()
        for name in names
        if not getattr(total, group)[name]
    ]
