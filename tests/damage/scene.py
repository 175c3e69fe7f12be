"""A desk and its store after whole sessions of several people, copied for each test that hurts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from relay.core.clock import RealRuntime
from relay.core.lease.heartbeat import request_stop
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.names import Names
from relay.core.runs.opening import passed
from storage.base import Store, open_store
from tests.app.cli import Desk, Result
from tests.core.toy import hash_of, state_at
from tests.damage.harms import Harm
from tests.rehash import held

PROJECT = "sudoku_pretrain_multiaccount"
NAMES, OTHER = Names(PROJECT, "hurt"), Names(PROJECT, "other")
BACKENDS = ("memory", "local")
CODES = {0, 65, 69, 73, 78}
"""Exit codes of status, report, verify and run on a damaged store (docs/contributing/damage.md)."""

_number = count()


class Picture:
    """Every stored object, and every file of the desk's `sync/`, by name. No dataclass: hypothesis would print it."""

    def __init__(self, store: dict[str, bytes], disk: dict[str, bytes]) -> None:
        self.store, self.disk = store, disk


def paint(folder: Path, **environ: str) -> Picture:
    """Run `hurt`: sessions to 10, 20 and 30 by two accounts. Run `other`, of another seed, to 20. `branch`: a fork.

    Heartbeats and a request to stop lie there as sessions leave them.
    """
    desk = desk_of(folder / "desk", "local")
    desk.environ |= environ
    for target, account in ((10, "account_1"), (20, "account_2"), (30, "account_1")):
        words = ("run", "--run", "hurt", "--account", account, "--target-steps", "30", "--until-step", str(target))
        desk(*words, "--checkpoint-every", "10", code=0 if target == 30 else 75)
    desk.train(20, "seed=2", "--checkpoint-every", "10", run="other", account="account_2")
    desk("fork", "--run", "hurt", "--to", "branch")
    store = open_store(desk.environ["RELAY_STORE"])
    store.put(NAMES.heartbeat(3), b'{"epoch":3,"format":1,"step":30}')
    request_stop(store, NAMES, 3, "dinner")
    sync = desk.folder / "sync"
    disk = {str(p.relative_to(sync)): p.read_bytes() for p in sync.rglob("*") if p.is_file() and p.suffix != ".log"}
    return Picture(content(store), disk)


def desk_of(folder: Path, backend: str) -> Desk:
    address = f"memory://damage-{next(_number)}" if backend == "memory" else (folder / "shared").as_uri()
    return Desk(folder, {"RELAY_STORE": address})


def content(store: Store) -> dict[str, bytes]:
    """Every object of a store."""
    return {stat.name: store.get(stat.ref) for stat in store.list("")}


def slot(names: Names, seq: int) -> str:
    return f"{names.ledger}{seq:020d}.json"


@dataclass
class Scene:
    """One copy of the picture."""

    desk: Desk
    store: Store
    picture: Picture

    @classmethod
    def of(cls, picture: Picture, folder: Path, backend: str) -> Scene:
        desk = desk_of(folder, backend)
        store = open_store(desk.environ["RELAY_STORE"])
        for name, data in picture.store.items():
            store.put(name, data)
        store.put(passed(store), b"{}")
        return cls(desk, store, picture)

    def with_disk(self) -> Scene:
        """The same machine trained the run before: its `sync/` is there."""
        for name, data in self.picture.disk.items():
            path = self.desk.folder / "sync" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self

    def harm(self, name: str, how: Harm) -> None:
        """Damage one object."""
        changed = how(self.store.get(self.store.ref(name)))
        if changed is None:
            self.store.delete(self.store.ref(name))
        else:
            self.store.put(name, changed)

    def command(self, *words: str, code: int | None = None) -> Result:
        """A command on the run. It must end with one paragraph and a code of the table, whatever the damage."""
        done = self.desk(words[0], "--run", "hurt", *words[1:], code=code)
        assert done.code in CODES, f"{words}: {done}"
        assert "Traceback" not in done.err and "bug in trm-relay" not in done.err, done.err
        return done

    def train(self, target: int = 40, *words: str, code: int | None = None) -> Result:
        """One more session, by an account of the run."""
        return self.command("run", "--account", "account_1", "--new-target", str(target), *words, code=code)

    def verify(self, code: int | None = None) -> dict[str, Any]:
        return dict(json.loads(self.command("verify", "--json", code=code).out))

    def state(self, run: str = "hurt") -> RunState:
        return RunLedger(self.store, PROJECT, run, RealRuntime()).read().state

    def incidents(self) -> Iterator[str]:
        return (f"{one.cause}: {one.text}" for one in self.state().incidents)

    def check_sound(self, before: dict[str, bytes]) -> RunState:
        """The state after a successful session: every step holds its own state, and nothing was deleted."""
        state = self.state()
        assert state.head is not None and state.head.key == state.retained[-1].key
        for one in state.undamaged:
            assert one.state_hash == hash_of(one.step, state_at(one.step)), one
        assert held(self.store, state.head) == state.head.state_hash
        self.check_kept(before)
        return state

    def check_kept(self, before: dict[str, bytes]) -> None:
        """Nothing was deleted but signs of sessions that are over, and nothing of the run overwritten."""
        after = content(self.store)
        swept = (NAMES.home + "heartbeat.", NAMES.home + "stop.")
        assert not [name for name in before if name not in after and not name.startswith(swept)]
        fixed = ("checkpoints/", NAMES.ledger, OTHER.ledger, "registry/ledger/")
        assert not [name for name in before if name.startswith(fixed) and after[name] != before[name]]
