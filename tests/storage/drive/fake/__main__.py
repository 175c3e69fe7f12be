"""Starts a fake Google Drive: `python -m tests.storage.drive.fake --port 8123` prints its port, serves until killed."""

from __future__ import annotations

import argparse
import sys
import threading

from tests.storage.drive.fake.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    options = parser.parse_args()
    server = Server(options.port)
    print(server.server_port, flush=True)
    if options.with_parent:
        threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
