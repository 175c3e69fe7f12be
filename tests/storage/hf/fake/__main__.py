"""`python -m tests.storage.hf.fake`: a fake Hugging Face on this machine."""

from __future__ import annotations

from tests.storage.fakes.http import Server
from tests.storage.fakes.main import serve
from tests.storage.hf.fake.server import Handler
from tests.storage.hf.fake.world import World

serve(__doc__, lambda port: Server(port, Handler, World()))
