"""The workload of a user's own loop: its tracked parts, random streams and loader as a state that can be stored."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relay.core.errors import BadConfig
from relay.core.runs.ownloop import SPLITS
from relay.core.workload import Finite, Measures, Progress, Saved, Share
from relay.torch.digest import Digest, QueuedStepDigest, queued
from relay.torch.fingerprint import fingerprint, installed
from relay.torch.loading import Loader, NoLoader
from relay.torch.loopfiles import StoredTensors, read_node, write
from relay.torch.plain import Book, Misfit, decode, encode
from relay.torch.snapshot import to_host
from relay.torch.statefile import StateDocument, load_document
from relay.torch.streams import capture, check, restore
from relay.torch.tracked import ModulePart, Part, describe

OURS = ("random", "loader")
"""Parts of every loop."""
SPARE = 1.1
"""A copy on the device needs this many times the state's size."""
REPORT_EVERY = 20
Evaluate = Callable[[], Mapping[str, float]]


class DoesNotFit(BadConfig):
    """The checkpoint is not of the parts that this script tracks. `where`: the first that differs."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"The run's checkpoint does not fit this script: {where} {why}.")
        self.where, self.why = where, why


class NotDriven(BadConfig):
    """Only the script that made a run can make its steps."""

    def __init__(self) -> None:
        super().__init__("The steps of this run are made by its own script.")


@dataclass
class Pending:
    """Streams and position of a loaded checkpoint, until the loop begins."""

    nodes: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass
class State:
    """Everything that decides the next step."""

    step: int
    tensors: dict[str, Tensor]
    nodes: dict[str, Any]
    finite: set[str]

    def digest(self) -> Digest:
        """P9's digest; on a GPU only queued."""
        return Digest(self.tensors, {"step": self.step, "plain": self.nodes})


@dataclass
class LoopWorkload:
    """`advance` is not for it: the caller makes the steps, and counts them in `step`."""

    parts: list[Part]
    pinned: dict[str, Any]
    script: str
    """Digest of the script's bytes."""
    measures: Measures
    step: int = 0
    loader: Loader = field(default_factory=NoLoader)
    evaluation: Evaluate | None = None
    _pending: Pending | None = None

    def __post_init__(self) -> None:
        tensors = list(describe(self.parts)[0].tensors.values())
        self.devices = sorted({tensor.device for tensor in tensors}, key=str)
        self.device = next((one for one in self.devices if one.type != "cpu"), torch.device("cpu"))
        self.report_every = REPORT_EVERY if self.device.type == "cpu" else 10**9  # reading a metric waits for a GPU

    def start(self) -> None:
        """The state at step 0 is the one that the script made."""

    def load(self, folder: Path) -> None:
        """Restore in place. Raises ValueError (one line) for damaged files, DoesNotFit (78) for another script's."""
        document = load_document(folder, StateDocument)
        names = tuple(part.name for part in self.parts)
        _refuse_other_parts(folder, names)
        stored = StoredTensors(folder, (*names, *OURS))
        try:
            live, _ = describe(self.parts)
            applies = [part.fit(read_node(folder, part.name), stored, live.tensors) for part in self.parts]
            ours = {name: stored[name] for part in OURS for name in stored.names(part)}
            stored.refuse_unclaimed()
            for apply in applies:
                apply()
        except Misfit as error:
            raise DoesNotFit(error.where, error.why) from error
        finally:
            stored.close()
        self._pending = Pending({part: read_node(folder, part) for part in OURS}, ours)
        self.step = document.step

    def begin(self, loader: Loader) -> None:
        """The loop begins with this loader: continue its position and the random streams. Raises DoesNotFit (78)."""
        self.loader, pending = loader, self._pending
        if pending is None:
            return
        try:
            like = capture(self.devices, loader.generators)
            streams = decode(pending.nodes["random"], like, "random", pending.tensors)
            position = decode(pending.nodes["loader"], None, "loader", pending.tensors)
            check(streams)
            loader.check(position)
        except Misfit as error:
            raise DoesNotFit(error.where, error.why) from error
        self._pending = None
        loader.resume(position, streams)

    def state(self) -> State:
        """The live state; its tensors are not copies. Raises BadPart (78) for a value that cannot be stored."""
        book, nodes = describe(self.parts)
        if self._pending is not None:
            return State(
                self.step, book.tensors | self._pending.tensors, nodes | self._pending.nodes, book.finite
            )  # fmt: skip
        own = Book()
        nodes["random"] = encode(capture(self.devices, self.loader.generators), "random/", own)
        nodes["loader"] = encode(self.loader.position(), "loader/", own)
        return State(self.step, book.tensors | own.tensors, nodes, book.finite)

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        """Raises NotDriven (78)."""
        raise NotDriven

    def snapshot(self) -> LoopSnapshot:
        """A copy of the state now."""
        names = tuple(part.name for part in self.parts)
        return LoopSnapshot(self.state(), (*names, *OURS), self._about.model_copy(update={"step": self.step}))

    @cached_property
    def _about(self) -> StateDocument:
        return StateDocument(
            step=0, seed=0, config=self.config(), code=installed("trm-relay"), fingerprint=self.fingerprint()
        )

    def digest(self) -> QueuedStepDigest:
        """P9's digest of the state now."""
        return QueuedStepDigest(self.step, self.path, self.state().digest())

    @property
    def path(self) -> str:
        """The process-wide settings that decide how numbers are rounded."""
        on = {True: "on", False: "off"}
        switches = {
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn-tf32": torch.backends.cudnn.allow_tf32,
        }
        compiled = any(isinstance(p, ModulePart) and _compiled(p.module) for p in self.parts)
        shown = " ".join(f"{name}={on[value]}" for name, value in switches.items())
        return f"loop {self.device.type} threads={torch.get_num_threads()} compiled={on[compiled]} {shown}"

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        """The user's metrics, with random streams and training modes as before. Raises BadMetric (78)."""
        if self.evaluation is None or split != SPLITS.choosing:
            return {}
        with unchanged([p.module for p in self.parts if isinstance(p, ModulePart)], self.devices, self.loader):
            return {name: number(name, value) for name, value in self.evaluation().items()}

    def fingerprint(self) -> dict[str, str]:
        """The environment and the script: a failure counts only while both are the same (P10, P13)."""
        return fingerprint(self.device) | {"script": self.script[:16], "numpy": installed("numpy")}

    def config(self) -> dict[str, Any]:
        """The pinned configuration."""
        return dict(self.pinned)


