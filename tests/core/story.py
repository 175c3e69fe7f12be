"""The life of a run by the pure rules, with the files in its store, for tests of what may go."""

from __future__ import annotations

from typing import Any

from relay.core.checkpoint.manifest import FileEntry, Manifest
from relay.core.checkpoint.retention import Keep, decide_files, going, to_retire
from relay.core.ledger.changes import By
from relay.core.ledger.rules import apply
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import Names
from storage.base import Stat
from tests.core.lab import PROJECT, RUN, genesis

NAMES = Names(PROJECT, RUN)
HASH = "a" * 64
TOKEN = "0123456789abcdef"


def manifest_of(key: tuple[int, int], token: str = "") -> Manifest:
    folder = NAMES.checkpoint(*key, token)
    files = tuple(
        FileEntry(name=name, key=folder + name, ref=folder + name, size=1, sha256=HASH) for name in ("a.bin", "b.bin")
    )
    step, epoch = key
    return Manifest(
        project=PROJECT, run=RUN, step=step, epoch=epoch, state_hash=HASH, files=files, config_hash=HASH,
        fingerprint={}, code_version="1",
    )  # fmt: skip


def checkpoint(key: tuple[int, int], metric: float | None = None, token: str = "") -> Checkpoint:
    name = NAMES.manifest(*key, token)
    return Checkpoint(
        step=key[0], epoch=key[1], manifest=name, ref=name, sha256=HASH, state_hash=HASH, bytes=3, metric=metric
    )


class Story:
    """A run lived through by the real rules, with the files its sessions left."""

    def __init__(self) -> None:
        self.now, self.session = 1000.0, "0" * 32
        self.state = apply(None, "genesis", genesis().model_dump(mode="json"), By(self.session, None, 0, self.now))
        self.states = [self.state]
        self.files: dict[str, float] = {}

    def do(self, kind: str, change: dict[str, object], epoch: int | None = None) -> None:
        self.now += 10
        by = By(self.session, "alice", self.state.epoch if epoch is None else epoch, self.now)
        self.state = apply(self.state, kind, change, by)
        self.states.append(self.state)

    def lease(self) -> None:
        holder = self.state.holder
        gone = {"epoch": holder.epoch, "reason": "dead", "seconds": 1.0} if holder else None
        self.session = f"{self.state.epoch + 1:032x}"
        self.do("lease", {"ttl_s": 10.0, "target_steps": 9, "took_over": gone}, self.state.epoch + 1)

    def upload(self, key: tuple[int, int], token: str = "") -> None:
        for name in ("a.bin", "b.bin", "manifest.json"):
            self.files[NAMES.checkpoint(*key, token) + name] = self.now

    def commit(self, metric: float | None, token: str = "") -> None:
        key = (self.state.step + 10, self.state.epoch)
        self.upload(key, token)
        self.do("commit", {"checkpoint": checkpoint(key, metric, token).model_dump(mode="json")})

    def aside(self) -> None:
        """A commit whose plain folder held something else."""
        self.upload((self.state.step + 10, self.state.epoch))
        self.commit(None, TOKEN)

    def garbage(self) -> None:
        self.upload((self.state.step + 5, self.state.epoch))

    def rewind(self) -> None:
        good = self.state.undamaged
        if len(good) > 1 and not self.state.committed_by(self.state.epoch):
            self.do("rewind", {"damaged": [good[-1].key], "to": good[-2].key, "evidence": "bad"})

    def retire(self, keep: Keep) -> None:
        going = to_retire(self.state, keep)
        if going:
            self.do("retire", {"retire": [list(key) for key in going]})

    def listed(self) -> list[Stat]:
        return [Stat(name, name, 1, modified) for name, modified in sorted(self.files.items())]


def deletable(state: RunState, *args: Any, **more: Any) -> list[Stat]:
    """What may go, in the order to delete it."""
    return going(decide_files(state, NAMES, *args, **more))


def verified(state: RunState) -> dict[tuple[int, int], Manifest]:
    return {c.key: manifest_of(c.key, TOKEN if c.aside else "") for c in state.retained}
