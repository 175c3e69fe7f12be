"""Writes the golden store: `python -m tests.frozen.write_golden FOLDER`. Shows how tests/data/run_golden was made.

The stored one was written once, by the code of November 2026 (commit 0ab6ad7), and is never written again: it shows
that later versions read what that version wrote. Almost everything is done by the product's own commands. Where a
session must die, or must last for hours, the ledger's own functions append its entries. The toy stands for a model,
so that the whole store is small. The store's clock can be moved on, so that it covers a month.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import BaseModel

from relay.app.commands import stores
from relay.app.messages import advice
from relay.core.clock import RealRuntime
from relay.core.lease.host import FileHostLocks
from relay.core.ledger.changes import Lease, Release, TookOver
from relay.core.ledger.entry import decode, encode
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.workload import Workload
from storage.base import Ref, Store, open_store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, Toy, ToyPlugin
from tests.core.borrowing import Sharing
from tests.frozen.golden import PROJECT

DAY = 86_400.0
CPU = {"device": "cpu", "torch": "2.9.0"}
T4 = {"device": "cuda", "gpu": "Tesla T4", "torch": "2.9.0"}
H100 = {"device": "cuda", "gpu": "NVIDIA H100 80GB HBM3", "torch": "2.9.0"}
ENDS = (
    "target reached", "budget used", "asked to stop", "spot notice from gcp, 25 s left",
    "spot notice from aws, 118 s left; last upload did not fit", "terminated (SIGTERM)", "interrupted (SIGINT)",
    "bad data", "storage unreachable", "account trains another run", "last upload failed", "crashed", "failed",
    "interrupted", "pushed", "nothing left to push",
)  # fmt: skip
"""How sessions that only held the lease say that they ended."""


UNEVEN = "ü\u200b \x07東\u202e\U0001f0a1 "
"""Letters of one, two, and more bytes, and characters that are taken out of a text."""


@dataclass
class SharedToy(Sharing, Toy):
    """A toy that pins its configuration and whose checkpoints share a table."""


class SharingPlugin(ToyPlugin):
    """That toy as the application knows it."""

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: object = None, steps: int = 0
    ) -> Workload:
        plain = config.model_dump(mode="json")
        return SharedToy(seed=plain["seed"], pinned=plain, **self.made)


@dataclass
class Making:
    """A store, two machines, and a clock that can be moved on."""

    folder: Path
    offset_s: float = -60 * DAY
    desk: Desk = field(init=False)
    elsewhere: Desk = field(init=False)

    def __post_init__(self) -> None:
        environ = {"RELAY_STORE": (self.folder / "store").as_uri()}
        self.desk = Desk(self.folder / "here", environ)
        self.elsewhere = Desk(self.folder / "elsewhere", environ)

    def later(self, store: Store) -> Store:
        """The store, by the clock as it was moved on."""
        making = self

        class Later(Wrapper):
            def now(self) -> float:
                return self.inner.now() + making.offset_s

            def put(self, name: str, data: bytes | Path) -> Ref:
                return self._dated(name, self.inner.put(name, data))

            def put_if_absent(self, name: str, data: bytes) -> Ref:
                return self._dated(name, self.inner.put_if_absent(name, data))

            def _dated(self, name: str, ref: Ref) -> Ref:
                at = time.time() + making.offset_s
                os.utime(making.folder / "store" / name, (at, at))
                return ref

        return Later(store)

    def ledger(self, run: str) -> RunLedger:
        return RunLedger(self.later(open_store(self.desk.environ["RELAY_STORE"])), PROJECT, run, RealRuntime())

    def slot(self, run: str, ahead: int) -> Path:
        """The file of the slot so far ahead of a ledger's tail."""
        folder = self.folder / "store" / "runs" / PROJECT / run / "ledger"
        return folder / f"{len(list(folder.glob('*.json'))) - 1 + ahead:020d}.json"

    def train(self, target: int, *words: str, desk: Desk | None = None, code: int = 0, **made: Any) -> None:
        """A session of run `golden` with a toy made like that."""
        desk = desk or self.desk
        settings = {"environment": CPU, "path": "toy on cpu", **made}
        desk.plugin.made = settings
        every = ("--checkpoint-every", "5", "evaluation.every_commits=1")
        words = words if "--account" in words else (*words, "--account", "account_1")
        desk("run", "--run", "golden", "--new", "--target-steps", str(target), *every, *words, code=code)

    def hold(
        self, run: str, account: str, end: str | None, seconds: float, gpu: str | None = "cpu",
        took_over: TookOver | None = None, ledger: RunLedger | None = None, **lease: Any,
    ) -> str:  # fmt: skip
        """A session that holds the lease for so long and ends like that; None: never. Its id."""
        ledger, session = ledger or self.ledger(run), RealRuntime().token()
        change = Lease(target_steps=500, gpu=gpu, took_over=took_over, **lease)
        view = ledger.append("lease", lambda state: change, session=session, account=account)
        epoch = view.state.epoch
        self.offset_s += seconds
        if end is not None:
            release = Release(reason=end, seconds=seconds, next="account_2" if epoch % 3 == 0 else None)
            ledger.append("release", lambda state: release, session=session, account=account, epoch=epoch)
        return session


