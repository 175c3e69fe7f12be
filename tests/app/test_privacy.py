"""Stored objects name no machine, no login, no address and no path, whichever fault occurs (P4)."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.base import Ref, Unavailable
from storage.wrapper import Wrapper
from tests.app.cli import Desk, impatient, wrap_stores

TELLTALE = "telltale"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine whose paths, login and name would all give it away."""
    given = {name: f"{TELLTALE}-{name.lower()}" for name in ("USER", "LOGNAME", "HOSTNAME", "HOST")}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: f"{TELLTALE}-host")
    monkeypatch.setattr(getpass, "getuser", lambda: f"{TELLTALE}-user")
    return Desk(tmp_path / TELLTALE, {**given, "RELAY_OWNER": "Ana"})


def object_of(desk: Desk, name: str) -> Path:
    return next((desk.folder / "relay_store").rglob(name))


def flipped(desk: Desk) -> None:
    path = object_of(desk, "step_6.e2/state.json")
    path.write_bytes(b"x" + path.read_bytes()[1:])


def missing(desk: Desk) -> None:
    object_of(desk, "step_6.e2/ema.json").unlink()


def no_manifest(desk: Desk) -> None:
    object_of(desk, "step_6.e2/manifest.json").unlink()


def endless_manifest(desk: Desk) -> None:
    object_of(desk, "step_6.e2/manifest.json").write_bytes(b" " * 2_000_000)


def void_entry(desk: Desk) -> None:
    last = max((desk.folder / "relay_store").rglob("r/ledger/*.json"))
    last.with_name(f"{int(last.stem) + 1:020d}.json").write_bytes(b"{}")


def raising(error: Exception) -> Callable[[Desk], None]:
    def arrange(desk: Desk) -> None:
        def sleep(seconds: float) -> None:
            raise error

        desk.plugin.made = {"sleep": sleep}

    return arrange


def not_finite(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 8}


SCENES: dict[str, tuple[Callable[[Desk], None], int]] = {
    "flipped": (flipped, 0),
    "missing": (missing, 0),
    "no manifest": (no_manifest, 0),
    "endless manifest": (endless_manifest, 0),
    "void entry": (void_entry, 0),
    "crash": (raising(RuntimeError(f"cannot open /home/{TELLTALE}/data")), 1),
    "os error": (raising(OSError(5, "I/O error", f"/home/{TELLTALE}/data")), 1),
    "out of memory": (raising(MemoryError(TELLTALE)), 78),
    "not finite": (not_finite, 65),
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_no_stored_byte_gives_a_machine_or_a_person_away(desk: Desk, scene: str) -> None:
    desk("register", "account_1", "Ana's Colab")
    desk.train(3)
    desk.train(6)
    happen, code = SCENES[scene]
    happen(desk)
    other = Desk(desk.folder / "other", {**desk.environ, "RELAY_STORE": str(desk.folder / "relay_store")}, desk.plugin)
    other.train(9, "lease.ttl_s=2", account="account_2", code=code)  # so long a void entry is read again
    desk.plugin.made = {}
    other.train(9, account="account_2")
    assert telling(desk) == []
    assert noted(desk), "what happened is on record"


@pytest.mark.slow
def test_neither_does_a_store_that_fails(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            if "step_5" in name:
                raise Unavailable(f"cannot write {desk.folder}/relay_store/{name}: worn out.")
            return self.inner.put_new(name, data)

    desk.train(3)
    with monkeypatch.context() as patched:
        wrap_stores(patched, Failing)
        impatient(patched)
        desk.train(5, code=74)
    desk.train(6)
    assert telling(desk) == []


def telling(desk: Desk) -> list[str]:
    """Stored objects that hold the telltale, in their name or their bytes."""
    store = desk.folder / "relay_store"
    files = [path for path in store.rglob("*") if path.is_file()]
    assert any("registry" in str(path) for path in files) and any("manifest" in path.name for path in files)
    return [
        str(path.relative_to(store))
        for path in files
        if TELLTALE in str(path.relative_to(store)) or TELLTALE.encode() in path.read_bytes()
    ]


def noted(desk: Desk) -> list[str]:
    """Causes of the recorded incidents."""
    found = desk("verify", "--run", "r", "--json", code=None).json
    return [incident["cause"] for incident in found["incidents"]]
