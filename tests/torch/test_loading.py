"""A loader continues with the batches, and the random numbers, that the unbroken loop would have seen."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from relay.torch.loading import BadLoader, loader_of
from relay.torch.plain import ANYTHING, Book, Misfit, decode, encode
from relay.torch.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:'set_vital'")]  # by torchdata

N = 11


class Noisy(Dataset[Any]):
    """Draws from every stream of the process that reads it, as augmentations do; counts its reads."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        self.reads += 1
        return torch.tensor([i, random.random(), np.random.rand(), float(torch.rand(()))])


class Plain(Noisy):
    def __getitem__(self, i: int) -> Any:
        return i


class Stateful:
    """Like torchdata's StatefulDataLoader: its position is its own."""

    def __init__(self) -> None:
        self.at, self.order = 0, list[int]()

    def __iter__(self) -> Iterator[Any]:
        if not self.at:
            self.order = torch.randperm(N).tolist()
        while self.at < N:
            self.at += 1
            yield self.order[self.at - 1]
        self.at = 0

    def state_dict(self) -> Any:
        return {"at": self.at, "order": list(self.order)}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.order = state["at"], state["order"]


def own(**more: Any) -> DataLoader[Any]:
    return DataLoader(Noisy(), 3, shuffle=True, generator=torch.Generator().manual_seed(5), **more)


class NoLength:
    """Batches of an epoch, whose number only its end shows."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(N).tolist()
        yield from (order[i : i + 3] for i in range(0, N, 3))


class Deep(NoLength):
    """Its order comes from a sampler within it, and from a random stream of its own name."""

    def __init__(self) -> None:
        self.base = RandomSampler(range(N), generator=torch.Generator().manual_seed(4))
        self.dice = torch.Generator().manual_seed(5)

    def __iter__(self) -> Iterator[list[int]]:
        order, size = list(self.base), int(torch.randint(2, 4, (), generator=self.dice))
        yield from (order[i : i + size] for i in range(0, N, size))


def used() -> DataLoader[Any]:
    """The script has read it already, so its persistent workers run."""
    loader = DataLoader(Plain(), 3, shuffle=True, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == len(loader)
    return loader


class Asking(DataLoader[Any]):
    """Asks its sampler for what only that one has."""

    def __len__(self) -> int:
        return -(-N // self.batch_sampler.batch_size)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        assert self.batch_sampler.drop_last is False  # type: ignore[union-attr]
        return super().__iter__()


class Fetched(DataLoader[Any]):
    """Makes its iterator once, when it is made itself."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.iterator = super().__iter__()

    def __iter__(self) -> Any:
        return self.iterator


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Noisy(), 3, shuffle=True),
    "in order": lambda: DataLoader(Noisy(), 4),
    "last dropped": lambda: DataLoader(Noisy(), 3, shuffle=True, drop_last=True),
    "own generator": own,
    "one by one": lambda: DataLoader(Noisy(), batch_size=None, shuffle=True),
    "weighted": lambda: DataLoader(Noisy(), 2, sampler=WeightedRandomSampler([1.0] * N, 7)),
    "with replacement": lambda: DataLoader(Noisy(), 5, sampler=RandomSampler(range(N), True, 70)),
    "batch sampler": lambda: DataLoader(Noisy(), batch_sampler=BatchSampler(SequentialSampler(range(N)), 4, False)),
    "distributed": lambda: DataLoader(Noisy(), 2, sampler=DistributedSampler(Noisy(), 2, 1, seed=3)),
    "no length": lambda: DataLoader(Noisy(), batch_sampler=NoLength()),
    "deep": lambda: DataLoader(Noisy(), batch_sampler=Deep()),
    "own class": lambda: Asking(Noisy(), 3, shuffle=True),
    "stateful": Stateful,
    "torchdata": lambda: StatefulDataLoader(Noisy(), 3, shuffle=True),
    "torchdata in order": lambda: StatefulDataLoader(Noisy(), 4),
    "torchdata workers": lambda: StatefulDataLoader(Plain(), 3, shuffle=True, num_workers=2),
    "workers": lambda: DataLoader(Plain(), 3, shuffle=True, num_workers=2),
    "persistent workers": lambda: DataLoader(Plain(), 3, shuffle=True, num_workers=2, persistent_workers=True),
}


def seeded() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def body(batch: Any) -> list[float]:
    """A loop's body: it sees its batch, and draws for itself."""
    return [*torch.as_tensor(batch).flatten().tolist(), random.random(), np.random.rand(), float(torch.rand(()))]


def script(make: Callable[[], Any], steps: int) -> list[list[float]]:
    """The loop without a relay: epoch after epoch."""
    seeded()
    loader, seen, epoch = make(), [], 0
    while len(seen) < steps:
        for owner in (getattr(loader, "sampler", None),):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
        for batch in loader:
            seen.append(body(batch))
            if len(seen) == steps:
                break
        epoch += 1
    return seen


