"""The workload of a user's own loop: its tracked parts, random streams and loader as a state that can be stored."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.fields import METRIC_NAME
from relay.core.ledger.frozen import MAX_NAME
from relay.core.runs.opening import difference
from relay.core.runs.ownloop import OURS, SPLITS
from relay.core.workload import Finite, Measures, Saved, Share
from relay.torch.digest import Digest, QueuedStepDigest, queued, words
from relay.torch.fingerprint import fingerprint, installed
from relay.torch.loading import Loader, NoLoader
from relay.torch.loopfiles import StoredTensors, read_node, write
from relay.torch.peers import Team
from relay.torch.plain import ANYTHING, Book, Misfit, decode, encode, form, names_in
from relay.torch.ranks import RanksDiffer, evaluate_everywhere, load_everywhere, own_states
from relay.torch.snapshot import to_host
from relay.torch.statefile import StateDocument, load_document
from relay.torch.streams import Streams
from relay.torch.tracked import BadPart, GeneratorPart, ModulePart, OptimizerPart, Part, describe, own_part

SPARE = 1.1
"""A copy on the device needs this many times the state's size."""
REPORT_EVERY = 20
CPU = torch.device("cpu")
Evaluate = Callable[[], Mapping[str, float]]


class DoesNotFit(BadConfig):
    """The checkpoint is not of the parts that this script tracks. `where`: the first that differs."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"The run's checkpoint does not fit this script: {where} {why}.")
        self.where, self.why = where, why


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

    def of(self, part: str) -> dict[str, Tensor]:
        """The part's tensors."""
        return {name: tensor for name, tensor in self.tensors.items() if name.startswith(f"{part}/")}


class Arrived:
    """A checkpoint's files, whole and of known types, perhaps before the parts exist that must fit them."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ()) -> None:
        """`names`: of the parts that must be there, if they are known.

        Raises ValueError (one line) for damaged files, DoesNotFit (78) naming a part that is new or gone.
        """
        self.folder, self.document = folder, load_document(folder, StateDocument)
        self.parts = tuple(sorted(path.stem for path in folder.glob("*.safetensors")))
        if names:
            self.refuse_others(names)
        self.stored = StoredTensors(folder, self.parts)
        try:
            self.nodes = {part: read_node(folder, part) for part in self.parts}
        except BaseException:
            self.stored.close()
            raise

    def refuse_others(self, names: tuple[str, ...]) -> None:
        """Raises DoesNotFit (78), naming a part that is new or gone."""
        for name in sorted(set(self.parts) ^ set(names)):
            raise DoesNotFit(name, "is tracked now, and was not" if name in names else "was tracked, and is not")

    def value(self, part: str) -> Any:
        """The state of an object with state_dict. Raises DoesNotFit (78)."""
        with _fitting():
            if part not in self.nodes:
                raise Misfit(part, "was not tracked")
            return decode(self.nodes[part], ANYTHING, f"{part}/state", self.stored)

    def weights(self, part: str, module: nn.Module) -> dict[str, Tensor]:
        """A module's tensors by all of its own names, checked. Raises DoesNotFit (78)."""
        live = ModulePart(part, module)
        with _fitting():
            if part not in self.nodes:
                raise Misfit(part, "was not tracked")
            live.fit(self.nodes[part], self.stored, describe([live])[0].tensors)
        found, firsts = dict[str, Tensor](), set[str]()
        for key, name in live.stored_names().items():
            found[key] = self.stored[name].clone() if name in firsts else self.stored[name]
            firsts.add(name)
        return found

    def state(self) -> State:
        """All of it."""
        return State(self.document.step, dict(self.stored), dict(self.nodes), set())


@contextmanager
def _fitting() -> Iterator[None]:
    """Raises DoesNotFit (78) for a Misfit of the block."""
    try:
        yield
    except Misfit as error:
        raise DoesNotFit(error.where, error.why) from error


