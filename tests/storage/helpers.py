"""What several storage tests share: looking into a store's folder, a checkpoint's files, a log in a faulty world."""

from __future__ import annotations

from pathlib import Path

from storage.local import LocalStore
from storage.log import Log
from storage.memory import MemoryStore
from storage.transfer import Uploaded, Wanted
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore

NAMES = ["model.safetensors", "carry.safetensors", "empty.json", "deep/er/x"]
KEYS = {name: f"checkpoints/p/r/step_5.e1/{name}" for name in NAMES}
PREFIX = "runs/p/r/ledger/"


def names(store: LocalStore) -> list[str]:
    return [found.name for found in store.list("")]


def all_files(store: LocalStore) -> list[str]:
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if not path.is_dir())


def wanted(files: list[Uploaded]) -> list[Wanted]:
    return [Wanted(file.ref, file.name, file.size, file.sha256) for file in files]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class LogWorld:
    """A log over a faulty store, what it slept, and a second, undisturbed client."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory)
        self.counting = CountingStore(self.faulty)
        self.slept: list[float] = []
        self.log = Log(self.counting, PREFIX, sleep=self.slept.append)
        self.other = Log(self.memory, PREFIX, sleep=self.slept.append)

    def fill(self, slots: range) -> None:
        for seq in slots:
            self.memory.put_if_absent(self.log.name(seq), b"%d" % seq)

    def lose(self, seq: int) -> None:
        self.memory.delete(self.log.ref(seq))
