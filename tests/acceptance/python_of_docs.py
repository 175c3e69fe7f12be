"""`python` as the pages type it, for tests that do not show start-up.

Our own programs are forked from a warm interpreter (warm.py), all others get the real one. WARM_ADDRESS and WARM_PYTHON
name both. Killing this process kills the command; other signals reach it.
"""

import json
import os
import signal
import socket
import sys

OURS = ("relay", "storage", "trm", "tests")


def forked(argv: list[str], address: str) -> int:
    """Exit code of a command with this terminal, folder and environment."""
    request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109 - pathlib takes long to import
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        with connection.makefile() as answers:
            pid = int(answers.readline())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, lambda number, _: os.kill(pid, number))
            code = int(answers.readline())
    return code if code >= 0 else 128 - code


def ours(argv: list[str]) -> bool:
    """Whether it is one of our programs, or asks which modules an interpreter can import."""
    if argv[0] == "-m":
        return argv[1].partition(".")[0] in OURS
    return argv[0] == "-c" or (argv[0].endswith(".py") and os.path.exists(argv[0]))  # noqa: PTH110


if __name__ == "__main__":
    if ours(sys.argv[1:]):
        sys.exit(forked(sys.argv[1:], os.environ["WARM_ADDRESS"]))
    os.execv(os.environ["WARM_PYTHON"], [os.environ["WARM_PYTHON"], *sys.argv[1:]])
