"""The parts that a user's loop tracks: modules, optimizers, tensors, generators, anything with a state_dict.

Each part becomes tensors with stable names and one plain JSON value, and is loaded back in place. Names do not depend
on how a module is wrapped. The live objects decide what a checkpoint may hold (PROTOCOL P13): keys, types and shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import dumps
from relay.core.runs.ownloop import RESERVED
from relay.torch.loopfiles import MAX_JSON, StoredTensors
from relay.torch.plain import ANYTHING, Book, Misfit, Unstorable, decode, encode, form
from relay.torch.statefile import MAX_HEADER

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
WRAPPERS = re.compile(r"(^|\.)(?:module|_orig_mod)\.")
"""DistributedDataParallel, AveragedModel and torch.compile add these to the names of what they wrap."""
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


@dataclass
class ModulePart:
    """A module: parameters and persistent buffers by their stable names, and extra state."""

    name: str
    module: nn.Module

    def state(self, book: Book) -> Any:
        extra = []
        for key, value in self.module.state_dict(keep_vars=True).items():
            where = f"{self.name}/{stable(key)}"
            if isinstance(value, UninitializedParameter | UninitializedBuffer):
                raise Unstorable(where, "has no shape yet: run one batch through the module first")
            if isinstance(value, Tensor):
                book.put(where, value, finite=isinstance(value, nn.Parameter))
            else:
                extra.append([stable(key), encode(value, where, book)])
        return extra

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        extra = _pairs(node, self.name)
        values, tensors = dict[str, Any](), list[tuple[Tensor, str]]()
        for key, value in self.module.state_dict(keep_vars=True).items():
            where = f"{self.name}/{stable(key)}"
            if not isinstance(value, Tensor):
                if stable(key) not in extra:
                    raise Misfit(where, "is new here")
                values[key] = decode(extra.pop(stable(key)), value, where, stored)
            elif where in live:  # a tied tensor is stored, and loaded, under its first name
                tensor_like(value, where, stored)
                tensors.append((value, where))
        if extra:
            raise Misfit(f"{self.name}/{next(iter(extra))}", "is not here any more")

        def apply() -> None:
            with torch.no_grad():
                for tensor, where in tensors:
                    tensor.copy_(stored[where])
            for key, value in values.items():
                owner, _, _ = key.rpartition(".")
                self.module.get_submodule(owner).set_extra_state(value)

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

    def state(self, book: Book) -> Any:
        plain = []
        for owner, parameter in self._parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                where = f"{self.name}/{owner}/{key}"
                if isinstance(value, Tensor):
                    if value.dim() and value.shape != parameter.shape:
                        raise Unstorable(where, "is neither of its parameter's shape nor a single number")
                    book.put(where, value, finite=True)
                else:
                    plain.append([owner, key, encode(value, where, book)])
        return {"groups": [self._group(i, group, book) for i, group in enumerate(self.optimizer.param_groups)]} | (
            {"plain": plain} if plain else {}
        )

    def _group(self, i: int, group: Mapping[str, Any], book: Book) -> Any:
        settings = [
            [key, encode(value, f"{self.name}/group {i}/{key}", book)]
            for key, value in group.items()
            if key != "params"
        ]
        return [[self.owners[id(parameter)] for parameter in group["params"]], settings]

    def _parameters(self) -> Iterator[tuple[str, Tensor]]:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                yield self.owners[id(parameter)], parameter

    def fit(self, node: Any, stored: StoredTensors, live: Mapping[str, Tensor]) -> Apply:
        if not isinstance(node, dict) or not {"groups"} <= node.keys() <= {"groups", "plain"}:
            raise Misfit(self.name, "is not a stored optimizer")
        settings = self._settings(node["groups"], stored)
        states = self._states(node.get("plain", []), stored)

        def apply() -> None:
            for group, values in zip(self.optimizer.param_groups, settings, strict=True):
                for key, value in values.items():
                    if isinstance(group[key], Tensor) and isinstance(value, Tensor):
                        group[key].copy_(value)
                    else:
                        group[key] = value
            for (owner, parameter), state in zip(self._parameters(), states, strict=True):
                if state or parameter in self.optimizer.state:
                    self._set(parameter, owner, state, stored)

        return apply

    def _settings(self, groups: Any, stored: StoredTensors) -> list[dict[str, Any]]:
        mine = self.optimizer.param_groups
        if not isinstance(groups, list) or len(groups) != len(mine):
            count = len(groups) if isinstance(groups, list) else 0
            raise Misfit(self.name, f"has {count} parameter groups, and {len(mine)} here")
        found = []
        for i, (group, live) in enumerate(zip(groups, mine, strict=True)):
            where = f"{self.name}/group {i}"
            if not isinstance(group, list) or len(group) != 2:
                raise Misfit(where, "is not a stored group")
            if group[0] != [self.owners[id(parameter)] for parameter in live["params"]]:
                raise Misfit(where, "has other parameters here")
            values = _pairs(group[1], where)
            odd = sorted(values.keys() ^ (live.keys() - {"params"}))
            if odd:
                raise Misfit(f"{where}/{odd[0]}", "is new here" if odd[0] in live else "is not here any more")
            found.append({key: decode(v, live[key], f"{where}/{key}", stored) for key, v in values.items()})
        return found

    def _states(self, plain: Any, stored: StoredTensors) -> list[dict[str, Any]]:
        """For each parameter, its state: plain values, and names of tensors as `_Name`."""
        parameters = dict(self._parameters())
        found: dict[str, dict[str, Any]] = {owner: {} for owner in parameters}
        for row in plain if isinstance(plain, list) else [None]:
            if not (isinstance(row, list) and len(row) == 3 and row[0] in found and isinstance(row[1], str)):
                raise Misfit(self.name, "holds state of an unknown parameter")
            where = f"{self.name}/{row[0]}/{row[1]}"
            live = self.optimizer.state.get(parameters[row[0]], {}).get(row[1], ANYTHING)
            found[row[0]][row[1]] = decode(row[2], live, where, stored)
        for name in stored.names(self.name):
            owner, _, key = name.removeprefix(f"{self.name}/").rpartition("/")
            if owner.startswith("group "):
                continue
            if owner not in found:
                raise Misfit(name, "belongs to a parameter that is not here any more")
            parameter = parameters[owner]
            live = self.optimizer.state.get(parameter, {}).get(key)
            if isinstance(live, Tensor):
                tensor_like(live, name, stored)
            elif stored.form_of(name)[1] not in ((), tuple(parameter.shape)):
                raise Misfit(name, "is neither of its parameter's shape nor a single number")
            found[owner][key] = _Name(name)
        return list(found.values())

    @torch.no_grad()
    def _set(self, parameter: Tensor, owner: str, state: Mapping[str, Any], stored: StoredTensors) -> None:
        live, group = self.optimizer.state[parameter], self._group_of(parameter)
        on_device = group.get("capturable") or group.get("fused")
        for key in list(live):
            if key not in state:
                del live[key]
        for key, value in state.items():
            if not isinstance(value, _Name):
                live[key] = value
            elif isinstance(live.get(key), Tensor):
                live[key].copy_(stored[value.text])
            else:  # as torch's own load_state_dict places it, which would also change its type
                device = "cpu" if key == "step" and not on_device else parameter.device
                live[key] = stored[value.text].to(device)

    def _group_of(self, parameter: Tensor) -> Mapping[str, Any]:
        return next(g for g in self.optimizer.param_groups if any(p is parameter for p in g["params"]))


@dataclass(frozen=True)
class _Name:
    text: str


@dataclass
class TensorPart:
    """One tensor."""

    name: str
    tensor: Tensor

    def state(self, book: Book) -> Any:
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
        tensor_like(self.generator.get_state(), f"{self.name}/state", stored)

        def apply() -> None:
            self.generator.set_state(stored[f"{self.name}/state"])

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


def _pairs(node: Any, where: str) -> dict[str, Any]:
    """A list of [name, JSON] as a dict. Raises Misfit."""
    if not isinstance(node, list):
        raise Misfit(where, "is not a stored value")
    found: dict[str, Any] = {}
    for pair in node:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or pair[0] in found:
            raise Misfit(where, "is not a stored value")
        found[pair[0]] = pair[1]
    return found
