"""A proxy that the environment names is the only way out: every cloud's client asks it, and goes nowhere else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from storage.base import BadAddress, Ref, StoreError, open_store
from tests.facts import raising
from tests.storage.fakes.redirect import HOSTS

REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CLOUDS = {
    "s3://bucket/relay": "bucket.s3.amazonaws.com",
    "dropbox:///relay": "content.dropboxapi.com",
    "drive://0AbCdEfGhIjKlMnOpQrStUvWxYz/1AbCdEfGhIjKlMnOpQrStUvWxYz": "oauth2.googleapis.com",
}
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE00",
    "AWS_SECRET_ACCESS_KEY": "example",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "DROPBOX_ACCESS_TOKEN": "example",
    "RELAY_DRIVE_TOKEN": json.dumps({"refresh_token": "r", "client_id": "c", "client_secret": "s"}),
}


class Proxy:
    """Listens on loopback, notes whom it was asked for, refuses."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listening.accept()[0]
            except OSError:
                return
            with connection:
                self.asked.append(connection.recv(4096).split(b"\r\n")[0].decode())
                connection.sendall(REFUSED)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for fake in HOSTS.values():  # which earlier tests may have put in the way for the whole process
        monkeypatch.setenv(fake, "")
    found = Proxy()
    monkeypatch.setenv("HTTPS_PROXY", found.address)
    yield found
    found.close()


@pytest.mark.parametrize("address", CLOUDS, ids=lambda address: address.partition(":")[0])
def test_the_proxy_of_the_environment_is_asked_and_its_refusal_is_told(proxy: Proxy, address: str) -> None:
    with pytest.raises(StoreError):
        store = open_store(address)
        store.get(Ref("trm-relay-store"), limit=1000)
    assert proxy.asked and all(line.startswith(f"CONNECT {CLOUDS[address]}:443") for line in proxy.asked), proxy.asked


def test_without_what_speaks_to_proxies_drive_is_refused_and_nothing_goes_round_it(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.drive.find_spec", lambda name: None if name == "socks" else name)
    with raising(BadAddress, "pip install pysocks"):
        open_store(next(address for address in CLOUDS if address.startswith("drive")))
    assert not proxy.asked
