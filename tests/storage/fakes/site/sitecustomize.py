"""On PYTHONPATH, points every Python process to the fakes, so that whole commands can be run against them."""

from tests.storage.fakes.redirect import install

install()
