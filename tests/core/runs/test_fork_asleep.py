"""A fork or an import that sleeps while another of the same name begins: it reports that the name is taken (78)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.runs.opening import NameTaken
from storage.base import QuotaExceeded, Ref
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores

pytestmark = pytest.mark.slow

FORK = ("fork", "--run", "r", "--to", "branch")


def sleeping(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """The next command that stores a first manifest of `branch` sleeps after it for the duration of `meanwhile`."""
    slept: list[str] = []

    class Sleeps(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            ref = super().put_new(name, data)
            if "/branch/" in name and name.endswith(".e0/manifest.json") and not slept:
                slept.append(name)
                meanwhile()
            return ref

    wrap_stores(monkeypatch, Sleeps)


def begun_with(desk: Desk, target: int) -> None:
    """Trained by another session until its first files are retired and, an hour later, cleared."""
    for step in range(10, target + 1, 10):
        desk.train(step, run="branch")
    for path in (desk.folder / "relay_store" / "checkpoints").glob("*/branch/*.e0/*"):
        path.unlink()


@pytest.fixture
def trained(desk: Desk) -> Desk:
    desk.train(10)
    return desk


def test_a_fork_that_slept_while_the_same_was_made_and_trained_says_that_the_name_is_taken(
    trained: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 65, as if something were damaged."""

    def meanwhile() -> None:
        trained(*FORK)
        begun_with(trained, 40)

    sleeping(monkeypatch, meanwhile)
    refused = trained(*FORK, code=78)
    taken = refused.raised(NameTaken)
    assert (taken.run, taken.by) == ("branch", "fork") and "--to" in refused.err and "verify" not in refused.err
    assert trained.status("branch")["step"] == 40 and trained("verify", "--run", "branch", "--json").json["ok"]


def test_an_import_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "weights.safetensors").write_bytes(b"weights")
    words = ("import", "weights.safetensors", "--run", "branch")

    def meanwhile() -> None:
        desk(*words)
        begun_with(desk, 20)

    sleeping(monkeypatch, meanwhile)
    refused = desk(*words, code=78)
    taken = refused.raised(NameTaken)
    assert (taken.run, taken.by) == ("branch", "import") and "--run" in refused.err
    assert desk.status("branch")["step"] == 20


def test_what_fails_while_nobody_has_begun_is_told_as_it_is(trained: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise QuotaExceeded("cannot write: No space left on device. Free some space there and run again.")

    sleeping(monkeypatch, full)
    assert "No space left" in trained(*FORK, code=69).err
    trained(*FORK)
    assert trained(*FORK, code=78).raised(NameTaken).run == "branch"


def test_of_two_sessions_that_load_one_file_at_once_the_later_one_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It advised another name, though session N+1 types the same command as session N."""
    (desk.folder / "weights.safetensors").write_bytes(b"weights")
    words = ("run", "--run", "branch", "load_checkpoint=weights.safetensors")

    def meanwhile() -> None:
        desk(*words, "--account", "account_2", "--target-steps", "10")
        begun_with(desk, 30)

    sleeping(monkeypatch, meanwhile)
    desk(*words, "--account", "account_1", "--target-steps", "40")
    assert desk.status("branch")["step"] == 40
