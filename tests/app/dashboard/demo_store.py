"""Writes a plausible history of one run into a folder, entry by entry through the product's own ledger.

`python -m tests.app.dashboard.demo_store FOLDER` makes the store of the documentation's pictures.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from relay.app.machine.sampling import BUSY, GPU_MEMORY, HEAT, HOST_MEMORY, POWER
from relay.app.providers import shipped
from relay.core.checkpoint.retention import Keep, to_retire
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Commit, Lease, Noted, Release, Retire, Rewind, TookOver
from relay.core.ledger.frozen import NOTE
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.sessionreport import Made, SessionReport, encode
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.runs.opening import Pair, begin_run
from relay.people.accounts import Accounts
from relay.people.owners import Inference
from storage.base import Store, open_store
from storage.wrapper import Wrapper
from tests.core.making import QuietRuntime, id_of

PROJECT, RUN, SECOND = "sudoku_pretrain_multiaccount", "sudoku_rotation", "smaller_batch"
TARGET = 50_000
HOUR, DAY = 3600.0, 86_400.0
PEOPLE = (
    ("account_1", "John's Colab", "colab", "T4", 1_900),
    ("account_2", "Amal's Kaggle", "kaggle", "P100", 2_300),
    ("account_3", "Mei's lab PC", "local", "RTX 4090", 3_600),
    ("account_4", "Zoë's spot machine", "aws", "H100 80GB HBM3", 6_800),
    ("account_5", "Sam's Colab Pro", "colab", "L4", 2_700),
)
"""Id, label, provider, GPU, steps an hour."""


class Past(Wrapper):
    """A store whose owner sets its clock, which dates the entries."""

    def __init__(self, inner: Store, now: float) -> None:
        super().__init__(inner)
        self.clock = now

    def now(self) -> float:
        return self.clock


@dataclass
class Story:
    """A run that is narrated session by session."""

    store: Past
    target: int = TARGET
    every: int = 250
    people: tuple[tuple[str, str, str, str, int], ...] = PEOPLE
    run: str = RUN
    settings: dict[str, Any] = field(default_factory=lambda: {"seed": 1, "batch_size": 768})
    random: Random = field(default_factory=lambda: Random(7))
    ledger: RunLedger = field(init=False)
    epoch: int = 0
    session: str = ""
    account: str = ""

    def __post_init__(self) -> None:
        runtime = QuietRuntime(5)
        stores = Pair(self.store, self.store, runtime, id_of(9))
        begin_run(stores, PROJECT, self.run, {"task": "sudoku", **self.settings}, init=True)
        self.ledger = RunLedger(self.store, PROJECT, self.run, runtime)
        known = Accounts(stores.registry(), shipped())
        for account, label, provider, gpu, _ in self.people:
            owner = Inference(owner=label, owner_from="label", provider=provider, provider_from="label")
            if known.find(account) is None:
                known.register(account, label, owner, gpu=gpu, weekly_hours=20.0)

    @property
    def state(self) -> RunState:
        return self.ledger.read().state

    def lease(self, number: int, ttl_s: float = 180.0) -> View:
        """A person of the list takes the lease now, from a holder that fell silent."""
        holder = self.state.holder
        silent = TookOver(epoch=holder.epoch, reason="no sign of life", seconds=2000.0) if holder else None
        self.account, _, _, gpu, _ = self.people[number]
        self.session = id_of(1000 + self.state.epoch)
        change = Lease(
            ttl_s=ttl_s, target_steps=self.target, took_over=silent, gpu=gpu, latest_end=self.store.clock + HOUR
        )
        view = self.ledger.append("lease", lambda _: change, session=self.session, account=self.account)
        self.epoch = view.state.epoch
        return view

    def append(self, kind: str, change: Any) -> View:
        return self.ledger.append(kind, lambda _: change, session=self.session, account=self.account, epoch=self.epoch)

    def commit(self, step: int, certified: str | None = None, metric: float | None = None) -> View:
        """A checkpoint at a step, as of the store's clock."""
        state = self.state
        since = state.holder.since if state.holder else self.store.clock
        manifest = self.ledger.names.manifest(step, self.epoch)
        made = Checkpoint(
            step=step,
            epoch=self.epoch,
            manifest=manifest,
            ref=manifest,
            sha256=digest(manifest.encode()),
            state_hash=digest(dumps({"step": step, "epoch": self.epoch})),
            bytes=81_300_000,
            metric=metric,
        )
        seconds = max(0.0, self.store.clock - since)
        change = Commit(checkpoint=made, certified=certified, seconds=seconds, metrics=self.metrics(step))
        view = self.append("commit", change)
        if going := to_retire(view.state, Keep(last=8, every=5_000)):
            view = self.append("retire", Retire(retire=going, collected=tuple(r.key for r in view.state.retired)))
        return view

    def metrics(self, step: int) -> dict[str, float]:
        """A curve that falls and one that rises, with a little noise."""
        noise = 1 + 0.06 * (self.random.random() - 0.5)
        number = next(place for place, person in enumerate(self.people) if person[0] == self.account)
        right = max(0.0, 0.86 * (1 - math.exp(-max(0, step - 2_000) / 14_000)))
        warm = min(1.0, step / 2_000)
        return {
            "lm_loss": (0.12 + 1.3 * math.exp(-step / 9_000)) * noise,
            "q_halt_loss": (0.03 + 0.25 * math.exp(-step / 12_000)) * noise,
            "exact_accuracy": min(1.0, right * noise),
            "accuracy": min(1.0, (0.45 + 0.53 * (1 - math.exp(-step / 11_000))) * (1 + 0.01 * (noise - 1))),
            "lr": 1e-4 * warm,
            "goodput": 0.87,
            "upload_s": 9.5,
            "stall_ms": 41.0,
            BUSY: min(1000.0, 960.0 * noise),
            GPU_MEMORY: (5.1 + 0.2 * number) * 1e9,
            POWER: (68.0, 190.0, 310.0, 540.0, 70.0)[number] * noise,
            HEAT: 58.0 + 4 * number + 40 * (noise - 1),
            HOST_MEMORY: (6.0 + 3 * number) * 1e9 * noise,
        }

    def release(self, reason: str = "budget used", proposed: str | None = None) -> View:
        holder = self.state.holder
        assert holder
        return self.append("release", Release(reason=reason, next=proposed, seconds=self.store.clock - holder.since))

    def note(self, text: str) -> None:
        """A person's remark."""
        self.append("incident", Noted(cause=NOTE, text=text, step=self.state.step))

    def report(self) -> None:
        """The files of the session that has just ended."""
        state = self.state
        link = state.links[-1]
        upload = 40 + 30 * self.random.random()
        phases = {"import": 9.0, "prepare": 14.0, "restore": 31.0, "compile": 45.0, "evaluate": 60.0, "upload": upload}
        wall = link.seconds + 30
        phases["train"] = max(1.0, wall - sum(phases.values()) - 12)
        phases["other"] = max(0.0, wall - sum(phases.values()))
        made = Made(step=link.to_step, state_hash=state.head.state_hash, bytes=81_300_000) if state.head else None
        told = SessionReport(
            project=PROJECT,
            run=self.run,
            run_id=state.run_id,
            epoch=link.epoch,
            account=link.account,
            gpu=link.gpu,
            config_hash=state.config_hash,
            started=link.started,
            wall_s=wall,
            lease_s=link.seconds,
            phases=phases,
            from_step=link.from_step,
            to_step=link.to_step,
            goodput=round(min(1.0, phases["train"] / wall), 3),
            checkpoints=(made,) if made else (),
            commits=link.commits,
            certified=link.certified,
            exit_code=75,
            end=link.end,
            at_risk_s=120.0,
        )
        self.store.put(self.ledger.names.session(link.epoch), encode(told))

    def train(
        self, number: int, seconds: float, end: str = "budget used", since_lease: bool = True, note: str = ""
    ) -> None:
        """One session of that length; an empty `end` is a kill."""
        if since_lease:
            self.lease(number)
        if note:
            self.note(note)
        pace = self.people[number][4] * (0.94 + 0.12 * self.random.random())
        began, start, step = self.store.clock + 120, self.state.step, self.state.step
        certified = ("exact" if self.random.random() < 0.9 else "unknown") if self.epoch > 1 else None
        while step < self.target and (step + self.every - start) / pace * HOUR <= seconds - 240:
            step += self.every
            self.store.clock = began + (step - start) / pace * HOUR
            right = self.metrics(step)["exact_accuracy"] * 0.97 if step % 1_000 == 0 else None
            self.commit(step, certified, right)
            certified = None
        if not end:
            return
        self.store.clock = began - 120 + seconds
        self.release("target reached" if step >= self.target else end, self.people[(number + 1) % len(self.people)][0])
        self.report()

    def rewind(self, number: int, steps: int) -> None:
        """A session finds the newest checkpoints damaged and goes back at least so many steps."""
        self.lease(number)
        state = self.state
        bad = [c for c in state.undamaged if c.step > state.step - steps]
        to = next(c for c in reversed(state.undamaged) if c.step <= state.step - steps)
        text = f"step_{state.step}: 2 files fail their SHA-256; going back to step {to.step}."
        self.append("rewind", Rewind(damaged=tuple(c.key for c in bad), to=to.key, evidence=text))