def stored(value: Any) -> Any:
    book = Book()
    node = encode(value, "loader", book)
    return decode(node, ANYTHING, "loader", {name: tensor.clone() for name, tensor in book.tensors.items()})


@pytest.mark.parametrize("kind", LOADERS)
def test_a_broken_loop_sees_what_the_unbroken_one_sees(kind: str) -> None:
    make, steps = LOADERS[kind], 10 if "worker" in kind else 16
    whole = script(make, steps)
    stops = [2, 4] if "worker" in kind else list(range(1, steps))
    for stop in stops:
        seeded()
        first = loader_of(make())
        seen = [body(batch) for batch in itertools.islice(first.batches(), stop)]
        drawn, position = Streams(generators=first.generators).capture(), first.position()
        random.seed(9)
        np.random.seed(9)
        torch.manual_seed(9)  # another process, which began otherwise
        second = loader_of(make())
        streams, drawn = Streams(generators=second.generators), stored(drawn)
        streams.check(drawn, "random")
        second.resume(stored(position), partial(streams.restore, drawn))
        seen += [body(batch) for batch in itertools.islice(second.batches(), steps - stop)]
        assert seen == whole, f"broken after {stop}"


def test_what_was_seen_is_skipped_without_reading_it() -> None:
    first = loader_of(DataLoader(Noisy(), 2, shuffle=True))
    list(itertools.islice(first.batches(), 4))
    data = Noisy()
    second = loader_of(DataLoader(data, 2, shuffle=True))
    second.resume(first.position(), lambda: None)
    next(second.batches())
    assert data.reads == 2


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


@pytest.mark.parametrize(
    "loader", [[1, 2], iter([1]), DataLoader(Stream()), DataLoader(Plain(), num_workers=1, in_order=False)]
)
def test_a_loader_without_a_position_is_refused(loader: Any) -> None:
    with pytest.raises(BadLoader):
        loader_of(loader)


def test_a_loader_whose_workers_run_already_is_refused() -> None:
    with pytest.raises(BadLoader, match="persistent"):
        loader_of(used())


def test_batches_that_do_not_come_from_the_sampler_are_refused() -> None:
    with pytest.raises(BadLoader):
        next(loader_of(Fetched(Noisy(), 3)).batches())


def test_a_position_behind_the_end_of_an_epoch_is_refused_also_without_a_length() -> None:
    drawn = Streams().capture()
    loader = loader_of(DataLoader(Noisy(), batch_sampler=NoLength()))
    loader.resume({"epoch": 0, "batch": 2**52, "made": drawn, "drawn": drawn}, lambda: None)
    with pytest.raises(BadLoader):
        next(loader.batches())


def test_an_epoch_without_batches_ends_the_loop() -> None:
    with pytest.raises(BadLoader):
        next(loader_of(DataLoader(Noisy(), 20, drop_last=True)).batches())


@pytest.mark.parametrize(
    "position",
    [
        None,
        {},
        {"epoch": 0, "batch": 5},
        {"epoch": 0, "batch": 999},
        {"epoch": -1, "batch": 0},
        {"epoch": 1.0, "batch": 0},
    ],
)
def test_a_position_of_an_attacker_is_refused(position: Any) -> None:
    with pytest.raises(Misfit):
        loader_of(DataLoader(Noisy(), 2)).resume(position, lambda: None)


def of_an_attacker() -> Iterator[Any]:
    good = Streams().capture()
    numpy = good["numpy"]
    yield None
    yield {}
    yield good | {"python": (3, (0,) * 624 + (9999,), None)}
    yield good | {"python": (3, (2**70,) * 624 + (1,), None)}
    yield good | {"python": None}
    yield good | {"torch": torch.zeros_like(good["torch"])}
    yield good | {"torch": good["torch"][:-1]}
    yield good | {"numpy": {**numpy, "state": {**numpy["state"], "pos": 4000}}}
    yield good | {"numpy": {**numpy, "bit_generator": "PCG64"}}
    yield good | {"elsewhere": 1}


@pytest.mark.parametrize("drawn", list(of_an_attacker()))
def test_streams_of_an_attacker_are_refused(drawn: Any) -> None:
    before = Streams().capture()
    with pytest.raises(Misfit):
        Streams().check(drawn, "random")
    assert torch.equal(Streams().capture()["torch"], before["torch"]) and random.getstate() == before["python"]
    position = {"epoch": 0, "batch": 1, "made": before, "drawn": drawn}
    with pytest.raises(Misfit):
        loader_of(DataLoader(Noisy(), 2)).resume(position, lambda: None)
