"""The position of a loader: where an epoch is, and how a later process continues there with the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from relay.core.errors import BadConfig
from relay.torch.plain import Misfit
from relay.torch.streams import Drawn, Streams
from storage.wording import counted

GoOn = Callable[[], None]
"""Sets the random streams to those of the checkpoint."""


class BadLoader(BadConfig):
    """A loader whose position cannot be saved."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"Cannot save the position of a {kind}: {why}.")
        self.kind, self.why = kind, why


class NoLoader:
    """A loop without a loader."""

    epoch = 0
    generators: Mapping[str, torch.Generator] = {}
    """The loader's own random streams, by name."""

    def position(self) -> Any:
        """Plain values and tensors from which a later process continues."""
        return None

    def resume(self, position: Any, go_on: GoOn) -> None:
        """Continue at the position; call `go_on` when nothing is drawn any more to get there. Raises Misfit first."""
        if position is not None:
            raise Misfit("loader", "is not here any more")
        go_on()

    def batches(self) -> Iterator[Any]:
        """Endless."""
        while True:
            yield None


class StateLoader:
    """An iterable with state_dict and load_state_dict, such as torchdata's StatefulDataLoader."""

    generators: Mapping[str, torch.Generator] = {}

    def __init__(self, loader: Any) -> None:
        self._loader, self.epoch = loader, 0
        self._go_on: GoOn | None = None

    def position(self) -> Any:
        """Its own state."""
        return {"epoch": self.epoch, "state": self._loader.state_dict()}

    def resume(self, position: Any, go_on: GoOn) -> None:
        """Load its state, and go on once its iterator is made."""
        _check(position, {"epoch", "state"}, "epoch")
        self.epoch, self._go_on = position["epoch"], go_on
        self._loader.load_state_dict(position["state"])

    def batches(self) -> Iterator[Any]:
        """Endless."""
        while True:
            _set_epoch(self._loader, self.epoch)
            items, seen = iter(self._loader), False
            if self._go_on is not None:
                self._go_on()
                self._go_on, seen = None, True  # what remains of this epoch may be nothing
            for batch in items:
                seen = True
                yield batch
            _refuse_empty(seen, self._loader)
            self.epoch += 1


class MapLoader:
    """A map-style DataLoader. It is skipped through its sampler, without reading data."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.generators = dict(_generators(loader))
        self._streams = Streams(generators=self.generators)
        self._loader = copy.copy(loader)  # its own attributes may not be replaced once it is made
        key = "sampler" if loader.batch_sampler is None else "batch_sampler"
        self._sampler = _Sampler(getattr(loader, key), self._streams)
        self._loader.__dict__[key] = self._sampler
        self._original, self.epoch, self._batch = loader, 0, 0

    def position(self) -> Any:
        """Epoch, batches done in it, and the streams from which its order follows."""
        found = {"epoch": self.epoch, "batch": self._batch}
        return found | ({"made": self._sampler.made, "drawn": self._sampler.drawn} if self._batch else {})

    def resume(self, position: Any, go_on: GoOn) -> None:
        """The next batch is the one that followed; go on once the epoch's order is drawn again."""
        of = ("made", "drawn") if isinstance(position, dict) and position.get("batch") else ()
        _check(position, {"epoch", "batch", *of}, "epoch", "batch")
        with suppress(TypeError):  # a sampler may have no length
            if position["batch"] > (most := len(self._loader)):
                raise Misfit("loader", f"is at batch {position['batch']:,} of an epoch that has {most:,} here")
        for key in of:
            self._streams.check(position[key], f"loader.{key}")
        self.epoch, self._batch = position["epoch"], position["batch"]
        if self._batch:
            self._sampler.made, self._sampler.drawn = position["made"], position["drawn"]
            self._sampler.skip, self._sampler.go_on = self._batch, go_on
            return
        go_on()
        if self._loader.persistent_workers and self.epoch:
            self._sampler.go_on = go_on  # making the iterator again would not have drawn a seed

    def batches(self) -> Iterator[Any]:
        """Endless."""
        original, inner = self._original, getattr(self._sampler.inner, "sampler", None)
        while True:
            for part in (original.sampler, original.batch_sampler, inner):
                _set_epoch(part, self.epoch)
            seen = self._batch > 0
            for batch in self._loader:
                if not self._sampler.made:
                    raise BadLoader(type(original).__name__, "its batches do not come from its sampler")
                seen = True
                self._batch += 1
                yield batch
            _refuse_empty(seen, original)
            self.epoch, self._batch = self.epoch + 1, 0


