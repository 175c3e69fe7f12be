"""Forks the program in milliseconds: everything is imported once, each session is a process and a group of its own.

One JSON request a line on stdin, one answer a line on stdout. `{"argv", "env", "cwd", "out", "humble"}` starts a
process, a humble one without root's right to ignore permissions; `{"poll": pid}` asks for its exit code (negative: the
signal that killed it).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.app.providers import shipped
from tests.processes.limits import obey_permissions
from tests.processes.program import main as program

alive: set[int] = set()


def become(request: dict[str, Any]) -> None:
    """Turn this fork into the process that was asked for; ends as an interpreter of its own ends."""
    os.setsid()
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, request["out"] + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        handle = os.open(path, flags, 0o666)
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["humble"]:
        obey_permissions()
    os.chdir(request["cwd"])
    program(request["argv"])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The nursery's own output."""
    pid, status = os.waitpid(request["poll"], os.WNOHANG)
    if pid == 0:
        return {"code": None}
    alive.discard(pid)
    return {"code": os.waitstatus_to_exitcode(status)}


def serve() -> None:
    """Runs until stdin ends; then it kills the remaining processes."""
    shipped()  # read once: a table in YAML takes longer than all other work before the lease
    gc.freeze()  # imported objects are never scanned again, so their memory stays shared
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "poll" in request:
            reply = answer(request)
        else:
            pid = os.fork()
            if pid == 0:
                become(request)
            alive.add(pid)
            reply = {"pid": pid}
        print(json.dumps(reply), flush=True)
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    serve()
