"""The command line in this process, on a store in a temporary folder, with the toy in place of a model."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import pytest
from pydantic import BaseModel, ConfigDict
from typer import testing
from typer.testing import CliRunner

from relay.app.cli import app
from relay.app.commands import stores
from relay.app.commands.common import App
from relay.app.commands.sessions import opening, running
from relay.app.machine.cards import Card
from relay.app.messages import events
from relay.app.models.plugin import Cost, Examples, Finding, ForeignCommand, History, Memory, Models, OnCard, Statement
from relay.app.models.puzzletext import SolvedPuzzles
from relay.app.terminal import mishaps
from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About, Forecast
from relay.core.clock import RealRuntime
from relay.core.errors import BadConfig, BadData
from relay.core.events import SessionEvent
from relay.core.ledger.ledger import RunLedger
from relay.core.runs.sources import Source
from relay.core.session.context import Outcome, Plan
from relay.core.settings.config import flat
from relay.core.workload import Kernels, Measures, Workload
from storage.base import Store, open_store
from storage.retry import RetryStore
from tests.app.puzzles import Solved
from tests.core.toy import MEASURES, ToyWorkload
from tests.rehash import held

testing._get_command = cache(testing._get_command)
"""Putting the command line together takes longer than most commands: once is enough."""


PROJECT = "sudoku_pretrain_multiaccount"
"""Of every run here."""
ADVISED = re.compile(r"`python rotate_accounts\.py ([^`]*)`|(?:: |^ *)python rotate_accounts\.py (.*)$", re.MULTILINE)
"""A command that a text tells people to type: in backquotes, or to the end of its line."""
E = TypeVar("E")


class ToyData(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    train: str = "generated"


class ToyConfig(BaseModel):
    """A toy's pinned configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    task: str = "sudoku4"
    seed: int = 1
    batch_size: int = 4
    data: ToyData = ToyData()


