"""A session for a user's own loop (`relay.session`): track the parts, iterate, log. Everything else happens between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from relay.core.errors import UsageError
from relay.core.lease.signals import unheard
from relay.core.runs.ownloop import measures_of
from relay.core.session.context import Context, Outcome
from relay.core.session.driven import DrivenSession
from relay.core.workload import Workload
from relay.torch.carried import Carried
from relay.torch.loading import Loader, NoLoader, loader_of
from relay.torch.loop import CPU, Arrived, Evaluate, LoopWorkload, finite_numbers, refuse_name, script_digest
from relay.torch.peers import Team
from relay.torch.ranks import Follower, Leader, compare, leading, same_parts, team_here
from relay.torch.tracked import Part, parts_of

MOST_METRICS = 20
"""Of a step; a commit has room for a few more, which the relay measures itself."""


class Misused(UsageError):
    """The session was called in another order than `with`, `track`, one loop. `call`: what was called."""

    def __init__(self, call: str, why: str) -> None:
        super().__init__(f"{call}: {why}.")
        self.call, self.why = call, why


class Opening(AbstractContextManager[None], Protocol):
    """Settings, stores and account of the session, from the application. Its block handles signals."""

    pinned: dict[str, Any]
    deterministic: bool
    about: dict[str, Any]
    """The request, besides the pinned configuration."""

    def context(self, workload: Workload) -> Context:
        """Open or begin the run. Raises BadConfig, PolicyRefused, BadData, StorageUnreachable."""
        ...

    def tell(self, line: str) -> None:
        """Print one line."""
        ...

    def over(self, outcome: Outcome | None) -> None:
        """The session is over."""
        ...


class Tracing(Protocol):
    """Sees every step."""

    stop: int

    def step(self, workload: LoopWorkload, batch: Any) -> None: ...


class Session:
    """One session of a run, as a context manager."""

    _open: Session | None = None
    """The session of this process."""

    def __init__(self, opening: Opening, trace: Tracing | None = None) -> None:
        """`trace`: sees every step, while a script is checked."""
        self._opening, self._trace = opening, trace
        self._team: Team | None = None
        self._leads = True
        """Whether this process has the session: it prints, commits, and hears signals."""
        self._around: AbstractContextManager[None] = opening
        self._driven: DrivenSession | Follower | None = None
        self._workload: LoopWorkload | None = None
        self._looping = self._over = False
        self._process = 0
        """The process that opened it."""
        self._evaluation: tuple[Evaluate | None, int] = None, 0
        self._metrics: dict[str, Any] = {}
        self._warned = False

    def __enter__(self) -> Session:
        if Session._open is not None:
            raise Misused("session", "another session is open in this process")
        if self._over:
            raise Misused("session", "it is over; make a new one")
        self._team = team_here()
        with ExitStack() as undone:
            if self._team is not None:
                self._opening.pinned["processes"] = self._team.size
                self._leads = self._team.rank == 0
                undone.callback(self._team.close)
            if not self._leads:
                self._around, self._trace = unheard(), None
            with leading(self._team):
                self._around.__enter__()
            undone.pop_all()
        Session._open, self._process = self, os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            return  # a forked child, which has no session
        with ExitStack() as last:
            last.callback(self._around.__exit__, kind, error, trace)
            if self._team is not None:
                last.callback(self._team.close)
            if self._leads:
                last.callback(lambda: self._opening.over(self.outcome))
            self._over, Session._open = True, None
            if self._driven is not None:
                self._driven.close(error)

    def track(self, **parts: Any) -> None:
        """Name the things that the loop changes: modules, optimizers, tensors, generators, anything with state_dict and
        load_state_dict. Takes the lease and loads the newest checkpoint into them, in place.

        Raises BadPart and DoesNotFit (78), LeaseHeld, PolicyRefused, BadConfig, BadData, StorageUnreachable.
        """
        self._refuse_second("track")
        if not parts:
            raise Misused("track", "there is nothing to track")
        if self._workload is None:
            self._begin(lambda: parts_of(parts))
            return
        self._workload.attach(parts_of(parts))
        if self._team is not None:
            same_parts(self._team, self._workload.forms())

    def fetch(self, device: torch.device) -> Arrived | None:
        """For a trainer that asks for the step before its parts exist: take the lease and fetch the newest checkpoint,
        None without one. `track` loads it later, into parts on that device.

        Raises LeaseHeld, PolicyRefused, BadConfig, BadData, StorageUnreachable.
        """
        self._refuse_second("fetch")
        self._begin(lambda: [], device)
        assert self._workload is not None
        return self._workload.arrived

    def reload(self) -> None:
        """Load once more what `fetch` brought: a trainer made a step where none was due."""
        if self._workload is not None:
            self._workload.reload()

    def _refuse_second(self, call: str) -> None:
        if Session._open is not self:
            raise Misused(call, "the session is not open")
        if self._workload is not None and (self._workload.parts or call == "fetch"):
            raise Misused(call, "the parts are tracked already" if not self._looping else "the loop has begun")

    def _begin(self, make: Callable[[], list[Part]], device: torch.device = CPU) -> None:
        with leading(self._team):
            if self._opening.deterministic:
                deterministic()
            pinned = self._opening.pinned
            measures, script = measures_of(pinned), script_digest()
            workload = LoopWorkload(make(), pinned, script, measures, self._team, expected=device)
            self._workload, self._driven = workload, self._driver(workload)
        self._driven.open()

    def _driver(self, workload: LoopWorkload) -> DrivenSession | Follower:
        """The driver of this process's session."""
        team, opening = self._team, self._opening
        if team is None:
            return DrivenSession(opening.context(cast(Workload, workload)))
        about = {**opening.about, **opening.pinned, "script": workload.script, "tracked": workload.forms()}
        if not self._leads:
            return Follower(team, workload, about)
        compare(team, about)
        return Leader(opening.context(cast(Workload, workload)), team)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of the loader, epoch after epoch, to the session's end. Each iteration is one optimizer step.

        Raises BadLoader (78) for a loader whose position cannot be saved.
        """
        return self._loop("batches", loader_of(loader))

    def steps(self) -> Iterator[int]:
        """For a loop without a loader: the number of steps done before this one."""
        return (self.step for _ in self._loop("steps", NoLoader()))

    def log(self, **metrics: Any) -> None:
        """Metrics of this step, as numbers or tensors of one. They are read when they are reported.

        Raises BadMetric (78) for a name that is not ASCII.
        """
        for name, value in metrics.items():
            if name in self._metrics or len(self._metrics) < MOST_METRICS:
                refuse_name(name)
                self._metrics[name] = value.detach() if isinstance(value, Tensor) else value
            elif self._leads and not self._warned:
                names = [name for name in metrics if name not in self._metrics]
                self._opening.tell(f"METRICS: a step has room for {MOST_METRICS}. Left out: {', '.join(names)}")
                self._warned = True

    def evaluate(self, fn: Evaluate, every_commits: int = 4) -> None:
        """Call `fn` at every nth commit, on exactly the committed state; it returns metrics.

        Random streams and training modes are restored after it.
        """
        if self._looping:
            raise Misused("evaluate", "the loop has begun")
        if every_commits < 1:
            raise Misused("evaluate", "every_commits must be at least 1")
        self._evaluation = fn, every_commits

    def commit(self) -> None:
        """Commit after this step."""
        self._required("commit").commit()

    def stop(self) -> None:
        """End the session as planned after this step."""
        self._required("stop").stop("stop() in the script")

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return 0 if self._workload is None else self._workload.step

    @property
    def target_steps(self) -> int | None:
        """The run's target, which another session may have raised; None without the lease."""
        return self._driven.target_steps if self._driven else None

    @property
    def epoch(self) -> int:
        """Epochs of the loader done."""
        return self._workload.loader.epoch if self._workload else 0

    @property
    def certified(self) -> str:
        """Whether the first step was the one that the session before promised: exact, not-exact or unknown."""
        return self._driven.certified if self._driven else "unknown"

    @property
    def ending(self) -> bool:
        """Whether this iteration is the last one, or the one before it."""
        return self._driven is not None and self._driven.ending

    @property
    def reporting(self) -> bool:
        """Whether the metrics of the present step are reported; those of other steps need not be logged."""
        return self._driven is not None and self._driven.reports(self.step + 1)

    @property
    def outcome(self) -> Outcome | None:
        """How the session ended, with its `exit_code`; None before."""
        return self._driven.outcome if self._driven else None

    def tell(self, line: str) -> None:
        """Print one line as the session prints its own; only in the first process."""
        if self._leads:
            self._opening.tell(line)

    def _required(self, call: str) -> DrivenSession | Follower:
        if self._driven is None or self._over:
            raise Misused(call, "track comes first, in an open session" if self._driven is None else "it is over")
        return self._driven

    def _loop(self, call: str, loader: Loader) -> Iterator[Any]:
        driven = self._required(call)
        if self._looping:
            raise Misused(
                call, "the loop was started already; it goes from epoch to epoch by itself, without another around"
            )
        assert self._workload is not None
        self._looping = True
        return self._iterate(driven, self._workload, loader)

    def _iterate(self, driven: DrivenSession | Follower, workload: LoopWorkload, loader: Loader) -> Iterator[Any]:
        if driven.ended:
            return
        workload.begin(loader)
        workload.evaluation, every = self._evaluation
        driven.begin(every)
        carried = Carried()
        for batch in loader.batches() if not driven.ended else ():
            yield batch
            workload.step += 1
            carried.refuse()
            if self._trace is not None:
                self._trace.step(workload, batch)
                if workload.step == self._trace.stop:
                    self.stop()
            driven.after_step(self._read)
            if driven.ended:
                return
            if workload.snapped in (None, workload.step):
                carried.watch(workload.parts)
                workload.snapped = workload.step

    def _read(self) -> Mapping[str, float]:
        return finite_numbers(self._metrics)


def deterministic() -> None:
    """Torch's own switches for deterministic results, which `deterministic=True` asks for."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
