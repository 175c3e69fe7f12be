"""Starts a fake Dropbox: `python -m tests.storage.dropbox.fake --port 8123` prints its port and serves until killed."""

from __future__ import annotations

from tests.storage.dropbox.fake.server import Handler
from tests.storage.dropbox.fake.world import World
from tests.storage.fakes.http import Server
from tests.storage.fakes.main import serve

if __name__ == "__main__":
    serve(__doc__, lambda port: Server(port, Handler, World()))