@dataclass
class Toy(ToyWorkload):
    """A toy that pins its whole configuration."""

    pinned: dict[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        return self.pinned


PUBLISHED = Published("a toy", ("toy",), "its own names")


@dataclass
class ToyPlugin:
    """The toy as the application knows it."""

    model: type[BaseModel] = ToyConfig
    default_task: str = "sudoku4"
    measures: Measures = MEASURES
    published: Published = PUBLISHED
    content: tuple[str, ...] = ()
    carried: dict[str, str] = field(default_factory=dict)
    local = ()
    shorthands: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"task": ("sudoku4", "sudoku")})
    made: dict[str, Any] = field(default_factory=dict)
    """Extra arguments of every toy built."""
    compiled: Kernels | None = None

    def preset(self, task: str) -> ToyConfig:
        if task not in ("sudoku4", "sudoku"):
            raise BadConfig(f"There is no task {task!r}. Did you mean task=sudoku4?")
        return ToyConfig(task=task)

    def defaults(self, task: str) -> Mapping[str, str]:
        return {"project": PROJECT, "run": "sudoku_rotation"}

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        return overrides

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        return {}

    def target(self, config: BaseModel) -> int:
        return 40

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        return {"task": pinned["task"]}

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        return dict(flat(pinned))

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        return {}

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> BaseModel:
        return ToyConfig.model_validate(pinned)

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        return pinned | changes

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> None:
        return None

    def with_target(self, config: BaseModel, target: int) -> BaseModel:
        return config

    def schedule_end(self, config: BaseModel) -> int | None:
        return None

    def publish(self, workload: Workload, folder: Path) -> None:
        pass

    def glance(self, config: BaseModel) -> Sequence[str]:
        return ()

    def device(self, wanted: str) -> str:
        return "cpu" if wanted == "auto" else wanted

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        return max(n for n in range(1, most + 1) if config.model_dump()["batch_size"] % n == 0)

    def fingerprint(self, config: BaseModel, device: str) -> Mapping[str, str]:
        return Toy(**self.made).fingerprint()

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        return "NO GPU: this is slow" if config.model_dump()["task"] == "sudoku" else None

    def prepare(
        self, config: BaseModel, data_root: Path, folder: Path | None = None, variants: int = 0, fetching: object = None
    ) -> Sequence[str]:
        train = config.model_dump()["data"]["train"]
        if train != "generated" and not Path(train).is_file():
            raise BadData(f"{train} does not exist. Check the path in data.train.")
        return ["train: 4 puzzles"]

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        plain = config.model_dump()
        live = {} if workload is None else {"parameters": 4, "rows": 100, "path": "toy"}
        return About(f"task {plain['task']}", plain["batch_size"], plain["data"]["train"], **live)

    def cost(self, config: BaseModel) -> Cost:
        return Cost(flops=8.0)

    def memory(self, config: BaseModel, device: str) -> Memory:
        return Memory(whole=32, least=32)

    def on_card(self, config: BaseModel, capability: tuple[int, int]) -> OnCard:
        return OnCard("plain", lambda rows: int(1e9 * rows))

    def forecast(
        self,
        config: BaseModel,
        device: str,
        steps: int | None,
        workload: Workload | None = None,
        processes: int = 1,
    ) -> Forecast | None:
        return None

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: object = None, steps: int = 0
    ) -> Workload:
        self.prepare(config, data_root)
        plain = config.model_dump(mode="json")
        return Toy(seed=plain["seed"], pinned=plain, **self.made)

    def check_memory(self, workload: Workload) -> None:
        return

    def remarks(self, workload: Workload) -> Sequence[str]:
        return ()

    def timings(self, workload: Workload) -> Mapping[str, float]:
        return {"compile": 0.0}

    def kernels(self, workload: Workload) -> Kernels | None:
        return self.compiled

    def rows(self, workload: Workload, split: str) -> int:
        return 100

    def statement(self, workload: Workload, history: History) -> Statement | None:
        return None

    def worth(self, findings: Sequence[Finding]) -> Statement | None:
        return None

    def answers(self, workload: Workload) -> bytes | None:
        return None

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        made = tuple(Solved(row, wrong=(3, 1, 0) if row % 2 else (2, 2, 2)) for row in rows)
        return SolvedPuzzles("raw" if raw else "averaged", made)

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> Sequence[str]:
        out.mkdir(parents=True)
        copied = out / ("raw.json" if raw else "ema.json")
        copied.write_text((checkpoint / "ema.json").read_text())
        return [str(copied)]

    def companions(
        self, pinned: dict[str, Any], config: Callable[[], BaseModel], data_root: Path
    ) -> Mapping[str, Callable[[], bytes]]:
        return {}

    def start_from(self, workload: Workload, weights: Path) -> Sequence[str]:
        if not weights.is_file():
            raise BadData(f"{weights} does not exist.")
        workload.start()
        assert isinstance(workload, Toy)
        workload.values = (len(weights.read_bytes()), *workload.values[1:])
        return ["noted"]


def wrap_stores(monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Store], Store]) -> None:
    """From now on every store a command opens is `wrap` around the real one."""
    monkeypatch.setattr(stores, "open_store", lambda url, **more: wrap(open_store(url, **more)))


def hurry(patch: pytest.MonkeyPatch) -> None:
    """From now on commands here wait 10 ms at most at a time. Without any wait they would spin during an upload."""
    patch.setattr(RealRuntime, "sleep", lambda self, seconds: time.sleep(min(seconds, 0.01)))


def impatient(patch: pytest.MonkeyPatch) -> None:
    """From now on a session's end waits a second at most for its last upload."""
    of = Plan.of
    patch.setattr(opening, "Plan", SimpleNamespace(of=lambda *a, **more: replace(of(*a, **more), patience_s=1.0)))