class LoopSnapshot:
    """A copy of a loop's state: on its device if there is room, otherwise in host memory."""

    def __init__(self, state: State, parts: tuple[str, ...], about: StateDocument) -> None:
        self.step, self._parts, self._about = state.step, parts, about
        self._checked = sorted(state.finite)
        self._flags = [state.tensors[name].isfinite().all() for name in self._checked]
        self._events: list[torch.cuda.Event] = []
        self._state = State(state.step, self._copied(state.tensors), state.nodes, state.finite)

    def _copied(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for device in {tensor.device for tensor in tensors.values()}:
            own = {name: tensor for name, tensor in tensors.items() if tensor.device == device}
            size = sum(tensor.numel() * tensor.element_size() for tensor in own.values())
            if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < SPARE * size:
                found |= to_host(own)
                continue
            found |= {name: tensor.clone() for name, tensor in own.items()}
            if (event := queued(device)) is not None:
                self._events.append(event)
        return found

    @cached_property
    def finite(self) -> Finite:
        """Checks parameters and optimizer state; names the first that is not finite. Waits for a GPU."""
        for name, flag in zip(self._checked, self._flags, strict=True):
            if not bool(flag):
                return Finite(False, f"{name} is not finite at step {self.step}")
        return Finite(True)

    def save(self, folder: Path) -> Saved:
        """Write every file into an empty folder, fsynced, while training continues. Raises OSError on failure."""
        tensors = dict(self._state.tensors)
        for event in self._events:
            event.synchronize()
        for device in {tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"}:
            with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
                tensors |= to_host({name: each for name, each in tensors.items() if each.device == device})
        copied = State(self.step, tensors, self._state.nodes, set())
        files = write(folder, self._parts, tensors, self._state.nodes, self._about)
        return Saved(self.step, copied.digest().text, files)


class BadMetric(BadConfig):
    """A metric is not a number. `name`: its name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"Metric {name} {why}.")
        self.name = name


def number(name: str, value: Any) -> float:
    """A metric's value; waits for a GPU. Raises BadMetric."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadMetric(name, f"is a {type(value).__name__}, not a number") from error


@contextmanager
def unchanged(modules: list[nn.Module], devices: list[torch.device], loader: Loader) -> Iterator[None]:
    """Restore random streams and training modes after the block."""
    streams = capture(devices, loader.generators)
    modes = [(each, each.training) for module in modules for each in module.modules()]
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode
        restore(streams, loader.generators)


def script_digest() -> str:
    """SHA-256 of the running script; of nothing in a notebook."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return sha256(Path(path).read_bytes() if path else b"").hexdigest()
    except OSError:
        return sha256(b"").hexdigest()


def _compiled(module: nn.Module) -> bool:
    return any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in module.modules())


def _refuse_other_parts(folder: Path, names: tuple[str, ...]) -> None:
    """Raises DoesNotFit, naming a part that is new or gone."""
    stored = {path.stem for path in folder.glob("*.safetensors")} - set(OURS)
    for name in sorted(stored ^ set(names)):
        raise DoesNotFit(name, "is tracked now, and was not" if name in names else "was tracked, and is not")


def finite_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Metrics to report: numbers that are finite."""
    found = {name: number(name, value) for name, value in values.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}
