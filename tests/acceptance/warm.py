"""Forks an interpreter in milliseconds: torch is imported once, each command is a process of its own.

`python -m tests.acceptance.warm SOCKET [MODULE...]`; where modules are named, they are imported in place of torch.

One connection a command, over the Unix socket that the command line names: its standard input, output and error come
with one JSON object `{"argv", "env", "cwd"}`, where `argv` holds the arguments after `python`; its process id goes back
on one line, and on another its exit code (negative: the signal that killed it). A client that hangs up before that has
the command killed. All forks have one hash seed: bytes that must not depend on it are compared with those of a freshly
started process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

LONGEST = 1 << 20
"""Bytes of a request at most."""


def become(request: dict[str, Any], handles: list[int]) -> None:
    """Turn this fork into the requested command.

    It ends as an interpreter of its own ends, but does not take the imported modules apart, which is half of the
    time of a short command. The commands that it starts are forked too, if WARM_FORKING names a `python` that forks.
    """
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.executable = os.environ.get("WARM_FORKING", sys.executable)
    sys.path[:0] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):  # as each interpreter does at its start: there the tests point an SDK to a fake service
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    if os.environ.pop("DIES_AFTER_COMMIT", ""):
        die_after_commit()
    code = 0
    try:
        as_python_would(request["argv"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def die_after_commit() -> None:
    """Have SIGKILL end this process as soon as the ledger has its next commit: before it begins another one, whose
    checkpoint this machine's next session would send."""
    from storage.local import LocalStore

    append = LocalStore.put_if_absent

    def last(store: LocalStore, name: str, data: bytes) -> Any:
        ref = append(store, name, data)
        if b'"kind":"commit"' in data:
            os.kill(os.getpid(), signal.SIGKILL)
        return ref

    LocalStore.put_if_absent = last  # type: ignore[method-assign]


def as_python_would(argv: list[str]) -> None:
    """Acts on its arguments as an interpreter does; our own command line, which is here already, is not read again."""
    match argv:
        case ["-m", "relay.app.cli", *words]:
            from relay.app.cli import main

            sys.argv[:] = ["relay.app.cli", *words]
            main()
        case ["-c", code, *words]:
            sys.argv[:] = ["-c", *words]
            main_module = sys.modules["__main__"] = ModuleType("__main__")
            exec(code, main_module.__dict__)  # noqa: S102
        case ["-m", module, *words]:
            sys.argv[:] = [module, *words]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *words]:
            sys.argv[:] = [script, *words]
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")


def attend(connection: socket.socket) -> None:
    """One command from its start to its end, in a fork that waits for it."""
    data, handles, _, _ = socket.recv_fds(connection, LONGEST, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(json.loads(data), handles)
    for handle in handles:
        os.close(handle)
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(ended(pid, connection))
        connection.sendall(f"{code}\n".encode())
    os._exit(0)


def ended(pid: int, connection: socket.socket) -> int:
    """Status of a command at its end, which comes by force once no client listens any more."""
    end = os.pidfd_open(pid)
    if end not in select.select([end, connection], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def serve(address: str) -> None:
    """Until standard input ends; a fork of this has `attend`ed or become a command."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    gc.freeze()  # imported objects are never scanned again, so their memory stays shared
    print("ready", flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            attend(connection)
        connection.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def assemble() -> None:
    """The first work of every command: put the command line together."""
    import typer.main

    from relay.app import cli

    command = typer.main.get_command(cli.app)
    typer.main.get_command = lambda app: command


def prepare() -> None:
    """The first work of most commands: load torch, make the puzzles of most tests.

    With one thread, because the threads that torch computes with would be missing in a fork, which waits for them.
    """
    import trm.workload
    import torch._dynamo  # isort: skip - what any optimizer of torch imports; trm comes before torch
    import torch.fx.experimental.symbolic_shapes

    import lm.workload  # noqa: F401
    import relay.torch.checkloop  # noqa: F401
    import trm.evaluate  # noqa: F401
    from trm.data import sudoku4

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sudoku4.build(1_000)
    torch.set_num_threads(threads)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    address, *modules = sys.argv[1:]
    for module in modules:
        import_module(module)
    if not modules:
        prepare()
    assemble()
    serve(address)
