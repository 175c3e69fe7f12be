"""The position of a loader: where an epoch is, and how a later process continues there with the same batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from relay.core.errors import BadConfig
from relay.torch.plain import Misfit
from relay.torch.streams import Streams, capture, restore


class BadLoader(BadConfig):
    """A loader whose position cannot be saved."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"Cannot save the position of a {kind}: {why}.")
        self.kind, self.why = kind, why


class _Sampler:
    """A sampler that can begin in the middle of an epoch. It notes the random streams of each epoch's start: when its
    iterator is made, and when the first item is drawn. Between the two, a DataLoader draws too."""

    def __init__(self, inner: Any, generators: Mapping[str, torch.Generator]) -> None:
        self.inner, self.generators = inner, generators
        self.made: Streams = {}
        self.drawn: Streams = {}
        self.skip = 0
        """Items to skip in the next epoch, which then begins with `made` and `drawn`, and goes on with `after`."""
        self.after: Streams | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.skip:
            restore(self.made, self.generators)
        else:
            self.made = capture(generators=self.generators)
        return self._items(iter(self.inner))

    def _items(self, items: Iterator[Any]) -> Iterator[Any]:
        after, self.after = self.after, None
        if self.skip:
            restore(self.drawn, self.generators)
            for _ in range(self.skip):
                next(items, None)
            self.skip = 0
        if after is not None:  # set last: nothing that made the iterator counts
            restore(after, self.generators)
        else:
            self.drawn = capture(generators=self.generators)
        yield from items

    def __len__(self) -> int:
        return len(self.inner)


class NoLoader:
    """A loop without a loader."""

    epoch = 0
    generators: Mapping[str, torch.Generator] = {}

    def position(self) -> Any:
        """Nothing to save."""
        return None

    def check(self, position: Any) -> None:
        """Raises Misfit if an earlier session had a loader."""
        if position is not None:
            raise Misfit("loader", "is not here any more")

    def resume(self, position: Any, streams: Streams) -> None:
        """Continue with these streams."""
        restore(streams)

    def batches(self) -> Iterator[Any]:
        """Endless."""
        while True:
            yield None


class StateLoader:
    """An iterable with state_dict and load_state_dict, such as torchdata's StatefulDataLoader."""

    generators: Mapping[str, torch.Generator] = {}

    def __init__(self, loader: Any) -> None:
        self._loader, self.epoch = loader, 0
        self._after: Streams | None = None

    def position(self) -> Any:
        """Its own state."""
        return {"epoch": self.epoch, "state": self._loader.state_dict()}

    def check(self, position: Any) -> None:
        """Raises Misfit."""
        if not isinstance(position, dict) or position.keys() != {"epoch", "state"}:
            raise Misfit("loader", "had another kind of position")
        if type(position["epoch"]) is not int or position["epoch"] < 0:
            raise Misfit("loader", "has no epoch")

    def resume(self, position: Any, streams: Streams) -> None:
        """Load its state, then continue with these streams."""
        self.epoch, self._after = position["epoch"], streams
        self._loader.load_state_dict(position["state"])

    def batches(self) -> Iterator[Any]:
        """Endless."""
        while True:
            _set_epoch(self._loader, self.epoch)
            items, seen = iter(self._loader), False
            if self._after is not None:
                restore(self._after)
                self._after, seen = None, True  # what remains of this epoch may be nothing
            for batch in items:
                seen = True
                yield batch
            _refuse_empty(seen, self._loader)
            self.epoch += 1


class MapLoader:
    """A map-style DataLoader. It is skipped through its sampler, without reading data."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.generators = dict(_generators(loader))
        self._loader = copy.copy(loader)  # its own attributes may not be replaced once it is made
        key = "sampler" if loader.batch_sampler is None else "batch_sampler"
        self._sampler = _Sampler(getattr(loader, key), self.generators)
        self._loader.__dict__[key] = self._sampler
        self._original, self.epoch, self._batch = loader, 0, 0

    def position(self) -> Any:
        """Epoch, batches done in it, and the streams from which its order follows."""
        if not self._batch:
            return {"epoch": self.epoch, "batch": 0}
        return {
            "epoch": self.epoch, "batch": self._batch, "made": self._sampler.made, "drawn": self._sampler.drawn
        }  # fmt: skip

    def check(self, position: Any) -> None:
        """Raises Misfit."""
        if not isinstance(position, dict) or not {"epoch", "batch"} <= position.keys():
            raise Misfit("loader", "had another kind of position")
        if any(type(position[key]) is not int or not 0 <= position[key] < 2**53 for key in ("epoch", "batch")):
            raise Misfit("loader", "has no position")
        most = len(self._loader)
        if position["batch"] > most:
            raise Misfit("loader", f"is at batch {position['batch']:,} of an epoch that has {most:,} here")
        expected = {"epoch", "batch", "made", "drawn"} if position["batch"] else {"epoch", "batch"}
        if position.keys() != expected:
            raise Misfit("loader", "lacks its streams")

    def resume(self, position: Any, streams: Streams) -> None:
        """The next batch is the one that followed; what is drawn from then on follows `streams`."""
        self.epoch, self._batch = position["epoch"], position["batch"]
        if self._batch:
            self._sampler.made, self._sampler.drawn = position["made"], position["drawn"]
            self._sampler.skip, self._sampler.after = self._batch, streams
        else:
            restore(streams, self.generators)
            if self._loader.persistent_workers and self.epoch:
                self._sampler.after = streams  # making the iterator again would not have drawn a seed

    def batches(self) -> Iterator[Any]:
        """Endless."""
        while True:
            for part in (
                self._original.sampler,
                self._original.batch_sampler,
                getattr(self._sampler.inner, "sampler", 0),
            ):
                _set_epoch(part, self.epoch)
            seen = self._batch > 0
            for batch in self._loader:
                seen = True
                self._batch += 1
                yield batch
            _refuse_empty(seen, self._original)
            self.epoch, self._batch = self.epoch + 1, 0


Loader = NoLoader | StateLoader | MapLoader


def loader_of(loader: Any) -> Loader:
    """How to save this loader's position. Raises BadLoader."""
    if callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None)):
        return StateLoader(loader)
    if not isinstance(loader, DataLoader):
        raise BadLoader(type(loader).__name__, "it is not a DataLoader, and has no state_dict and load_state_dict")
    if isinstance(loader.dataset, IterableDataset):
        raise BadLoader("DataLoader of an IterableDataset", "it has no state_dict; torchdata's StatefulDataLoader has")
    return MapLoader(loader)


def _generators(loader: DataLoader[Any]) -> Iterator[tuple[str, torch.Generator]]:
    """The loader's own random streams, each once."""
    seen = set[int]()
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    for name, owner in (("loader", loader), ("sampler", sampler), ("inner", getattr(sampler, "sampler", None))):
        found = getattr(owner, "generator", None)
        if isinstance(found, torch.Generator) and id(found) not in seen:
            seen.add(id(found))
            yield name, found


def _set_epoch(owner: Any, epoch: int) -> None:
    if callable(method := getattr(owner, "set_epoch", None)):
        method(epoch)


def _refuse_empty(seen: bool, loader: Any) -> None:
    if not seen:
        raise BadLoader(type(loader).__name__, "an epoch of it has no batch")
