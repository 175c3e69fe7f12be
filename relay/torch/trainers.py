"""The common half of the trainers' callbacks: a session that takes the lease first and gets its parts later.

A trainer asks for the step before its optimizer exists, and makes its steps itself. So the callback fetches the newest
checkpoint, tells the trainer its step, and loads the rest once everything exists. From then on it reports each step.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import torch

import relay
from relay.core.errors import BadConfig
from relay.core.session.context import Outcome
from relay.torch.loop import CPU, Arrived
from relay.torch.ownloop import MOST_METRICS, Session
from storage.wording import counted


class Unsupported(BadConfig):
    """A release of a trainer's package that was not tested. `package`, `found`: which."""

    def __init__(self, package: str, found: str, oldest: str, below: str) -> None:
        super().__init__(f"{package} {found} is not supported: install {package}>={oldest},<{below}.")
        self.package, self.found = package, found


class NotForTrainer(BadConfig):
    """A trainer's setting that the relay cannot share. `setting`: its name."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}.")
        self.setting = setting


class NotResumed(BadConfig):
    """The trainer begins at another step than the run. `asked`: the argument that it lacked."""

    def __init__(self, begins: int, step: int, asked: str) -> None:
        super().__init__(f"The trainer begins at step {begins:,}, and the run is at step {step:,}. Pass {asked}.")
        self.begins, self.step, self.asked = begins, step, asked


class StopsEarly(BadConfig):
    """The trainer would stop before the run's target."""

    def __init__(self, setting: str, last: int, target: int) -> None:
        super().__init__(
            f"{setting} ends training at step {last:,}, before the run's target of {counted(target, 'step')}."
        )
        self.setting, self.last, self.target = setting, last, target


class TrainerStopped(Exception):
    """The trainer ended by itself: it makes no further step whose digest could certify the last commit."""


def refuse_unsupported(package: str, oldest: str, below: str) -> None:
    """Raises Unsupported (78) for a release outside [oldest, below)."""
    found = version(package)
    if not _numbers(oldest) <= _numbers(found) < _numbers(below):
        raise Unsupported(package, found, oldest, below)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


class TrainerSession:
    """One session of a trainer.

    open → the trainer makes its parts → attach → step, before each of its steps and after the last → close.
    """

    _newest: TrainerSession | None = None

    def __init__(self, run: str, options: Mapping[str, Any]) -> None:
        """options: of `relay.session`."""
        self._run, self._options = run, dict(options)
        self._session: Session | None = None
        self._steps: Iterator[int] | None = None
        self._closed = self._idle = False
        """Idle: the target was reached before, and the state only loaded."""
        self.arrived: Arrived | None = None

    @property
    def session(self) -> Session | None:
        """None before `open`."""
        return self._session

    @property
    def outcome(self) -> Outcome | None:
        """How the session ended; None before."""
        return self._session.outcome if self._session else None

    @property
    def ended(self) -> bool:
        """Whether no step is due."""
        return self.outcome is not None

    def open(self, settings: Mapping[str, Any], device: torch.device = CPU) -> Arrived | None:
        """Take the lease and fetch the newest checkpoint, None without one. settings: of the trainer, to be pinned.

        An earlier session of this process that was interrupted ends first.
        """
        if self._session is None or self._closed:
            if TrainerSession._newest is not None:
                TrainerSession._newest.close(None)
            config = {**(self._options.get("config") or {}), "trainer": dict(settings)}
            opened = relay.session(self._run, **{**self._options, "config": config})
            opened.__enter__()
            self._session, self._steps, self._closed, TrainerSession._newest = opened, None, False, self
            atexit.register(self._at_exit)
            with self._ending():
                self.arrived = opened.fetch(device)
        return self.arrived

    def attach(self, begins: int, last: int, of: str, asked: str, parts: Mapping[str, Any]) -> None:
        """Load the checkpoint into the parts. begins, last: the trainer's first step and its last, by setting `of`.

        Raises NotResumed, StopsEarly, BadPart, DoesNotFit (78).
        """
        session = self._opened()
        with self._ending():
            if begins != session.step:
                raise NotResumed(begins, session.step, asked)
            if session.target_steps is not None and last < session.target_steps:
                raise StopsEarly(of, last, session.target_steps)
            session.track(**parts)
            self._steps, self._idle = session.steps(), self.ended

    def step(self) -> bool:
        """Call before each step of the trainer and after its last one. False: the session is over, no step is due."""
        assert self._steps is not None, "attach comes first"
        if self.ended:
            return False
        with self._ending():
            return next(self._steps, None) is not None

    def reached(self, step: int) -> bool:
        """Whether the trainer has made the run's last step."""
        target = self._opened().target_steps
        return target is not None and step >= target

    @property
    def reporting(self) -> bool:
        """Whether metrics of the trainer's present step are reported."""
        return self._opened().reporting

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Metrics of the newest step; values that are no numbers are left out. Does not wait for a GPU."""
        found = {name: value for name, value in metrics.items() if _is_number(value)}
        self._opened().log(**dict(list(found.items())[:MOST_METRICS]))

    def stopped(self) -> None:
        """The trainer ends by itself before the target: commit its last state."""
        if not self.ended:
            self._opened().stop()
            if self.step():
                self.close(TrainerStopped("the trainer ended by itself"))

    def finish(self, complete: bool) -> None:
        """The trainer is done; complete: with a step that was not reported yet."""
        session = self._opened()
        if self._closed:
            return
        if self._idle:
            session.reload()
        elif complete and self.reached(session.step + 1):
            self.step()
        elif complete:
            self.stopped()
        self.close(None)

    def close(self, error: BaseException | None) -> None:
        """End the session in every case. `error`: what ended training."""
        session, self._closed = self._session, True
        if session is not None and Session._open is session:
            session.__exit__(type(error) if error else None, error, None)
        atexit.unregister(self._at_exit)
        if TrainerSession._newest is self:
            TrainerSession._newest = None

    def _at_exit(self) -> None:
        """The script ends while the session is open: with the error that Python has reported, if there was one."""
        self.close(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))

    def _opened(self) -> Session:
        assert self._session is not None, "open comes first"
        return self._session

    def _ending(self) -> _Ending:
        return _Ending(self)


def _is_number(value: Any) -> bool:
    return value.numel() == 1 if isinstance(value, torch.Tensor) else type(value) in (int, float)


class _Ending:
    """An error of the block ends the session."""

    def __init__(self, owner: TrainerSession) -> None:
        self._owner = owner

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._owner.close(error)


class Steered:
    """The part of a callback that its user reads and steers the session by; `_run` is the session."""

    _run: TrainerSession

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self._run.session.step if self._run.session else 0

    @property
    def certified(self) -> str:
        """Whether the first step was the one that the session before promised: exact, not-exact or unknown."""
        return self._run.session.certified if self._run.session else "unknown"

    @property
    def outcome(self) -> Outcome | None:
        """How the session ended, with its `exit_code`; None before."""
        return self._run.outcome

    def commit(self) -> None:
        """Commit after this step."""
        if self._run.session is not None:
            self._run.session.commit()

    def stop(self) -> None:
        """End the session as planned after this step."""
        if self._run.session is not None:
            self._run.session.stop()