@dataclass
class LoopWorkload:
    """A `Workload` without `advance`: the caller makes the steps, and counts them in `step`.

    Its parts may be `attach`ed after a checkpoint was loaded.
    """

    parts: list[Part]
    """Empty: they come later."""
    pinned: dict[str, Any]
    script: str
    """Digest of the script's bytes."""
    measures: Measures
    team: Team | None = None
    """The processes of this training, if there are several."""
    step: int = 0
    snapped: int | None = None
    """The step of this session's last snapshot."""
    loader: Loader = field(default_factory=NoLoader)
    evaluation: Evaluate | None = None
    _pending: tuple[dict[str, Any], dict[str, Tensor]] | None = None
    """JSON and tensors of a loaded checkpoint's own parts (`OURS`, and those of other processes), until the loop
    begins."""
    _compared: bool = False
    """Whether the processes were found to train the same model."""
    expected: torch.device = CPU
    """The device of parts that come later."""
    arrived: Arrived | None = None
    """The checkpoint that such parts will load."""

    def __post_init__(self) -> None:
        self.rank, size = (self.team.rank, self.team.size) if self.team else (0, 1)
        self.followers = None if self.rank else self.team
        """The team, in its first process."""
        self.others = tuple(own_part(rank) for rank in range(1, size))
        self._settle()

    def _settle(self) -> None:
        book, _ = describe(self.parts)
        self.devices = sorted({tensor.device for tensor in book.tensors.values()} or {self.expected}, key=str)
        fixed = book.finite - book.trained
        self.infinite = {name for name in fixed if not bool(book.tensors[name].isfinite().all())}
        """Names of tensors that are not finite when the script begins (a mask, a best loss); they may stay so."""
        self.device = next((one for one in self.devices if one.type != "cpu"), CPU)
        self.names = (*(part.name for part in self.parts), *OURS, *self.others)
        self.report_every = REPORT_EVERY if self.device.type == "cpu" else 10**9  # reading a metric waits for a GPU

    def attach(self, parts: list[Part]) -> None:
        """The parts, which exist now; load the checkpoint that has arrived into them. Raises DoesNotFit (78)."""
        self.parts, found = parts, self.arrived
        self._settle()
        if found is None:
            return
        found.refuse_others(self.names)
        try:
            self._take(found)
        except ValueError as error:
            raise DoesNotFit("the checkpoint", f"is not valid: {error}") from error

    def reload(self) -> None:
        """Load once more the checkpoint that had arrived: a trainer made a step where none was due."""
        if self.arrived is not None:
            self._take(Arrived(self.arrived.folder))

    def start(self) -> None:
        """The state at step 0 is the one that the script made."""

    def load(self, folder: Path) -> None:
        """Restore in place. Raises ValueError (one line) for damaged files, DoesNotFit (78) for another script's."""
        found = Arrived(folder, self.names if self.parts else ())
        if self.parts:
            self._take(found)
        else:
            self.arrived, self.step = found, found.document.step
        if self.followers is not None:
            load_everywhere(self.followers, folder)

    def _take(self, found: Arrived) -> None:
        """Restore in place. Raises as `load`."""
        stored, parts = found.stored, self.parts
        stored.unclaim()
        with closing(stored), _fitting():
            live, _ = describe(parts)
            applies = [part.fit(found.nodes[part.name], stored, live.tensors) for part in parts]
            mine = self.names[len(parts) :]
            ours = {name: stored[name] for part in mine for name in stored.names(part)}
            stored.refuse_unclaimed()
            self._refuse_non_finite(found, live.finite)
            for apply in applies:
                apply()
            self._refuse_changed(found)
        self._pending = {part: found.nodes[part] for part in mine}, ours
        self.step = found.document.step

    def _refuse_changed(self, found: Arrived) -> None:
        """Raises Misfit unless every part is now what the files hold: a part may load less than it had saved."""
        book, nodes = describe(self.parts)
        odd = [name for name, node in nodes.items() if dumps(node) != dumps(found.nodes[name])]
        odd += [
            name for name, now in book.tensors.items() if not torch.equal(words(now).cpu(), words(found.stored[name]))
        ]
        if odd:
            raise Misfit(odd[0], "is another one after loading: load_state_dict must set all that state_dict returns")

    def _refuse_non_finite(self, found: Arrived, finite: set[str]) -> None:
        """Raises ValueError: every snapshot of a session is finite. An optimizer's state may not exist here yet."""
        for part in self.parts:
            if isinstance(part, OptimizerPart):
                finite = finite.union(found.stored.names(part.name)).difference(names_in(found.nodes[part.name]))
        finite = finite - self.infinite
        for name, tensor in found.stored.items():
            if name in finite and tensor.is_floating_point() and not tensor.isfinite().all():
                raise ValueError(f"{name} holds a value that is not finite")

    @property
    def streams(self) -> Streams:
        """This process's random streams. A tracked generator of another process than the first is only here."""
        return Streams(self.devices, {**self.loader.generators, **(self._tracked_generators if self.rank else {})})

    @property
    def _tracked_generators(self) -> dict[str, torch.Generator]:
        return {f"of {part.name}": part.generator for part in self.parts if isinstance(part, GeneratorPart)}

    def begin(self, loader: Loader) -> None:
        """The loop begins with this loader: continue its position and the random streams. Raises DoesNotFit (78)."""
        self.loader, pending = loader, self._pending
        if pending is None:
            return
        streams, (nodes, tensors) = self.streams, pending
        with _fitting():
            mine = nodes[own_part(self.rank)] if self.rank else nodes
            if not isinstance(mine, dict) or not set(OURS) <= mine.keys():
                raise Misfit(own_part(self.rank), "is not the state of a process")
            drawn, position = (decode(mine[name], ANYTHING, name, tensors) for name in OURS)
            streams.check(drawn, "random")
            loader.resume(position, lambda: streams.restore(drawn))
        self._pending = None

    def state(self, compare: bool = False) -> State:
        """The live state; its tensors are not copies. Raises BadPart (78) for a value that cannot be stored.

        compare: also raise RanksDiffer (78) if another process does not train the same model.
        """
        if not self.parts and self.arrived is not None:
            return self.arrived.state()
        book, nodes = describe(self.parts)
        if self._pending is not None:
            own_nodes, own = self._pending
            return State(self.step, book.tensors | own, nodes | own_nodes, book.finite)
        own_nodes, own = self._own()
        found = State(self.step, book.tensors | own, nodes | own_nodes, book.finite)
        for rank, plain, tensors in own_states(self.followers, compare) if self.followers else ():
            if compare and (odd := difference(self._digests(found), plain["digests"])):
                raise RanksDiffer(rank, [one.key for one in odd])
            found.nodes[own_part(rank)] = plain["node"]
            found.tensors.update(tensors)
        return found

    def own_state(self, digests: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Of another process than the first: what only it has, and digests of the rest if asked."""
        own_nodes, own = self._own()
        book, nodes = describe(self.parts)
        shared = self._digests(State(self.step, book.tensors, nodes, book.finite)) if digests else None
        return {"node": own_nodes, "digests": shared}, own

    def forms(self) -> dict[str, str]:
        """A digest of the names, types and shapes of each part."""
        found = State(0, describe(self.parts)[0].tensors, {}, set())
        of = {p.name: sorted(f"{name} {form(each)}" for name, each in found.of(p.name).items()) for p in self.parts}
        return {name: digest(dumps(lines)) for name, lines in of.items()}

    def _digests(self, state: State) -> dict[str, str]:
        """A digest of each part's parameters and optimizer state, which all processes share."""
        shared = {p.name: {n: each for n, each in state.of(p.name).items() if n in state.finite} for p in self.parts}
        return {name: Digest(tensors, {}).text for name, tensors in shared.items()}

    def _whole(self) -> dict[str, str]:
        """A digest of each part."""
        book, nodes = describe(self.parts)
        live = State(0, book.tensors, nodes, set())
        return {p.name: Digest(live.of(p.name), {"plain": nodes[p.name]}).text for p in self.parts}

    def _own(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Random streams and position of this process, as JSON and tensors."""
        book, prefix = Book(), f"{own_part(self.rank)}/" if self.rank else ""
        values = dict(zip(OURS, (self.streams.capture(), self.loader.position()), strict=True))
        return {name: encode(value, f"{prefix}{name}/", book) for name, value in values.items()}, book.tensors

    def snapshot(self) -> LoopSnapshot:
        """A copy of the state now."""
        compare, self._compared, self.snapped = not self._compared, True, self.step
        found = self.state(compare)
        found.finite -= self.infinite
        return LoopSnapshot(found, self.names, self._about.model_copy(update={"step": self.step}))

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
        several = f" processes={self.team.size}" if self.team else ""
        return f"loop {self.device.type}{several} threads={torch.get_num_threads()} compiled={on[compiled]} {shown}"

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        """The user's metrics, with random streams and training modes as before.

        Raises BadMetric (78), and BadPart (78) if a part is another one after it: when a state is evaluated depends on
        the session.
        """
        if self.evaluation is None or split != SPLITS.choosing:
            return {}
        if self.followers is not None:
            evaluate_everywhere(self.followers)
        before, streams = self._whole(), Streams(self.devices, {**self.loader.generators, **self._tracked_generators})
        with unchanged([p.module for p in self.parts if isinstance(p, ModulePart)], streams):
            found = self.evaluation()
        if odd := difference(before, self._whole()):
            raise BadPart(odd[0].key, "the function of evaluate changes it (is a module not in eval mode?)")
        if not isinstance(found, Mapping):
            raise BadMetric("of evaluate", f"is a {type(found).__name__}, not a dict of numbers")
        return finite_numbers(found)

    def fingerprint(self) -> dict[str, str]:
        """The environment and the script: a failure counts only while both are the same (P10, P13)."""
        return fingerprint(self.device) | {"script": self.script[:16], "numpy": installed("numpy")}

    def config(self) -> dict[str, Any]:
        """The pinned configuration."""
        return dict(self.pinned)


class LoopSnapshot:
    """A copy of a loop's state: on its device if there is room, otherwise in host memory."""

    def __init__(self, state: State, parts: tuple[str, ...], about: StateDocument) -> None:
        self.step, self.parts, self._about, self._nodes = state.step, parts, about, state.nodes
        self._tensors, self._flags = dict[str, Tensor](), list[tuple[list[str], Tensor]]()
        self._events: list[torch.cuda.Event] = []
        for device in {tensor.device for tensor in state.tensors.values()}:
            self._copy(device, {name: each for name, each in state.tensors.items() if each.device == device}, state)

    def _copy(self, device: torch.device, tensors: dict[str, Tensor], state: State) -> None:
        checked = sorted(state.finite & tensors.keys())
        if checked:
            self._flags.append((checked, torch.stack([tensors[name].isfinite().all() for name in checked])))
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < SPARE * size:
            self._tensors |= to_host(tensors)
            return
        self._tensors |= {name: tensor.clone() for name, tensor in tensors.items()}
        if (event := queued(device)) is not None:
            self._events.append(event)

    @cached_property
    def finite(self) -> Finite:
        """Checks parameters and optimizer state; names the first that is not finite. Waits for a GPU."""
        for names, flags in self._flags:
            for name, flag in zip(names, flags.tolist(), strict=True):
                if not flag:
                    return Finite(False, f"{name} is not finite at step {self.step}")
        return Finite(True)

    def save(self, folder: Path) -> Saved:
        """Write every file into an empty folder, fsynced, while training continues. Raises OSError on failure."""
        tensors = dict(self._tensors)
        for event in self._events:
            event.synchronize()
        for device in {tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"}:
            with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
                tensors |= to_host({name: each for name, each in tensors.items() if each.device == device})
        files = write(folder, self.parts, tensors, self._nodes, self._about)
        return Saved(self.step, State(self.step, tensors, self._nodes, set()).digest().text, files)


class BadMetric(BadConfig):
    """A metric is not a number, or a commit cannot have its name. `name`: its name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"Metric {name} {why}.")
        self.name = name


@lru_cache(maxsize=1024)
def refuse_name(name: Any) -> None:
    """Raises BadMetric for a metric's name that a commit cannot have. One that is too long is cut.

    Called for each metric of each step, where matching costs a tenth of a millisecond.
    """
    if not re.fullmatch(METRIC_NAME, str(name)[:MAX_NAME]):
        raise BadMetric(ascii(name), "needs a name of ASCII characters, without quotes and backslashes")


def number(name: str, value: Any) -> float:
    """A metric's value; waits for a GPU. Raises BadMetric."""
    refuse_name(name)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadMetric(name, f"is a {type(value).__name__}, not a number") from error


@contextmanager
def unchanged(modules: list[nn.Module], streams: Streams) -> Iterator[None]:
    """Restore random streams and training modes after the block."""
    drawn = streams.capture()
    modes = [(each, each.training) for module in modules for each in module.modules()]
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode
        streams.restore(drawn)


def script_digest() -> str:
    """SHA-256 of the running script; of nothing in a notebook."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return sha256(Path(path).read_bytes() if path else b"").hexdigest()
    except OSError:
        return sha256(b"").hexdigest()


def _compiled(module: nn.Module) -> bool:
    return any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in module.modules())


def finite_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Metrics to report: numbers that are finite."""
    found = {name: number(name, value) for name, value in values.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}