def tell(folder: Path, now: float, days: float = 12.0, every: int = 250, most: int = 200) -> Story:
    """At most `most` sessions up to `now`, and one that still trains."""
    folder.mkdir(parents=True, exist_ok=True)
    story = Story(Past(open_store(folder.as_uri()), now - days * DAY), every=every)
    minutes = {0: 52, 1: 75, 2: 60, 3: 25, 4: 50}
    turn = 0
    while turn < most and story.store.clock < now - 0.12 * DAY and story.state.step < TARGET - 9_000:
        number = turn % len(PEOPLE)
        if turn == 6:
            story.rewind(number, 2 * every)
            story.train(number, minutes[number] * 60, since_lease=False)
        elif turn in (4, 13):
            story.train(number, minutes[number] * 60, end="")
            story.store.clock += 900
        else:
            story.train(
                number,
                minutes[number] * 60 * (0.6 if turn % 3 else 0.35),
                end="asked to stop" if turn == 9 else "budget used",
                note="driver updated before this session" if turn == 3 else "",
            )
        story.store.clock += (0.1 + story.random.random() * 1.3) * 8 * HOUR
        turn += 1
    story.store.clock = now - 1_100
    story.lease(2, ttl_s=7_200.0)
    for back in (800, 500, 200):
        story.store.clock = now - back
        story.commit(story.state.step + every, "exact" if back == 800 else None)
    story.append(
        "incident",
        Noted(cause="recomputed", text="Step bits differ from an earlier computation.", step=story.state.step),
    )
    story.store.clock = now
    return story


def second(story: Story, now: float) -> None:
    """Another run of the same store, with other settings."""
    other = Story(story.store, target=8_000, every=500, run=SECOND, settings={"seed": 2, "batch_size": 64})
    story.store.clock = now - 2 * DAY
    for number in (0, 3):
        other.train(number, 50 * 60)
        story.store.clock += 3 * HOUR
    story.store.clock = now


if __name__ == "__main__":
    began = time.time()
    made = tell(Path(sys.argv[1]), time.time())
    print(f"{made.state.step} steps, {made.state.links_total} sessions, {time.time() - began:.1f} s")
