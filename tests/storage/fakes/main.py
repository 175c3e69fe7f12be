"""Serves a fake service from the command line until it is killed; knows none."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable

from tests.storage.fakes.http import Server


def serve(about: str | None, begin: Callable[[int], Server]) -> None:
    """Print the port, then serve."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    options = parser.parse_args()
    server = begin(options.port)
    print(server.server_port, flush=True)
    if options.with_parent:
        threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()
