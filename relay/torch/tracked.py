"""The parts that a user's loop tracks: modules, optimizers, tensors, generators, anything with a state_dict.

Each part becomes tensors with stable names and one plain JSON value, and is loaded back in place. Names do not depend
on how a module is wrapped. The live objects decide what a checkpoint may hold (PROTOCOL P13): keys, types and shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import dumps
from relay.core.runs.ownloop import RESERVED
from relay.torch.loopfiles import MAX_JSON, StoredTensors
from relay.torch.plain import ANYTHING, Book, Misfit, Unstorable, decode, encode, form, names_in
from relay.torch.statefile import MAX_HEADER
from storage.wording import counted

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
WRAPPERS = re.compile(r"(^|\.)(?:module|_orig_mod)\.")
"""DistributedDataParallel, AveragedModel and torch.compile add these to the names of what they wrap."""
EXTRA = "_extra_state"
"""Last word of torch's name for what a module's get_extra_state returned."""
Apply = Callable[[], None]


class BadPart(BadConfig):
    """A part cannot be tracked. `part`: its name."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"Cannot track {part}: {why}.")
        self.part, self.why = part, why


class Part(Protocol):
    """One tracked object."""

    name: str

    def state(self, book: Book) -> Any:
        """Put the live tensors into the book; returns the rest as JSON. Raises Unstorable."""
        ...

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        """Check everything, then return what loads it in place. Raises Misfit."""
        ...


def own_part(rank: int) -> str:
    """The part with what only that process has, of those after the first."""
    return f"rank{rank}"


def stable(name: str) -> str:
    """A name without its wrappers."""
    while (shorter := WRAPPERS.sub(r"\1", name)) != name:
        name = shorter
    return name


def parts_of(objects: Mapping[str, Any]) -> list[Part]:
    """The parts for the tracked objects. Raises BadPart, also for a state that cannot be stored."""
    modules = [ModulePart(name, one) for name, one in objects.items() if isinstance(one, nn.Module)]
    owners: dict[int, str] = {}
    for module in modules:
        for key, parameter in module.module.named_parameters():
            owners.setdefault(id(parameter), f"{module.name}/{stable(key)}")
    for name, one in objects.items():
        if isinstance(one, Tensor):
            owners.setdefault(id(one), f"{name}/tensor")
    parts = [_part(name, one, owners) for name, one in objects.items()]
    describe(parts)
    for module in modules:
        module.refuse_copies()
    for part in parts:
        if isinstance(part, OptimizerPart):
            part.refuse_lost(modules, objects.values())
    return parts


def describe(parts: list[Part]) -> tuple[Book, dict[str, Any]]:
    """The live tensors, and each part's JSON. Raises BadPart."""
    book, nodes = Book(), dict[str, Any]()
    for part in parts:
        try:
            nodes[part.name] = part.state(book)
        except Unstorable as error:
            raise BadPart(part.name, str(error)) from error
        header = sum(len(json.dumps(name)) + 100 for name in book.tensors if name.startswith(f"{part.name}/"))
        for size, most, of in ((len(dumps(nodes[part.name])), MAX_JSON, "plain values"), (header, MAX_HEADER, "names")):
            if size > most:
                raise BadPart(part.name, f"its {of} take {size:,} bytes, and {most:,} are allowed")
    return book, nodes


def _part(name: str, one: Any, owners: Mapping[int, str]) -> Part:
    if not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise BadPart(name, "a part's name has lower-case letters, digits and _, and is none of our own")
    if isinstance(one, nn.Module):
        return ModulePart(name, one)
    if isinstance(one, torch.optim.Optimizer):
        return OptimizerPart(name, one, owners)
    if isinstance(one, Tensor):
        return TensorPart(name, one)
    if isinstance(one, torch.Generator):
        return GeneratorPart(name, one)
    if callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None)):
        return StatePart(name, one)
    raise BadPart(name, f"a {type(one).__name__} has no state_dict and load_state_dict")


