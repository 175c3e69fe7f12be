"""Servers, and a proxy that makes one misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from storage.base import open_store
from storage.s3.store import S3Store
from tests.storage.s3.proxy import Proxy, proxy_to
from tests.storage.s3.servers import Server, server

_number = count()


@pytest.fixture
def ministack() -> Server:
    return server("ministack")


@pytest.fixture
def prefix() -> str:
    """Of a new store."""
    return f"faults-{next(_number)}"


@pytest.fixture
def proxy(ministack: Server) -> Iterator[Proxy]:
    with proxy_to(ministack.endpoint_url) as running:
        yield running


@pytest.fixture
def faulty(ministack: Server, proxy: Proxy, prefix: str) -> S3Store:
    """A client behind the proxy."""
    return opened(ministack.address(prefix, proxy.endpoint_url))


@pytest.fixture
def direct(ministack: Server, prefix: str) -> S3Store:
    """A client of the same store that nothing disturbs."""
    return opened(ministack.address(prefix))


def opened(address: str, read_only: bool = False) -> S3Store:
    store = open_store(address, read_only=read_only)
    assert isinstance(store, S3Store)
    return store
