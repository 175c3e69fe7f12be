"""Commands on each service: a run begun by one person, gone on with by another over a bad line, the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.cli import Desk, Result, hurry
from tests.storage.remote.services import Fault, OnDrive, Service

pytestmark = pytest.mark.slow
CREDENTIALS = {
    "s3-ministack": "environment",
    "hf": "environment",
    "dropbox": "DROPBOX_REFRESH_TOKEN",
    "drive": "RELAY_DRIVE_TOKEN",
}
"""Where each service's come from here."""


class Member(Desk):
    """Somebody's machine, with their own credentials in the environment while a command runs."""

    def __init__(self, folder: Path, held: dict[str, str], store: str) -> None:
        super().__init__(folder, {"RELAY_STORE": store})
        self.held_by_person = held

    def __call__(self, *words: str, code: int | None = 0, **environ: str) -> Result:
        with self.credentials():
            return super().__call__(*words, code=code, **{**self.held_by_person, **environ})

    @contextmanager
    def credentials(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.held_by_person.items():
                patch.setenv(name, value)
            yield


def secrets(environ: dict[str, str]) -> list[str]:
    """What must be on no disk and in no output."""
    from relay.app.redact import secrets_of

    return sorted(secrets_of(environ))


def test_a_run_begun_by_one_person_is_ended_by_another_in_the_same_bytes(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    ana, ben = service.environs[0], service.environs[-1]
    new = "drive://new" if isinstance(service, OnDrive) else service.address
    if isinstance(service, OnDrive):
        service.person.change(list_lag=1e6, name_lag=1e6)  # no listing shows anything, ever
    first = Member(tmp_path / "ana", ana, new)
    address = first("init", "--run", "r", "--json").json["address"]
    assert address.partition("#")[0] == new or new == "drive://new"
    kinds: list[Fault] = ["drop-after", "drop-before", "429"]
    for kind in kinds:  # a bad line: some requests get no answer, some are asked to wait
        service.fault(kind, chance=0.02, times=-1)
    first.environ["RELAY_STORE"] = address
    for account, label in (("account_1", "Ana"), ("account_2", "Ben")):
        first("register", account, label, "--owner", account, "--provider", "local", "--yes")
    first.train(6, "--checkpoint-every", "4")
    second = Member(tmp_path / "ben", ben, address)
    second.train(12, "--checkpoint-every", "4", account="account_2")
    found = second.status()
    alone = Desk(tmp_path / "alone")
    alone.train(12)
    assert found["step"] == 12 and second.held() == alone.held()
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    second("verify", "--run", "r")
    assert service.met() > 0
    service.heal()  # doctor's tries of the store ask once: on a bad line it rightly finds fault
    (shown,) = second("doctor", "--run", "r", "--json").json["stores"]
    assert shown["reachable"] and shown["put_if_absent"] and shown["upload_bytes_s"] and shown["download_bytes_s"]
    assert CREDENTIALS[service.kind] in shown["credentials"]
    assert (shown["free_bytes"] is None) == service.kind.startswith(("s3", "hf")), "whose protocol does not tell"
    said = second("doctor", "--run", "r").out
    for secret in [secret for environ in service.environs for secret in secrets(environ)]:
        assert secret not in said
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()