def tensor_like(live: Tensor, name: str, stored: StoredTensors) -> None:
    """Raises Misfit unless the stored tensor has the live one's type and shape."""
    dtype, shape = stored.form_of(name)
    if (dtype, shape) != (live.dtype, tuple(live.shape)):
        found = torch.empty(0, dtype=dtype)
        raise Misfit(name, f"is {form(found).split()[0]} {shape}, and {form(live)} here")


def refuse_overlap(where: str, tensor: Tensor) -> None:
    """Raises Unstorable for an expanded tensor: torch does not load into it."""
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise Unstorable(where, "has elements in one place of memory: clone it")


@dataclass
class ModulePart:
    """A module: parameters and persistent buffers by their stable names, and extra state."""

    name: str
    module: nn.Module

    def __post_init__(self) -> None:
        self._names = {stable(key) for key in self.module.state_dict(keep_vars=True)}

    def _split(self) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, nn.Module]]:
        """By stable name: tensors, extra state, and the modules of the extra state."""
        tensors, extra, modules = dict[str, Tensor](), dict[str, Any](), dict[str, nn.Module]()
        for key, value in self.module.state_dict(keep_vars=True).items():
            owner, _, last = key.rpartition(".")
            if (name := stable(key)) in tensors or name in extra:
                raise Unstorable(f"{self.name}/{name}", f"is also the name of {key}: rename that submodule")
            if last == EXTRA:
                extra[name], modules[name] = value, self.module.get_submodule(owner)
            elif isinstance(value, Tensor):
                tensors[name] = value
            else:
                raise Unstorable(f"{self.name}/{name}", "is no tensor: return it by get_extra_state")
        return tensors, extra, modules

    def pointers(self) -> set[int]:
        """The memory addresses of the tensors that it saves."""
        return {value.data_ptr() for value in self._split()[0].values()}

    def refuse_copies(self) -> None:
        """Raises BadPart for a tensor that each call of state_dict copies: it cannot be loaded in place."""
        first, second = self._split()[0], self._split()[0]
        for key, value in first.items():
            if value.data_ptr() != second[key].data_ptr():
                raise BadPart(self.name, f"{key} is a copy in its state_dict: make it a buffer")

    def state(self, book: Book) -> Any:
        tensors, extra, _ = self._split()
        if odd := sorted(self._names ^ (tensors.keys() | extra.keys())):
            raise Unstorable(f"{self.name}/{odd[0]}", "came or went after track: a later session tracks what is there")
        for key, value in tensors.items():
            where = f"{self.name}/{key}"
            if isinstance(value, UninitializedParameter | UninitializedBuffer):
                raise Unstorable(where, "has no shape yet: run one batch through the module first")
            refuse_overlap(where, value)
            book.put(where, value, finite=isinstance(value, nn.Parameter))
        return encode(extra, f"{self.name}/", book)

    def stored_names(self) -> dict[str, str]:
        """The name under which each tensor of its state_dict is stored: that of the first of tied ones."""
        book, found = Book(), self.module.state_dict(keep_vars=True).items()
        tensors = {key: value for key, value in found if key.rpartition(".")[2] != EXTRA}
        return {key: book.put(f"{self.name}/{stable(key)}", value) for key, value in tensors.items()}

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        tensors, extra, modules = self._split()
        values = decode(node, extra, f"{self.name}/", stored)
        # a tied tensor is stored, and loaded, under its first name
        mine = {where: each for key, each in tensors.items() if (where := f"{self.name}/{key}") in live}
        for where, tensor in mine.items():
            tensor_like(tensor, where, stored)

        def apply() -> None:
            with torch.no_grad():
                for where, tensor in mine.items():
                    tensor.copy_(stored[where])
            for key, value in values.items():
                modules[key].set_extra_state(value)

        return apply


