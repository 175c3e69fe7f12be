"""On PYTHONPATH, points every Python process to the fake Dropbox, so that whole commands can be run against it."""

from tests.storage.dropbox.redirect import install

install()
