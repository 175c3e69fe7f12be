"""A new store on each kind of service, and shorter waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.remote.services import SERVICES, USUAL, Service


@pytest.fixture(params=USUAL)
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with SERVICES[request.param]() as made:
        yield made
