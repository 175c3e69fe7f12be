"""What the server that racing processes are forked from imports once."""

import dropbox  # noqa: F401
import requests  # noqa: F401

import tests.storage.dropbox.processes  # noqa: F401