@dataclass
class OptimizerPart:
    """An optimizer: state by the names of its parameters, and the settings of its groups."""

    name: str
    optimizer: torch.optim.Optimizer
    owners: Mapping[int, str]

    def __post_init__(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups):
            for j, parameter in enumerate(group["params"]):
                if id(parameter) not in self.owners:
                    raise BadPart(self.name, f"parameter {j} of group {i} is in no tracked module")
        self._tracked = self._named()

    def refuse_lost(self, modules: Iterable[ModulePart], tracked: Iterable[Any]) -> None:
        """Raises BadPart for a parameter that its module does not save, and for a schedule that is not tracked."""
        saved = {one.data_ptr() for one in tracked if isinstance(one, Tensor)}
        saved.update(pointer for module in modules for pointer in module.pointers())
        for owner, parameter in self._parameters().items():
            if parameter.numel() and parameter.data_ptr() not in saved:
                raise BadPart(self.name, f"it trains {owner}, which the state_dict of that module leaves out")
        if hasattr(self.optimizer.step, "_wrapped_by_lr_sched") and not any(map(self._may_schedule, tracked)):
            raise BadPart(self.name, "it has a scheduler, which is not tracked: a later session would begin it again")

    def _may_schedule(self, one: Any) -> bool:
        """Whether this object may have the optimizer's scheduler; of the user's own classes this is unknown."""
        if isinstance(one, nn.Module | Tensor | torch.Generator | torch.optim.Optimizer | torch.amp.GradScaler):
            return False
        return getattr(one, "optimizer", self.optimizer) is self.optimizer

    def _named(self) -> list[list[str]]:
        """The names of each group's parameters."""
        return [[self.owners.get(id(one), "") for one in group["params"]] for group in self.optimizer.param_groups]

    def _groups(self) -> list[dict[str, Any]]:
        """The groups, with the names of their parameters."""
        named = self._named()
        for i, (now, before) in enumerate(zip_longest(named, self._tracked)):
            if now != before:
                raise Unstorable(f"{self.name}/group.{i}", "is another one after track: a later session has the first")
        return [{**group, "params": names} for group, names in zip(self.optimizer.param_groups, named, strict=True)]

    def _parameters(self) -> dict[str, Tensor]:
        return {self.owners[id(one)]: one for group in self.optimizer.param_groups for one in group["params"]}

    def state(self, book: Book) -> Any:
        plain, groups = [], self._groups()
        for owner, parameter in self._parameters().items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                where = f"{self.name}/{owner}/{key}"
                if not isinstance(key, str) or "/" in key:
                    raise Unstorable(where, "has a key that is no text, or has a / in it")
                if isinstance(value, Tensor):
                    if value.dim() and value.shape != parameter.shape:
                        raise Unstorable(where, "is neither of its parameter's shape nor a single number")
                    if (other := book.put(where, value, finite=True)) != where:
                        raise Unstorable(where, f"shares its memory with {other}, and would not after loading")
                else:
                    plain.append([owner, key, encode(value, where, book)])
                    for other in names_in(plain[-1][2]):
                        if other != where and not other.startswith(f"{where}."):
                            raise Unstorable(where, f"shares its memory with {other}, and would not after loading")
        for key in self.optimizer.state:
            if not isinstance(key, Tensor):
                raise Unstorable(f"{self.name}/state", f"has {key!r:.50}, which is no parameter")
        return [encode(groups, f"{self.name}/group", book), plain]

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        if not isinstance(node, list) or len(node) != 2 or not isinstance(node[1], list):
            raise Misfit(self.name, "is not a stored optimizer")
        mine = self._groups()
        groups = decode(node[0], mine, f"{self.name}/group", stored)
        if len(groups) != len(mine):
            raise Misfit(self.name, f"has {counted(len(groups), 'parameter group')}, and {len(mine)} here")
        for i, (group, now) in enumerate(zip(groups, mine, strict=True)):
            if not isinstance(group, dict) or group["params"] != now["params"]:
                raise Misfit(f"{self.name}/group.{i}", "has other parameters here")
        states = self._states(node[0], node[1], stored)

        def apply() -> None:
            for group, now in zip(groups, self.optimizer.param_groups, strict=True):
                for key in group.keys() - {"params"}:
                    if isinstance(now[key], Tensor) and isinstance(group[key], Tensor):
                        now[key].copy_(group[key])
                    else:
                        now[key] = group[key]
                for owner, parameter in zip(group["params"], now["params"], strict=True):
                    self._set(parameter, states[owner], now, stored)

        return apply

    def _states(self, groups: Any, plain: list[Any], stored: StoredTensors) -> dict[str, dict[str, Any]]:
        """The state of each parameter: plain values, and names of tensors as `_Name`, but those that plain values and
        groups name."""
        parameters = self._parameters()
        found: dict[str, dict[str, Any]] = {owner: {} for owner in parameters}
        for row in plain:
            if not (isinstance(row, list) and len(row) == 3 and row[0] in found and isinstance(row[1], str)):
                raise Misfit(self.name, "holds state of an unknown parameter")
            owner, key, value = row
            live = self.optimizer.state.get(parameters[owner], {}).get(key, ANYTHING)
            found[owner][key] = decode(value, live, f"{self.name}/{owner}/{key}", stored)
        for name in set(stored.names(self.name)).difference(names_in(groups), names_in(plain)):
            owner, _, key = name.removeprefix(f"{self.name}/").rpartition("/")
            if owner not in found:
                raise Misfit(name, "belongs to a parameter that is not here any more")
            live = self.optimizer.state.get(parameters[owner], {}).get(key)
            if isinstance(live, Tensor):
                tensor_like(live, name, stored)
            elif stored.form_of(name)[1] not in ((), tuple(parameters[owner].shape)):
                raise Misfit(name, "is neither of its parameter's shape nor a single number")
            found[owner][key] = _Name(name)
        return found

    @torch.no_grad()
    def _set(
        self, parameter: Tensor, state: Mapping[str, Any], group: Mapping[str, Any], stored: StoredTensors
    ) -> None:
        """In place, so that a captured graph sees it. A new tensor is placed as torch's own load_state_dict does it,
        which would also change its type."""
        if not state and parameter not in self.optimizer.state:
            return
        live, on_device = self.optimizer.state[parameter], group.get("capturable") or group.get("fused")
        for key in live.keys() - state.keys():
            del live[key]
        for key, value in state.items():
            if not isinstance(value, _Name):
                live[key] = value
            elif isinstance(live.get(key), Tensor):
                live[key].copy_(stored[value.text])
            else:
                device = "cpu" if key == "step" and not on_device else parameter.device
                found = stored[value.text]
                laid = parameter if found.shape == parameter.shape else found  # a fused step walks both by one index
                live[key] = torch.empty_like(laid, dtype=found.dtype, device=device, requires_grad=False).copy_(found)


