"""The files of a user's loop: one safetensors file and one JSON file for each part, and state.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from relay.core.ledger.canonical import NotCanonical, dumps, loads
from relay.torch.plain import Misfit
from relay.torch.statefile import MAX_HEADER, TYPES, StateDocument, plain_size, save

MAX_JSON = 1 << 18
"""Bytes of the plain values of one part."""
_DTYPES = {text: dtype for dtype, text in TYPES.items()}


def write(
    folder: Path, parts: tuple[str, ...], tensors: Mapping[str, Tensor], nodes: Mapping[str, Any], about: StateDocument
) -> tuple[str, ...]:
    """Write all files into an empty folder, fsynced; their names, sorted. Raises OSError."""
    files = {f"{part}.safetensors": (f"{part}/",) for part in parts}
    return save(folder, files, tensors, about, texts={f"{part}.json": dumps(nodes[part]) for part in parts})


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint's folder, each checked by its header, and read when it is asked for."""

    def __init__(self, folder: Path, parts: tuple[str, ...]) -> None:
        """Raises ValueError (one line) unless the files are whole and each holds its own part's tensors."""
        self._stack, self._files = ExitStack(), dict[str, Any]()
        self._claimed: set[str] = set()
        self._read = WeakValueDictionary[str, Tensor]()
        """Tensors in use, by their names: those that were tied are tied again."""
        try:
            for part in parts:
                self._open(folder / f"{part}.safetensors", part)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, path: Path, part: str) -> None:
        size = plain_size(path)
        try:
            file = self._stack.enter_context(safe_open(path, "pt"))
            names, content = list(file.keys()), 0
            for name in names:
                found = file.get_slice(name)
                if not name.startswith(f"{part}/") or found.get_dtype() not in _DTYPES:
                    raise ValueError(f"{path.name} holds an unknown tensor {name!r:.200}")
                width = torch.empty(0, dtype=_DTYPES[found.get_dtype()]).element_size()
                content += width * int(torch.Size(found.get_shape()).numel())
        except SafetensorError as error:
            raise ValueError(f"{path.name} is not a safetensors file: {error}") from error
        if not content <= size <= content + MAX_HEADER:
            raise ValueError(f"{path.name} has {size} bytes where {content} and a small header belong")
        self._files |= dict.fromkeys(names, file)

    def form_of(self, name: str) -> tuple[torch.dtype, tuple[int, ...]]:
        """Type and shape. Raises Misfit for a name that is not there."""
        if name not in self._files:
            raise Misfit(name, "is new here")
        self._claimed.add(name)
        found = self._files[name].get_slice(name)
        return _DTYPES[found.get_dtype()], tuple(found.get_shape())

    def names(self, part: str) -> list[str]:
        """Names of a part's tensors."""
        return [name for name in self._files if name.startswith(f"{part}/")]

    def unclaim(self) -> None:
        """No part has asked for a tensor yet."""
        self._claimed.clear()

    def refuse_unclaimed(self) -> None:
        """Raises Misfit if no part asked for one of the tensors."""
        for name in self._files:
            if name not in self._claimed:
                raise Misfit(name, "is not here any more")

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def __getitem__(self, name: str) -> Tensor:
        self._claimed.add(name)
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = self._files[name].get_tensor(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def read_node(folder: Path, part: str) -> Any:
    """A part's JSON. Raises ValueError (one line)."""
    path = folder / f"{part}.json"
    if plain_size(path) > MAX_JSON:
        raise ValueError(f"{path.name} has {plain_size(path)} bytes; at most {MAX_JSON} are accepted")
    try:
        return loads(path.read_bytes(), MAX_JSON)
    except NotCanonical as error:
        raise ValueError(f"{path.name} is not valid: {error}") from error
