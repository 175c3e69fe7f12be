"""A session of several processes of one host, such as those of DistributedDataParallel.

The first process has the session. Between two steps the others follow its orders: load a checkpoint, send your random
streams and your loader's position for one, evaluate, make the next step, end. The orders have a group of their own, so
they meet no collective of the loop.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors.torch import load as read_tensors
from safetensors.torch import save as written
from torch import Tensor

from relay.core.errors import BadConfig, Exit, RelayError
from relay.core.lease.host import read_boot_id
from relay.core.ledger.canonical import dumps
from relay.core.runs.opening import difference
from relay.core.runs.ownloop import SPLITS
from relay.core.session.context import Context, Outcome
from relay.core.session.driven import DrivenSession
from relay.core.workload import ProcessLost
from relay.torch.peers import PeerLost, Team

LONGEST_TEXT = 1000
"""Characters of an error that the others learn."""
PLAIN = "plain"
"""Name of the tensor that holds an answer's JSON."""


class NotConnected(BadConfig):
    """The processes of this training do not know each other yet."""

    def __init__(self, count: int) -> None:
        super().__init__(f"WORLD_SIZE is {count}: initialize torch.distributed before the session.")
        self.count = count


class SeveralHosts(BadConfig):
    """The processes of this training run on more than one machine."""

    def __init__(self, count: int) -> None:
        super().__init__(f"This training runs on {count} machines. A session can have the processes of one machine.")
        self.count = count


class RanksDiffer(BadConfig):
    """A process does not train what the first one trains. `rank`: its number; `names`: the differences."""

    def __init__(self, rank: int, names: Sequence[str]) -> None:
        super().__init__(f"Process {rank} differs from process 0: {', '.join(names[:3])}.")
        self.rank, self.names = rank, tuple(names)


class EndedByFirst(RelayError):
    """The first process, which has the session, ended it with an error."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = Exit(code)


def team_here() -> Team | None:
    """The processes of this training; None for one. Raises NotConnected, SeveralHosts (78), PeerLost (75)."""
    started = int(os.environ.get("WORLD_SIZE") or 1)
    if not (dist.is_available() and dist.is_initialized()):
        if started > 1:
            raise NotConnected(started)
        return None
    if dist.get_world_size() == 1:
        return None
    team = Team(dist.get_rank(), dist.get_world_size())
    hosts = set(team.gather((read_boot_id() or platform.node()).encode()))
    if len(hosts) > 1:
        raise SeveralHosts(len(hosts))
    return team


@contextmanager
def leading(team: Team | None) -> Iterator[None]:
    """In the first process: an error of the block ends the session of every process."""
    try:
        yield
    except BaseException as error:
        if team is not None and team.rank == 0:
            end(team, None, error)
        raise


def end(team: Team, outcome: Outcome | None, error: BaseException | None, certified: str = "unknown") -> None:
    """The order that ends the others, with the outcome or the error of the first one."""
    code = outcome.exit_code if outcome else error.exit_code if isinstance(error, RelayError) else Exit.BUG
    known = {"durable": outcome.durable_step, "end": outcome.end} if outcome else {"durable": None, "end": ""}
    text = (str(error) or type(error).__name__)[:LONGEST_TEXT] if error else None
    with suppress(PeerLost):
        team.order({"do": "end", "code": int(code), **known, "error": text, "certified": certified})


def compare(team: Team, about: Mapping[str, Any]) -> None:
    """Raises RanksDiffer (78) unless every process gives the same description, PeerLost (75)."""
    for rank, theirs in _asked(team, "compare", dumps(about)):
        if changed := difference(about, json.loads(theirs)):
            raise RanksDiffer(rank, [one.key for one in changed])


def same_parts(team: Team, forms: Mapping[str, str]) -> None:
    """Called by every process. Raises RanksDiffer (78) in all of them unless their parts are alike, PeerLost (75)."""
    first, *others = (json.loads(each) for each in team.gather(dumps(dict(forms))))
    for rank, theirs in enumerate(others, 1):
        if changed := difference(first, theirs):
            raise RanksDiffer(rank, [one.key for one in changed])


def load_everywhere(team: Team, folder: Path) -> None:
    """Returns once every process has loaded the checkpoint. Raises PeerLost (75)."""
    _asked(team, "load", folder=str(folder.resolve()))


def own_states(team: Team, digests: bool) -> list[tuple[int, Any, dict[str, Tensor]]]:
    """(rank, `OwnState.plain`, tensors): the state that only that process has. Raises ProcessLost."""
    with _surrendering():
        return [(rank, *_unpacked(data)) for rank, data in _asked(team, "state", digests=digests)]


def evaluate_everywhere(team: Team) -> None:
    """Every process evaluates, since its model may exchange tensors. Raises ProcessLost."""
    with _surrendering():
        team.order({"do": "evaluate"})


def _asked(team: Team, what: str, mine: bytes = b"", **more: Any) -> list[tuple[int, bytes]]:
    team.order({"do": what, **more})
    return list(enumerate(team.gather(mine)))[1:]


@contextmanager
def _surrendering() -> Iterator[None]:
    """The state of the step just made is lost with a process that holds a part of it."""
    try:
        yield
    except PeerLost as lost:
        raise ProcessLost(str(lost), whole=False) from lost


def _of_distributed(error: BaseException) -> bool:
    """Whether a collective of the loop failed. gloo's errors have no type of their own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _packed(plain: Any, tensors: Mapping[str, Tensor]) -> bytes:
    text = torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)
    return written({PLAIN: text} | {name: each.cpu().clone().contiguous() for name, each in tensors.items()})