def accounts(making: Making) -> None:
    desk = making.desk
    desk("register", "account_1", "Ada's laptop")
    desk("register", "account_2", "José's Colab", "--zone", "Europe/Madrid", "--contact", "jose@example.org")
    desk("register", "account_3", "Ben's Kaggle", "--weekly-hours", "30", "--gpu", "P100")
    desk("register", "account_4", "Zoë's laptop", "--owner", "Zoë")
    desk("accounts", "edit", "account_3", "--label", "Ben's other Kaggle")
    desk("accounts", "rename", "account_2", "José's second Colab")
    desk("accounts", "mark", "account_2", "quota_exceeded")
    desk("accounts", "pause", "account_3")
    desk("accounts", "mark", "account_3", "ready")
    desk("accounts", "forget", "account_4")


def links(making: Making) -> None:
    """Exact, not exact, and unknown for several reasons; on a CPU and two GPUs."""
    making.train(10)
    making.train(20, "--account", "account_2", environment=T4, path="toy on T4")
    making.train(30, environment=T4, path="toy on T4")
    making.train(35, "--account", "account_2", environment=H100, path="toy on T4", impure=1)
    making.train(40, environment=T4, path="toy on T4")
    making.train(45)


def voids(making: Making) -> None:
    """One slot of rubbish; then rubbish and a forged entry, one after the other."""
    making.slot("golden", 1).write_bytes(b"this is no entry")
    making.train(50)
    valid = making.slot("golden", 0)
    number = int(valid.stem)
    making.slot("golden", 1).write_bytes(b"")
    forged = decode(valid.read_bytes(), MACHINE.kinds, number)
    state = {**forged.state, "step": 9_000}
    making.slot("golden", 1).write_bytes(encode(forged.model_copy(update={"seq": number + 2, "state": state})))
    making.train(55)


def failures(making: Making) -> None:
    """Two equal ones halt the run, three times over; different ones do not."""
    for code, made in (
        (65, {"nan_at": 57}), (1, {"crash": {58: ZeroDivisionError("x")}}), (1, {"crash": {56: MemoryError("x")}})
    ):  # fmt: skip
        making.train(70, code=code, **made)
        making.train(70, code=1, crash={57: KeyError("another failure, between the two equal ones")})
        making.train(70, code=code, **made)
        making.train(70, code=65)
        making.desk("resume", "--run", "golden", "--anyway")
    making.train(65)


def damage(making: Making) -> None:
    """The newest checkpoint is damaged: another machine rewinds; then one that has a copy sends it again."""
    for desk, target in ((making.elsewhere, 70), (making.desk, 80)):
        head = making.ledger("golden").read().state.head
        assert head is not None
        spoiled = making.folder / "store" / head.manifest.replace("manifest.json", "state.json")
        spoiled.write_bytes(b"x" + spoiled.read_bytes()[1:])
        making.train(target, desk=desk)


def rests(making: Making) -> None:
    desk = making.desk
    desk("runs", "archive", "golden")
    desk("runs", "unarchive", "golden")
    desk("runs", "archive", "golden", "--why", "Für später: wir warten auf die größere Karte 🂡 … " + "sehr " * 120)
    desk("runs", "unarchive", "golden")