class _Sampler:
    """A sampler that can begin in the middle of an epoch. It notes the random streams of each epoch's start: when its
    iterator is made, and when the first item is drawn. Between the two, a DataLoader draws too."""

    def __init__(self, inner: Any, streams: Streams) -> None:
        self.inner, self._streams = inner, streams
        self.made: Drawn = {}
        self.drawn: Drawn = {}
        self.skip = 0
        """Items to skip in the next epoch, which then begins with `made` and `drawn`."""
        self.go_on: GoOn | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.skip:
            self._streams.restore(self.made)
        else:
            self.made = self._streams.capture()
        return self._items(iter(self.inner))

    def _items(self, items: Iterator[Any]) -> Iterator[Any]:
        skip, self.skip = self.skip, 0
        go_on, self.go_on = self.go_on, None
        if skip:
            self._streams.restore(self.drawn)
            if (had := sum(1 for _ in islice(items, skip))) < skip:
                raise BadLoader(
                    type(self.inner).__name__, f"it has {counted(had, 'item')}, and {skip:,} were done before"
                )
        if go_on is not None:  # last: nothing that made the iterator counts
            go_on()
        if not skip:
            self.drawn = self._streams.capture()
        yield from items

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        """A loader of the user's own class may ask its sampler more."""
        return getattr(self.inner, name)


Loader = NoLoader | StateLoader | MapLoader


def loader_of(loader: Any) -> Loader:
    """How to save this loader's position. Raises BadLoader."""
    if callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None)):
        return StateLoader(loader)
    if not isinstance(loader, DataLoader):
        raise BadLoader(type(loader).__name__, "it is not a DataLoader, and has no state_dict and load_state_dict")
    if isinstance(loader.dataset, IterableDataset):
        raise BadLoader("DataLoader of an IterableDataset", "it has no state_dict; torchdata's StatefulDataLoader has")
    if loader.num_workers and not getattr(loader, "in_order", True):
        raise BadLoader("DataLoader with in_order=False", "its batches come as its workers are done")
    if getattr(loader, "_iterator", None) is not None:
        raise BadLoader("DataLoader", "its persistent workers run already: use one that was not read before")
    return MapLoader(loader)


def _check(position: Any, keys: set[str], *counts: str) -> None:
    """Raises Misfit."""
    if not isinstance(position, dict) or position.keys() != keys:
        raise Misfit("loader", "had another kind of position")
    if any(type(position[key]) is not int or not 0 <= position[key] < 2**53 for key in counts):
        raise Misfit("loader", "has no position")


def _generators(loader: DataLoader[Any]) -> Iterator[tuple[str, torch.Generator]]:
    """The loader's own random streams, each once, also those of samplers within its sampler."""
    seen = set[int]()
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    owners = [("loader", loader), ("sampler", sampler), ("inner", getattr(sampler, "sampler", None))]
    for name, owner in owners:
        found = {name: getattr(owner, "generator", None)}
        if owner is not loader and id(owner) not in seen:
            seen.add(id(owner))
            within = {f"{name}.{key}": value for key, value in getattr(owner, "__dict__", {}).items()}
            owners += [(key, value) for key, value in within.items() if isinstance(value, Sampler)]
            found |= within
        for key, value in found.items():
            if isinstance(value, torch.Generator) and id(value) not in seen:
                seen.add(id(value))
                yield key, value


def _set_epoch(owner: Any, epoch: int) -> None:
    if callable(method := getattr(owner, "set_epoch", None)):
        method(epoch)


def _refuse_empty(seen: bool, loader: Any) -> None:
    if not seen:
        raise BadLoader(type(loader).__name__, "an epoch of it has no batch")
