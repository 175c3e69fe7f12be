"""`dashboard`: writes nothing into the store, works where only reading is allowed, hides people when asked to."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from relay.app.commands.common import App
from relay.app.commands.looking.source import Source
from relay.app.dashboard.server import Poller
from relay.core.errors import StoreDamaged
from storage.base import Denied, LostEntry, Ref, Store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.facts import raising

LABEL, OTHER = "Ada Lovelace's Colab", "</script><b>Ben"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two accounts, two sessions."""
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    desk("register", "account_1", LABEL)
    desk("register", "account_2", OTHER, "--owner", "Ben", "--provider", "local")
    desk.train(20)
    desk.train(40, account="account_2")
    return desk


def source_of(desk: Desk) -> Source:
    app = App(plugin=desk.plugin, environ={"HOME": str(desk.folder), **desk.environ}, cwd=desk.folder)
    return Source(app, app.settle([], None, {"run": "r"}), redacted=False)


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


class ReadOnly(Wrapper):
    """A credential that may only read."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        raise Denied("read-only")

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        raise Denied("read-only")

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        raise Denied("read-only")

    def delete(self, ref: Ref) -> None:
        raise Denied("read-only")


def test_a_run_as_one_file_with_nothing_written_in_the_store(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = desk.folder.parent / "store"
    before = files(store)
    wrap_stores(monkeypatch, lambda inner: ReadOnly(inner))
    said = desk("dashboard", "--run", "r", "--export", "run.html")
    page = (desk.folder / "run.html").read_text()
    assert "run.html" in said.out and LABEL.split("'")[0] in page and "<b>Ben" not in page
    assert files(store) == before
    found = desk("dashboard", "--run", "r", "--export", "run.html", "--json").json
    assert found["schema"] == "relay.dashboard-file/1" and found["bytes"] == (desk.folder / "run.html").stat().st_size
    assert desk("dashboard", "--run", "r", "--json").json["schema"] == "relay.dashboard/1"


def test_the_document_tells_what_the_ledger_tells(desk: Desk) -> None:
    found = desk("dashboard", "--run", "r", "--json").json
    status = desk.status()
    head = found["header"]
    assert (head["step"], head["phase"]) == (status["step"], status["state"]) == (40, "finished")
    assert head["safe"]["state_hash"] == status["head"]["state_hash"][:16]
    assert head["next"] is None and not any(row["next"] for row in found["accounts"]), "nothing is left to train"
    line = found["curves"]["line"]
    assert line["step"] == sorted(set(line["step"])) and line["step"][-1] == 40
    assert [one["stands"] for one in found["sessions"]] == [20, 20] and found["unread"] == 0
    assert [row["kind"] for row in found["sessions"]] == ["reached", "reached"]
    assert sum(found["sessions"][0]["phases"].values()) > 0, "the session's own report was read"
    (handoff,) = found["handoffs"]
    assert handoff["certified"] == "exact" and handoff["step"] == 20 and len(handoff["state_hash"]) == 16
    assert found["storage"]["checkpoints"] >= 1 and found["storage"]["bytes"] > 0


def test_redacted_it_names_nobody_and_no_place(desk: Desk) -> None:
    text = json.dumps(desk("dashboard", "--run", "r", "--json", "--redact").json)
    assert not [word for word in ("Ada", "Ben", str(desk.folder.parent)) if word in text]
    assert "account_1" in text and "file://" in text
    desk("dashboard", "--run", "r", "--redact", "--export", "run.html")
    page = (desk.folder / "run.html").read_text()
    assert "Lovelace" not in page and str(desk.folder.parent) not in page


def test_a_run_that_has_not_begun_and_a_store_that_is_not_there(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    found = desk("dashboard", "--run", "r", "--json").json
    assert found["header"]["phase"] == "new" and "not begun" in found["notices"][0]
    assert not (tmp_path / "store").exists()


def test_only_what_is_new_is_read_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    class Counting(Wrapper):
        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            reads.append(ref)
            return super().read_range(ref, start, length)

    def counted(inner: Store) -> Store:
        return Counting(inner)

    wrap_stores(monkeypatch, counted)
    source = source_of(desk)
    first = source.first()
    assert first["header"]["step"] == 40 and first["unread"] == 0
    source.news()  # the plan
    reads.clear()
    assert source.news() is None and reads == [], "a look at a run that stands still reads no entry"
    desk.train(44)
    later = source.news()
    assert later is not None and later["header"]["step"] == 44
    assert [row["epoch"] for row in later["sessions"]] == [1, 2, 3]


def test_entries_that_go_away_are_trouble_and_no_new_run(desk: Desk) -> None:
    source = source_of(desk)
    source.first()
    runs, away = desk.folder.parent / "store" / "runs", desk.folder.parent / "away"
    runs.rename(away)
    with raising(StoreDamaged) as caught:
        source.news()
    assert type(caught.value.error) is LostEntry
    away.rename(runs)
    desk.train(44)
    again = source.news()
    assert again is not None and again["header"]["step"] == 44


def test_a_long_log_is_there_at_once_and_fills_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.app.commands.looking.source.SLICE_S", -1.0)
    source = source_of(desk)
    first = source.first()
    assert first["header"]["step"] == 40 and first["unread"] > 0 and first["curves"]["commits"] == 0
    monkeypatch.setattr("relay.app.commands.looking.source.SLICE_S", 60.0)
    filled = source.news()
    assert filled is not None and filled["unread"] == 0 and filled["curves"]["line"]["step"][-1] == 40
    assert all(row["phases"] for row in filled["sessions"])


def test_where_machines_are_lent_for_other_things_it_serves_nothing(desk: Desk) -> None:
    refused = desk("dashboard", "--run", "r", code=77, KAGGLE_KERNEL_RUN_TYPE="Interactive")
    assert "--export run.html" in refused.err


def test_without_the_packages_it_says_which(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "trm-relay[dashboard]" in desk("dashboard", "--run", "r", code=78).err
    desk("dashboard", "--run", "r", "--export", "run.html")


def test_a_file_and_a_port_are_two_things(desk: Desk) -> None:
    assert "--export" in desk("dashboard", "--run", "r", "--export", "x.html", "--port", "8000", code=2).err


def test_it_prints_its_address_and_ends_as_planned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    def serve(poller: Poller, listener: object, others: object) -> None:
        served.append(str(poller.news.document["run"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("relay.app.dashboard.server.serve", serve)
    said = desk("dashboard", "--run", "r", "--no-open")
    assert "http://127.0.0.1:" in said.err and served == ["r"]
