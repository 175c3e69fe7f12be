"""Commands on the fake Dropbox: a run begun by one person, gone on with by another over a bad line, the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from tests.app.cli import Desk, Result
from tests.storage.dropbox.handle import Fake, Person

pytestmark = pytest.mark.slow


class Member(Desk):
    """Somebody's machine, with their own credentials in the environment while a command runs."""

    def __init__(self, folder: Path, person: Person, store: str) -> None:
        super().__init__(folder, {"RELAY_STORE": store})
        self.person = person

    def __call__(self, *words: str, code: int | None = 0, **environ: str) -> Result:
        with self.credentials():
            return super().__call__(*words, code=code, **environ)

    @contextmanager
    def credentials(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.person.environ.items():
                patch.setenv(name, value)
            yield


def test_a_run_begun_by_one_person_is_ended_by_another_in_the_same_bytes(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.sleep
    monkeypatch.setattr(RealRuntime, "sleep", lambda self, seconds: real(min(seconds, 0.02)))
    ana, ben = fake.account(), fake.account()
    fake.control("share", id="4711", accounts={ana.name: "/Relay", ben.name: "/Ana's relay"})
    first = Member(tmp_path / "ana", ana, "dropbox://ns:4711/team")
    address = first("init", "--run", "r", "--json").json["address"]
    for person in (ana, ben):  # a bad line: some requests get no answer, some are asked to wait
        for kind in ("drop-after", "500-before", "429"):
            person.fault(kind, route="files/", chance=0.02, times=-1, retry_after=0)
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
    for person in (ana, ben):  # its tries of the store ask once: on a bad line it rightly finds fault
        person.heal()
    shown = second("doctor", "--run", "r").out
    assert "credentials: DROPBOX_REFRESH_TOKEN and DROPBOX_APP_KEY" in shown and "put-if-absent: works" in shown
    assert "GB" in shown.partition("free:")[2].splitlines()[0]
    assert len(person.look()["met"]) > 0
    for secret in (*ana.environ.values(), *ben.environ.values()):
        assert secret not in shown
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()