def deaths(making: Making) -> None:
    """Sessions that never released: found dead on this machine, silent, and past their latest end."""
    session = making.hold("golden", "account_2", None, 3.0)
    locks = FileHostLocks(making.desk.folder / ".cache" / "trm-relay" / "locks")
    locks.hold(session)
    locks._held.pop(session).release()  # as if its process had ended
    making.train(85)
    making.hold("golden", "account_2", None, 2.0, gpu="T4", ttl_s=0.5)
    making.train(90, desk=making.elsewhere)
    making.hold("golden", "account_1", None, 0.0, gpu="H100 80GB HBM3", latest_end=making.ledger("golden").store.now())
    making.offset_s += 61.0
    making.train(95, "--account", "account_2", desk=making.elsewhere)
    making.hold("golden", "account_2", None, 5.0, ttl_s=0.5)
    time.sleep(0.6)
    making.desk("runs", "archive", "golden", "--why", "Its holder is gone.")
    making.desk("runs", "unarchive", "golden")


def history(making: Making) -> None:
    """So many sessions that links leave the state twice; over so many days that intervals do too."""
    kinds = cycle(("cpu", "T4", "H100 80GB HBM3", None, "A100-SXM4-40GB"))
    ends, holders = cycle(ENDS), cycle(("account_1", "account_2", "account_3"))
    ledger = making.ledger("golden")
    while (state := ledger.read().state).links_total < 153:
        making.offset_s += 0.21 * DAY
        session = state.links_total
        making.hold("golden", next(holders), next(ends), 1000.25 + session, gpu=next(kinds), ledger=ledger)
        if session % 10 == 0:
            noted = {"cause": "told\tagain", "text": f"Session {session}.\n" + UNEVEN * session, "step": state.step}
            ledger.append("incident", lambda _, noted=noted: noted, session="e" * 32, account=None)


def others(making: Making) -> None:
    """A fork, a run from weights, one whose checkpoints share a table, one that was deleted."""
    desk = making.desk
    desk.plugin.made = {"environment": CPU}
    desk("fork", "--run", "golden", "--to", "branch", "seed=1")
    desk.train(making.ledger("branch").read().state.step + 10, run="branch", account="account_2")
    (weights := making.folder / "step_700").write_bytes(b"w" * 11)
    desk("import", str(weights), "--run", "imported")
    desk.train(10, "load_checkpoint=" + str(weights), run="imported", account="account_1")
    sharing = Desk(making.folder / "sharing", desk.environ, SharingPlugin(made={"environment": T4, "table_every": 50}))
    for target in range(20, 140, 20):
        account = f"account_{1 + target // 20 % 2}"
        sharing.train(target, "--checkpoint-every", "50", "checkpoint.keep_last=2", run="shared", account=account)
        making.offset_s += 7300.0
    desk.train(20, run="gone", account="account_1")
    desk("runs", "archive", "gone")
    making.offset_s += 1.01 * DAY
    desk("runs", "delete", "gone", "--yes-delete", "gone")


def write(folder: Path) -> None:
    """Everything, into `folder`/store."""
    making = Making(folder)
    with (
        mock.patch.object(stores, "open_store", lambda url, **more: making.later(open_store(url, **more))),
        mock.patch.object(advice, "interpreter", lambda: "python"),
    ):
        for part in (accounts, links, voids, failures, damage, rests, deaths, history):
            part(making)
        making.train(105, "--account", "account_2")
        making.train(110)
        others(making)


def pack(store: Path, out: Path) -> None:
    """The store as one compressed file, the same for the same store."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        info.mtime = int(info.mtime)
        return info

    with tarfile.open(out, "w:xz", preset=9) as archive:
        archive.add(store, "store", filter=plain)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write(folder)
    pack(folder / "store", folder / "store.tar.xz")
    print(json.dumps(sizes(folder / "store", folder / "store.tar.xz")))


def sizes(store: Path, packed: Path) -> Mapping[str, int]:
    files = [path for path in store.rglob("*") if path.is_file()]
    return {
        "files": len(files), "bytes": sum(path.stat().st_size for path in files), "packed": packed.stat().st_size
    }  # fmt: skip


if __name__ == "__main__":
    main()