@dataclass
class Result:
    """The result of one command."""

    code: int
    out: str
    err: str
    errors: list[Exception] = field(default_factory=list, repr=False)
    """The errors that it explained, in their order."""
    events: list[SessionEvent] = field(default_factory=list, repr=False)
    """The events of its session."""

    @property
    def json(self) -> dict[str, Any]:
        """The one document on stdout."""
        return dict(json.loads(self.out))

    def raised(self, kind: type[E]) -> E:
        """The error that ended the command, of exactly this type."""
        assert self.errors and type(self.errors[-1]) is kind, f"{self.errors}: {self.err}"
        return self.errors[-1]

    def event(self, kind: type[E]) -> E:
        """The only event of this type."""
        (found,) = [event for event in self.events if isinstance(event, kind)]
        return found

    def advised(self, *verbs: str) -> list[list[str]]:
        """The commands of these verbs that the output tells people to type."""
        return advised(self.out + self.err, *verbs)


def advised(text: str, *verbs: str) -> list[list[str]]:
    """The words after `rotate_accounts.py` of every command that a text tells people to type, which must parse."""
    found = [shlex.split(quoted or last) for quoted, last in dict.fromkeys(ADVISED.findall(text))]
    for words in found:
        assert not words[-1].endswith((".", ",")), f"a sentence goes on behind the command: {words}"
        parse(words)
    return [words for words in found if words[: len(verbs)] == list(verbs)]


def parse(words: Sequence[str]) -> None:
    """Raises the parser's own error if the command line does not accept these words. Runs nothing."""
    command, (name, *rest) = testing._get_command(app).commands[words[0]], words
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, list(rest))


@contextmanager
def _noting(module: Any, name: str, noted: list[Any]) -> Iterator[None]:
    """Notes the first argument of every call of a function of that module."""
    real = getattr(module, name)

    def noting(first: Any, *more: Any) -> Any:
        noted.append(first)
        return real(first, *more)

    with mock.patch.object(module, name, noting):
        yield


@dataclass
class Desk:
    """One person's machine: a working folder, an environment, a command line."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    plugin: ToyPlugin = field(default_factory=ToyPlugin)
    cards: Sequence[Card] = ()
    """The machine's GPUs."""
    models: Models | None = None
    """All models, if a task may choose another one than `plugin`."""
    handed_on: dict[str, str] = field(default_factory=dict)
    """What was found among a notebook's secrets."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, *words: str, code: int | None = 0, **environ: str) -> Result:
        """Run a command; fails the test on another exit code."""
        surroundings = {"HOME": str(self.folder), "RELAY_EPHEMERAL": "1", **self.environ, **environ}
        export = self.handed_on.update
        here = App(
            self.plugin,
            self.models,
            environ=surroundings,
            cwd=self.folder,
            root=self.folder,
            export=export,
            cards=lambda: self.cards,
        )
        errors: list[Exception] = []
        happened: list[SessionEvent] = []
        ends: list[Outcome] = []
        noting = (_noting(mishaps, "paragraph", errors), _noting(events, "line", happened))
        with noting[0], noting[1], _noting(running, "message", ends):
            done = CliRunner().invoke(app, list(words), obj=here, env={"HOME": str(self.folder)})
        errors += [end.failure for end in ends if end.failure]
        result = Result(done.exit_code, done.stdout, done.stderr, errors, happened)
        assert code is None or result.code == code, f"{words}: {result}\n{done.exception!r}"
        return result

    def train(self, target: int, *words: str, run: str = "r", account: str = "account_1", code: int = 0) -> Result:
        """One session, with a target of its own, also a lower one than the run's."""
        asked = ("run", "--run", run, "--account", account, "--new-target", str(target), "--new", *words)
        return self(*asked, code=code)

    @contextmanager
    def credentials(self) -> Iterator[None]:
        """Around what opens a store here."""
        yield

    def held(self, run: str = "r") -> str:
        """Hash of the head's state, from its files in the store."""
        with self.credentials():
            address = self.environ.get("RELAY_STORE", (self.folder / "relay_store").as_uri())
            store = RetryStore(open_store(address.partition("#")[0]), sleep=lambda _: None, jitter=lambda: 0.0)
            return held(store, RunLedger(store, PROJECT, run, RealRuntime()).read().state.head)

    def status(self, run: str = "r") -> dict[str, Any]:
        """relay.status/1."""
        return self("status", "--run", run, "--json").json
