"""The basis of the simulation: the relay and the log know no clock, no chance and no threads but those passed in."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REAL = {"time", "random", "secrets", "threading", "uuid", "asyncio", "concurrent", "multiprocessing", "sched", "queue"}
CALLS = {"datetime.now", "datetime.today", "datetime.utcnow", "date.today", "os.urandom", "datetime.datetime.now"}
OWN = {
    ROOT / "relay" / "core" / "clock.py",
    ROOT / "relay" / "app" / "dashboard" / "server.py",
    ROOT / "relay" / "app" / "dashboard" / "connections.py",
    ROOT / "relay" / "torch" / "snapshot.py",
    ROOT / "relay" / "torch" / "peers.py",
    ROOT / "relay" / "torch" / "streams.py",
    ROOT / "relay" / "torch" / "launch.py",
    ROOT / "relay" / "torch" / "workload.py",
}
"""The Runtime's own module; the page's server and its connections, which only read and live in their library's event
loop; and what waits for devices and processes, or keeps a user's own random numbers: the simulation runs none of it."""
NAMED = {"CancelledError"}
"""What may be imported from them: the name of an exception that a library raises tells no time."""
RELAY = sorted(path for path in (ROOT / "relay").rglob("*.py") if path not in OWN)
STORAGE = [ROOT / "storage" / name for name in ("base.py", "log.py", "retry.py")]
"""Of storage/, what the ledger is made of; a backend is a simulated store's place, and has its own contract suite."""


def test_no_real_clock_chance_or_thread() -> None:
    found = {str(path.relative_to(ROOT)): real(path.read_text()) for path in (*RELAY, *STORAGE)}
    assert {name: uses for name, uses in found.items() if uses} == {}, "use the Runtime that was passed in"


def test_lint_forbids_them_too() -> None:
    """Before any test runs."""
    lines = ["import time", "import random", "from secrets import token_hex", "import threading"]
    command = [sys.executable, "-m", "ruff", "check", "--output-format", "json"]
    command += ["--stdin-filename", "relay/some_new_module.py", "-"]
    found = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, cwd=ROOT, check=False)
    refused = {row["location"]["row"] for row in json.loads(found.stdout) if row["code"] == "TID251"}
    assert found.returncode == 1 and refused == {1, 2, 3, 4}
    assert all(real(line) for line in lines)


def real(source: str) -> list[str]:
    """The real clocks, chance and threads that a module's source imports or calls."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in REAL]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in REAL:
            found += [str(node.module) for alias in node.names if alias.name not in NAMED]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            found.append(ast.unparse(node.func))
    return found
