"""`python` as the pages type it, where the start-up is not what is shown: `rotate_accounts.py` is forked from a warm
interpreter (warm.py), and so is `-m relay.cli`, which our own commands start; everything else gets the real one.
WARM_ADDRESS and WARM_PYTHON name both. Killing this process kills the command.
"""

import json
import os
import socket
import sys


def forked(argv: list[str], address: str) -> int:
    """Exit code of a command with this terminal, folder and environment."""
    request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109 - pathlib takes long to import
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        with connection.makefile() as answers:
            answers.readline()
            code = int(answers.readline())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "rotate_accounts.py" and os.path.exists(sys.argv[1]):  # noqa: PTH110
        sys.exit(forked(sys.argv[2:], os.environ["WARM_ADDRESS"]))
    if sys.argv[1:3] == ["-m", "relay.cli"]:
        sys.exit(forked(sys.argv[3:], os.environ["WARM_ADDRESS"]))
    os.execv(os.environ["WARM_PYTHON"], [os.environ["WARM_PYTHON"], *sys.argv[1:]])
