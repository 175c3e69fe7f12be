"""Commands on the fake Drive: a run begun by one person, gone on with by another over a bad line, the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from tests.app.cli import Desk, Result
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import holding

pytestmark = pytest.mark.slow


class Member(Desk):
    """Somebody's machine, with credentials in the environment while a command runs."""

    def __init__(self, folder: Path, person: Person, store: str) -> None:
        super().__init__(folder, {"RELAY_STORE": store})
        self.person = person

    def __call__(self, *words: str, code: int | None = 0, **environ: str) -> Result:
        with self.credentials():
            return super().__call__(*words, code=code, **holding(self.person), **environ)

    @contextmanager
    def credentials(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in holding(self.person).items():
                patch.setenv(name, value)
            yield


def test_a_run_begun_by_one_person_is_ended_by_another_in_the_same_bytes(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.sleep
    monkeypatch.setattr(RealRuntime, "sleep", lambda self, seconds: real(min(seconds, 0.02)))
    owner = fake.person()
    owner.change(list_lag=1e6, name_lag=1e6)  # no listing shows anything, ever
    first = Member(tmp_path / "ana", owner, "drive://new")
    address = first("init", "--run", "r", "--json").json["address"]
    for kind in ("drop-after", "500-before", "429", "userRateLimit"):  # a bad line, and requests to wait
        owner.fault(kind, route="v3.", chance=0.02, times=-1, retry_after=0)
    first.environ["RELAY_STORE"] = address
    for account, label in (("account_1", "Ana"), ("account_2", "Ben")):
        first("register", account, label, "--owner", account, "--provider", "local", "--yes")
    first.train(6, "--checkpoint-every", "4")
    second = Member(tmp_path / "ben", owner, address)
    second.train(12, "--checkpoint-every", "4", account="account_2")
    found = second.status()
    alone = Desk(tmp_path / "alone")
    alone.train(12)
    assert found["step"] == 12 and second.held() == alone.held()
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    second("verify", "--run", "r")
    owner.heal()  # doctor's tries of the store ask once: on a bad line it rightly finds fault
    shown = second("doctor", "--run", "r").out
    assert "credentials: RELAY_DRIVE_TOKEN" in shown and "put-if-absent: works" in shown
    assert "log: a chain of ids; 1 Drive account" in shown
    assert owner.look()["met"], "trouble was met"
    for secret in (owner.holds["refresh_token"], owner.holds["client_secret"]):
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_a_wrong_address_token_or_scope_is_one_line_and_78_or_69(fake: Fake, tmp_path: Path) -> None:
    owner, stranger, broad = fake.person(), fake.person(), fake.person(("drive",))
    desk = Member(tmp_path / "ana", owner, "drive://new")
    assert "only `init` makes" in desk("status", "--run", "r", code=78).err
    desk.environ["RELAY_STORE"] = desk("init", "--run", "r", "--json").json["address"]
    desk.person = stranger
    assert "narrow token" in desk("status", "--run", "r", code=78).err
    desk.person = broad
    assert "can do more than it should" in desk("status", "--run", "r", code=78).err
