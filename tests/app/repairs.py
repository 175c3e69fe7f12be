"""A run of three sessions that a test may hurt, and the reports of verify and doctor about it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.app.cli import Desk, advised
from tests.core.toy import ToySnapshot, hash_of, state_at


def live(folder: Path) -> Path:
    """Three sessions of two accounts; steps 10, 20 and 30 are retained. The folder that they ran in."""
    desk = Desk(folder)
    for target, account in ((10, "account_1"), (20, "account_1"), (30, "account_2")):
        words = ("run", "--run", "r", "--account", account, "--target-steps", "30", "--until-step", str(target))
        desk(*words, "evaluation.every_commits=0", code=0 if target == 30 else 75)
    return desk.folder


def another_machine(desk: Desk) -> Desk:
    return Desk(desk.folder.parent / "other", {"RELAY_STORE": (desk.folder / "relay_store").as_uri()})


def stored(desk: Desk, name: str) -> Path:
    (path,) = (desk.folder / "relay_store").rglob(name)
    return path


def slot(desk: Desk, number: int) -> Path:
    return stored(desk, "r/ledger") / f"{number:020d}.json"


def tail(desk: Desk) -> int:
    return max(int(path.stem) for path in stored(desk, "r/ledger").glob("*.json"))


def spoil(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])


def verified(desk: Desk, code: int = 65) -> dict[str, Any]:
    return desk("verify", "--run", "r", "--json", code=code).json


def examined(desk: Desk, code: int, subject: str) -> list[dict[str, Any]]:
    found = desk("doctor", "--run", "r", "--json", code=code).json
    assert found["ok"] == (code == 0)
    return [row for row in found["findings"] if row["subject"] == subject and not row["ok"]]


def told_command(text: str, verb: str) -> list[str]:
    """The words of the command that a text tells people to type."""
    (found,) = [words for words in advised(text) if verb in words]
    return found


def leave_unsent(desk: Desk, step: int) -> None:
    """The remains of a session whose last upload failed: a sealed checkpoint trained from the present head."""
    desk.plugin.made = {"crash": {30: ZeroDivisionError("boom")}}
    desk.train(40, code=1)
    desk.plugin.made = {}
    head = stored_here(desk, "step_30.e3.json")
    packed = json.loads(head.read_text())
    folder = head.with_name(f"step_{step}.e4")
    folder.mkdir()
    saved = ToySnapshot(step, state_at(step), None).save(folder)  # type: ignore[arg-type]
    files = [(folder / name).read_bytes() for name in saved.files]
    packed |= {"step": step, "epoch": 4, "parent": [30, 3], "state_hash": hash_of(step, state_at(step)), "next": None}
    packed.pop("committed", None)
    packed["files"] = [
        {"name": name, "size": len(data), "sha256": sha256(data).hexdigest()}
        for name, data in zip(saved.files, files, strict=True)
    ]
    head.with_name(f"step_{step}.e4.json").write_text(json.dumps(packed))


def stored_here(desk: Desk, name: str) -> Path:
    (path,) = (desk.folder / "sync").rglob(name)
    return path