def _unpacked(data: bytes) -> tuple[Any, dict[str, Tensor]]:
    tensors = read_tensors(data)
    return json.loads(tensors.pop(PLAIN).numpy().tobytes()), tensors


class Leader(DrivenSession):
    """The session of the first process; it tells the others what follows."""

    def __init__(self, ctx: Context, team: Team) -> None:
        super().__init__(ctx)
        self._team = team

    @property
    def ending(self) -> bool:
        """As the others know it: a signal that comes during a step counts from the next one on."""
        return self.last or self.ended

    def close(self, error: BaseException | None) -> None:
        """As in a single process; an error ends the others by the end of this process, since they hear no order."""
        if self.ended or error is None:
            super().close(error)
            return
        lost = self._team.gone() if _of_distributed(error) else ""
        self._team.lost = lost or "The first process left its loop."
        super().close(ProcessLost(lost, whole=False) if lost else error)

    def _go(self, act: Callable[[], object]) -> None:
        with leading(self._team):
            super()._go(act)
        try:
            if self.outcome is not None:
                end(self._team, self.outcome, None, self.certified)
            else:
                self._team.order({"do": "step", "last": self.last, "target": self.target_steps})
        except PeerLost as lost:
            gone = ProcessLost(str(lost), whole=False)
            super()._go(lambda: self._steps.throw(gone))


class Led(Protocol):
    """A follower's work with its own copy of the loop's state."""

    def load(self, folder: Path) -> None: ...

    def own_state(self, digests: bool) -> tuple[Any, Any]: ...

    def evaluate(self, split: str, rows: int | None) -> Mapping[str, float]: ...


class Follower:
    """Another process: as `DrivenSession` for its loop, but it only follows orders."""

    def __init__(self, team: Team, workload: Led, about: Mapping[str, Any]) -> None:
        self._team, self._workload, self._about = team, workload, about
        self.outcome: Outcome | None = None
        self.last = False
        self.certified = "unknown"
        self.target_steps: int | None = None
        """Known with the lease."""

    @property
    def ended(self) -> bool:
        """Whether no step follows."""
        return self.outcome is not None

    @property
    def ending(self) -> bool:
        """Whether at most one more step follows."""
        return self.last or self.ended

    def open(self) -> None:
        """Load the state that the first process loads. Raises EndedByFirst, DoesNotFit (78), PeerLost (75)."""
        self._follow()

    def begin(self, evaluate_every: int = 0) -> None:
        """Call once before the first step. Raises as `open`."""
        self._follow()

    def reports(self, step: int) -> bool:
        """The first process reports."""
        return False

    def after_step(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Call after each step. Raises as `open`."""
        self._follow()

    def commit(self) -> None:
        """The first process decides."""

    def stop(self, why: str) -> None:
        """The first process decides."""

    def close(self, error: BaseException | None) -> None:
        """A loop that was left ends with that of the first process. Raises RanksDiffer (78) if that goes on."""
        if error is None and not self.ended:
            self._follow()
            if not self.ended:
                raise RanksDiffer(self._team.rank, ["it left the loop"])

    def _follow(self) -> None:
        """Obey up to the next step, or to the end."""
        while (order := self._team.obey())["do"] != "step":
            match order["do"]:
                case "compare":
                    self._team.gather(dumps(self._about))
                case "load":
                    self._workload.load(Path(order["folder"]))
                    self._team.gather(b"")
                case "state":
                    self._team.gather(_packed(*self._workload.own_state(order["digests"])))
                case "evaluate":
                    self._workload.evaluate(SPLITS.choosing, None)
                case _:
                    self._end(order)
                    return
        self.last, self.target_steps = order["last"], order["target"]

    def _end(self, order: Mapping[str, Any]) -> None:
        self.certified = order["certified"]
        self.outcome = Outcome(Exit(order["code"]), order["durable"], end=order["end"])
        if order["error"] is not None:
            raise EndedByFirst(order["error"], order["code"])
