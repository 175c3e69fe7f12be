"""Wrong input and failures beneath a command: one paragraph, the fix, the exit code, and nothing lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relay.app.commands import stores
from relay.app.models.trm import Trm
from relay.core.errors import StoreUnreachable
from relay.core.ledger.ledger import UnknownRun
from relay.core.session.ending import NotSent
from storage.base import Denied, QuotaExceeded, Ref, Store, open_store
from storage.local import LocalStore
from storage.wrapper import Wrapper
from tests.app.cli import Desk, Result, impatient, wrap_stores
from tests.core.toy import hash_of, state_at

pytestmark = pytest.mark.slow

PUZZLE = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def paragraph(result: Result) -> str:
    """The message, after making sure that it is one paragraph and all there is."""
    lines = [line for line in result.err.splitlines() if line.strip()]
    assert result.out == "" and "Traceback" not in result.err
    assert len(lines[-1]) > 40, result.err
    return lines[-1]


@dataclass
class Full:
    """A disk without room under some names, from when `on` is set."""

    part: str
    on: bool = True
    refused: list[str] = field(default_factory=list)

    def __call__(self, inner: Store) -> Store:
        full = self

        class FullStore(Wrapper):
            def put(self, name: str, data: bytes | Path) -> Ref:
                full.check(name)
                return self.inner.put(name, data)

            def put_new(self, name: str, data: bytes | Path) -> Ref:
                full.check(name)
                return self.inner.put_new(name, data)

            def put_if_absent(self, name: str, data: bytes) -> Ref:
                full.check(name)
                return self.inner.put_if_absent(name, data)

        return FullStore(inner)

    def check(self, name: str) -> None:
        if self.on and self.part in name:
            self.refused.append(name)
            raise QuotaExceeded(f"cannot write {name}: No space left on device. Free some space there.")


def test_an_unknown_key_of_the_file_names_the_nearest(desk: Desk) -> None:
    (desk.folder / "config_multi_account.yaml").write_text("checkpoint:\n  evry_steps: 5\n")
    text = paragraph(desk("run", code=78))
    assert "evry_steps" in text and "every_steps" in text and "config_multi_account.yaml" in text
    assert list(files(desk.folder)) == ["config_multi_account.yaml"]


def test_a_wrong_type_in_the_environment_names_variable_and_wanted(desk: Desk) -> None:
    text = paragraph(desk("run", code=78, RELAY_BUDGET_MINUTES="plenty"))
    assert "RELAY_BUDGET_MINUTES" in text and "number" in text and "plenty" in text


def test_a_file_that_is_not_there_is_named_with_its_setting(desk: Desk) -> None:
    text = paragraph(desk("run", "data.train=nowhere.csv", code=65))
    assert "nowhere.csv" in text and "data.train" in text
    assert not (desk.folder / "relay_store").exists(), "no run was begun"


def test_a_malformed_row_is_named_by_its_line(desk: Desk) -> None:
    desk.plugin = Trm()
    rows = ["source,question,answer,rating", f"x,{PUZZLE},{ANSWER},0", f"x,{PUZZLE[:-1]},{ANSWER},0"]
    bad = desk.folder / "bad.csv"
    bad.write_text("\n".join(rows) + "\n")
    for command in ("prepare", "run"):
        text = paragraph(desk(command, "task=sudoku", f"data.train={bad}", code=65, RELAY_CPU="1"))
        assert str(bad) in text and "line 3" in text
    assert not (desk.folder / "relay_store").exists()


def test_a_duplicate_account_keeps_the_first(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    refused = desk("register", "account_1", "Maria's Kaggle", code=78)
    assert "account_1" in refused.err and "accounts edit" in refused.err
    assert desk("accounts", "list", "--json").json["accounts"][0]["label"] == "John's Colab"


@pytest.mark.parametrize("command", ["edit", "mark", "forget"])
def test_an_unknown_account_is_refused_with_the_command_that_registers_it(desk: Desk, command: str) -> None:
    desk("register", "account_1", "John's Colab")
    more = {"edit": ("--label", "x"), "mark": ("ready",), "forget": ()}[command]
    text = paragraph(desk("accounts", command, "account_9", *more, code=78))
    assert "account_9" in text and "register" in text


def test_on_a_store_that_never_begins_by_itself_accounts_and_runs_must_be_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bucket(Wrapper):
        def __init__(self, inner: Store) -> None:
            super().__init__(inner)
            self.address = "s3://bucket"

    wrap_stores(monkeypatch, Bucket)
    assert "init --run r" in paragraph(desk("run", "--run", "r", code=78))
    begun = desk("init", "--run", "r", "--json").json
    assert begun["begun"] and "#id=" in begun["address"]
    assert "account_1" in paragraph(desk("run", "--run", "r", code=78))
    desk("register", "account_1", "John's Colab")
    text = paragraph(desk("run", "--run", "other", code=78))
    assert "other" in text and "holds" in text and "init" in text
    desk("run", "--run", "r", "--target-steps", "3")
    assert desk.status()["step"] == 3


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (("run", "--run", "r", "--target-steps", "-5"), 78, ["target_steps", "must be greater"]),
        (("fork", "--run", "r", "--to", "branch", "--from-step", "4"), 65, ["step 4", "retains 3, 6"]),
        (("export", "--run", "r", "--step", "99"), 65, ["step 99", "retains 3, 6"]),
        (("evaluate", "--run", "r", "--step", "-1"), 65, ["step -1", "retains 3, 6"]),
    ],
)
def test_a_bad_step_says_which_there_are(desk: Desk, words: tuple[str, ...], code: int, parts: list[str]) -> None:
    desk.train(3)
    desk.train(6)
    before = files(desk.folder / "relay_store")
    text = paragraph(desk(*words, code=code))
    assert all(part in text for part in parts), text
    assert files(desk.folder / "relay_store") == before


@pytest.mark.parametrize("known", [False, True])
def test_a_read_only_store_is_refused_before_training(desk: Desk, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(3)
    if not known:
        next((desk.folder / "relay_store").glob("selftest/passed.*")).unlink()
    before = files(desk.folder / "relay_store")
    monkeypatch.setattr(stores, "open_store", lambda url, **_: open_store(url, read_only=True))
    refused = desk.train(9, code=69)
    assert paragraph(refused) and isinstance(refused.raised(StoreUnreachable).error, Denied)
    assert files(desk.folder / "relay_store") == before
    assert paragraph(desk("register", "account_7", "Maria's Kaggle", code=69))


@pytest.mark.parametrize("part", ["selftest/", "ledger/"])
def test_a_full_store_at_the_start_is_said_before_training_with_what_to_do(
    desk: Desk, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full(part)
    wrap_stores(monkeypatch, full)
    text = paragraph(desk.train(9, code=69))
    assert "No space left on device. Free some space" in text
    full.on = False
    desk.train(9)
    assert desk.held() == hash_of(9, state_at(9))


@pytest.mark.slow
def test_a_store_that_fills_up_mid_run_stops_no_training_and_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full("checkpoints/")
    wrap_stores(monkeypatch, full)
    desk.plugin.made = {"step_s": 0.1, "sleep": time.sleep}
    impatient(monkeypatch)
    ended = desk.train(12, "--checkpoint-every", "4", code=74)
    assert "Storage trouble" in ended.err and "/step_4." in full.refused[0]
    text = paragraph(ended)
    (kept,) = (desk.folder / "sync").rglob("step_12.e1")
    unsent = ended.raised(NotSent)
    assert (unsent.step, unsent.durable, unsent.folder) == (12, 0, kept)
    assert type(unsent.cause) is QuotaExceeded and "checkpoints/" in text and str(kept) in text
    assert ended.advised("push") == [["push", "--run", "r"]]
    assert (desk.status()["step"], desk.status()["holder"]) == (0, None)
    assert "push" in desk("doctor", "--run", "r").out
    full.on = False
    pushed = desk("push", "--run", "r", "--json").json
    assert (pushed["schema"], pushed["durable_step"], pushed["exit_code"]) == ("relay.push/1", 12, 0)
    assert desk.held() == hash_of(12, state_at(12))
    assert desk("push", "--run", "r", "--json").json["durable_step"] == 12, "there is nothing more to send"


def test_p3_push_begins_neither_a_run_nor_a_store_that_is_away(desk: Desk) -> None:
    """It did, at step 0, and then reported that nothing here could be added."""
    desk.train(4)
    refused = desk("push", "--run", "another", code=78)
    assert refused.raised(UnknownRun).run == "another" and "another" in paragraph(refused)
    assert len(desk("runs", "list", "--json").json["runs"]) == 1
    store = desk.folder / "relay_store"
    store.rename(desk.folder / "unplugged")
    refused = desk("push", "--run", "r", code=78)
    assert refused.raised(UnknownRun).absent and paragraph(refused) and not store.exists()


def test_doctor_says_where_no_checkpoint_can_be_kept_as_run_does(desk: Desk) -> None:
    """It reported that nothing stops a session; and it makes no folder by looking."""
    desk("doctor", "--run", "r")
    assert not (desk.folder / "sync" / "sudoku_pretrain_multiaccount").exists()
    (desk.folder / "blocked").write_text("a file")
    for words in (("doctor", "--run", "r"), ("run", "--run", "r")):
        shown = desk(*words, "sync_dir=blocked/sync", code=78)
        assert "sync_dir=FOLDER" in shown.out + shown.err and "blocked/sync" in shown.out + shown.err


@pytest.mark.parametrize("command", ["run", "status", "doctor"])
def test_a_folder_on_a_mounted_drive_is_refused_with_the_address_to_use(
    desk: Desk, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = desk.folder / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\ndrive {desk.folder}/relay_store fuse.drive rw 0 0\n")
    folder = desk.folder / "relay_store"
    monkeypatch.setattr(stores, "open_store", lambda url, **more: LocalStore(folder, mounts=mounts, **more))
    refused = desk(command, code=78)
    shown = refused.out + refused.err
    assert str(folder) in shown and "drive://" in shown
    assert not folder.exists()
