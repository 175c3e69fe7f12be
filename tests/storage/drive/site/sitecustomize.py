"""On PYTHONPATH, points every Python process to the fake Drive, so that whole commands can be run against it."""

from tests.storage.drive.redirect import install

install()