@dataclass(frozen=True)
class _Name:
    text: str


@dataclass
class TensorPart:
    """One tensor."""

    name: str
    tensor: Tensor

    def state(self, book: Book) -> Any:
        refuse_overlap(f"{self.name}/tensor", self.tensor)
        book.put(f"{self.name}/tensor", self.tensor, finite=True)

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        where = f"{self.name}/tensor"
        if where in live:  # else it is tied to a part before it
            tensor_like(self.tensor, where, stored)

        def apply() -> None:
            with torch.no_grad():
                self.tensor.copy_(stored[where] if where in live else self.tensor)

        return apply


@dataclass
class GeneratorPart:
    """A torch.Generator."""

    name: str
    generator: torch.Generator

    def state(self, book: Book) -> Any:
        book.put(f"{self.name}/state", self.generator.get_state())

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        where, now = f"{self.name}/state", self.generator.get_state()
        tensor_like(now, where, stored)
        try:
            self.generator.set_state(stored[where])
        except RuntimeError as error:
            raise Misfit(where, "is not a state of this generator") from error
        finally:
            self.generator.set_state(now)

        def apply() -> None:
            self.generator.set_state(stored[where])

        return apply


@dataclass
class StatePart:
    """Anything with state_dict and load_state_dict: a scheduler, a GradScaler, an average of weights."""

    name: str
    owner: Any

    def state(self, book: Book) -> Any:
        return encode(self.owner.state_dict(), f"{self.name}/state", book)

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        value = decode(node, self.owner.state_dict(), f"{self.name}/state", stored)

        def apply() -> None:
            self.owner.load_state_dict(value)

        return apply
