"""Several processes that train together: orders of the first one (`Team`), and the exchange of a batch (`Peers`).

Started by relay/torch/launch.py or by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). `Peers` share
each batch, one GPU each. Sums are added in the order of the processes, not in an order that a library chooses. So the
bytes depend on the number of processes alone, and equal those of one process that takes the batch in the same number
of parts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relay.core.errors import Exit, RelayError
from relay.core.settings.origins import LEADER
from relay.torch.launch import followers, launched

ALIGNMENT = 16
PATIENCE = timedelta(days=2)
"""Followers wait for the leader while it evaluates, uploads, or keeps its machine."""
WORK = timedelta(minutes=30)
"""Longest wait within a step, because the first one compiles. Torch ends a process that waits longer on a GPU."""
ANSWER_S = 120.0
"""Longest wait of the leader for the followers in later steps, for which every process needs about the same time."""
LOOK_S = 0.1
"""Between two looks whether the others live, while they connect."""
SLICE = timedelta(seconds=1)
"""The leader waits in parts, between which Python answers signals."""
PARTING_S = 5.0
"""Longest wait at the end for the threads that watch the followers."""
SHORT, LONGEST_ORDER = 128, 100_000
"""Bytes."""


class PeerLost(RelayError):
    """Another process is gone, or does not answer: no collective can follow."""

    exit_code = Exit.HANDOFF


class Team:
    """One of `size` processes; `rank` 0 leads: it sends orders, and the others answer."""

    def __init__(self, rank: int, size: int, connect: Callable[[], object] = lambda: None) -> None:
        """connect: initializes torch.distributed, unless that is done. Raises PeerLost."""
        self.rank, self.size = rank, size
        self.lost = ""
        """The process that is gone, in a sentence; empty while all are there."""
        self.answer_s = WORK.total_seconds()
        self._watches: list[Thread] = []
        with self._noticing():
            _while_all_live(partial(self._connect, connect))
        for other in range(1, size) if rank == 0 else ():
            self._watches.append(Thread(target=self._watch, args=(other,), daemon=True))
            self._watches[-1].start()

    def _connect(self, connect: Callable[[], object]) -> None:
        """Waits for all processes. Raises RuntimeError."""
        connect()
        self._orders = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._signs = dist.new_group(backend="gloo", timeout=PATIENCE)

    def order(self, what: Mapping[str, Any]) -> None:
        """The leader sends the followers an order, as plain JSON values; a short one in one message."""
        text = json.dumps(what).encode()
        sent = bytearray(len(text).to_bytes(8, "little") + text).ljust(SHORT)
        self._tell(torch.frombuffer(sent, dtype=torch.uint8)[:SHORT])
        if len(sent) > SHORT:
            self._tell(torch.frombuffer(sent, dtype=torch.uint8)[SHORT:].clone())

    def obey(self) -> dict[str, Any]:
        """A follower waits for the next order."""
        data = self._told(SHORT)
        size = int.from_bytes(data[:8], "little")
        if not 0 < size <= LONGEST_ORDER:
            raise ValueError(f"an order of {size} bytes")
        data += self._told(8 + size - SHORT) if 8 + size > SHORT else b""
        found: dict[str, Any] = json.loads(data[8 : 8 + size])
        return found

    def gather(self, mine: bytes) -> list[bytes]:
        """The values that the processes passed, in their order; every process calls it. Raises PeerLost."""
        size = torch.tensor([len(mine)])
        sizes = [torch.zeros_like(size) for _ in range(self.size)]
        self._run(lambda later: dist.all_gather(sizes, size, group=self._orders, async_op=later), size)
        sent = torch.zeros(max(int(each) for each in sizes), dtype=torch.uint8)
        sent[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else sent[:0]
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self._run(lambda later: dist.all_gather(found, sent, group=self._orders, async_op=later), sent)
        return [each.numpy().tobytes()[: int(length)] for each, length in zip(found, sizes, strict=True)]

    def check(self) -> None:
        """Raises PeerLost once another process is gone."""
        if self.lost:
            raise PeerLost(self.lost)

    def gone(self) -> str:
        """The leader's sentence on the process that is gone; waits a moment for a sign of it."""
        for watch in self._watches:
            watch.join(PARTING_S / self.size)
        return self.lost

    def close(self) -> None:
        """Part, the followers first."""
        for watch in self._watches:
            watch.join(PARTING_S)
        self._disconnect()

    def _disconnect(self) -> None:
        for group in (self._orders, self._signs):
            dist.destroy_process_group(group)
        del self._orders, self._signs

    def _tell(self, tensor: Tensor) -> None:
        """Send the leader's values to the followers, among which there may be hours."""
        self._run(lambda later: dist.broadcast(tensor, 0, group=self._orders, async_op=later), tensor)

    def _told(self, size: int) -> bytes:
        tensor = torch.empty(size, dtype=torch.uint8)
        self._tell(tensor)
        return tensor.numpy().tobytes()

    def _run(self, collective: Callable[[bool], dist.Work | None], of: Tensor) -> None:
        """Take part in a collective, which returns at once if its argument is true. On a GPU it is only queued.

        Raises PeerLost.
        """
        with self._noticing():
            if self.rank > 0 or of.device.type == "cuda":
                collective(False)
            else:
                self._await(collective(True))

    def _await(self, work: dist.Work | None) -> None:
        """The leader waits for the followers. Raises RuntimeError, PeerLost."""
        assert work is not None, "every process is in the group"
        for _ in range(math.ceil(self.answer_s / SLICE.total_seconds())):
            try:
                work.wait(SLICE)
            except RuntimeError:
                if work.is_completed():
                    raise
                self.check()
            else:
                return
        self.lost = f"Another of the {self.size} processes has not answered for {self.answer_s:.0f} s."
        self.check()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Raise an error of a collective as PeerLost; raise it at once if a process is gone already."""
        self.check()
        try:
            yield
        except RuntimeError as error:
            first = "The first" if self.rank else "Another"
            self.lost = self.gone() or f"{first} of the {self.size} processes is gone."
            raise PeerLost(self.lost) from error

    def _watch(self, rank: int) -> None:
        """Wait for the end of a follower, which sends nothing; a collective on a GPU would wait for it for ever."""
        try:
            dist.recv(torch.zeros(1), src=rank, group=self._signs)
        except RuntimeError:
            mine = followers()
            fate = f" ({mine.fate(rank)})" if mine else ""
            self.lost = self.lost or f"Process {rank + 1} of {self.size} is gone{fate}."


def _while_all_live(connect: Callable[[], None]) -> None:
    """Call `connect`. Raises its error, or NeverMet once a process that this one has started ends or is too late."""
    mine = followers()
    if mine is None:
        connect()
        return
    errors: list[Exception] = []

    def body() -> None:
        try:
            connect()
        except Exception as error:  # noqa: BLE001 - raised below, by the thread that waits
            errors.append(error)

    connecting = Thread(target=body, daemon=True)
    connecting.start()
    while connecting.is_alive():
        connecting.join(LOOK_S)
        if connecting.is_alive():
            mine.check()
    for error in errors:
        raise error


@cache
def meet() -> Peers:
    """The one group of this process, created at first use."""
    return Peers()


class Peers(Team):
    """Processes that torchrun started, and that share each batch."""

    def __init__(self) -> None:
        """Connects to the others: NCCL between GPUs, gloo between CPUs and for orders."""
        cuda = torch.cuda.is_available()
        rank, size = int(os.environ["RANK"]), launched()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        super().__init__(rank, size, partial(self._meet, "cpu:gloo,cuda:nccl" if cuda else "gloo"))

    def _meet(self, backend: str) -> None:
        """Waits for all processes. Raises RuntimeError."""
        store = None
        if LEADER in os.environ:
            mine, port = followers(), int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(  # type: ignore[attr-defined]
                os.environ["MASTER_ADDR"],
                port,
                self.size,
                is_master=self.rank == 0,
                timeout=WORK,
                wait_for_workers=False,
                master_listen_fd=mine.listener if mine else None,
            )
        dist.init_process_group(backend, timeout=WORK, rank=self.rank, world_size=self.size, store=store)

    def rows(self, batch: int) -> slice:
        """This process's rows of a batch. Raises ValueError if they cannot be shared evenly."""
        if batch % self.size:
            raise ValueError(
                f"{self.size} processes cannot share a batch of {batch} evenly. Start a number that divides it."
            )
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def exchange(self, sums: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
        """In place, in one collective: each of `sums` becomes the sum over all processes in their order; each of `rows`
        (B, ...), of which every process has filled its own rows, becomes complete."""
        mine = [self.rows(len(tensor)) for tensor in rows]
        sent = [*sums, *(tensor[part] for tensor, part in zip(rows, mine, strict=True))]
        packed = _pack(sent)
        received = packed.new_empty(self.size, len(packed))
        self._run(lambda later: dist.all_gather(list(received.unbind(0)), packed, async_op=later), packed)
        for total in sums:
            total.zero_()
        for rank in range(self.size):
            values = _unpack(received[rank], sent)
            for total, value in zip(sums, values[: len(sums)], strict=True):
                total.add_(value)
            for tensor, value in zip(rows, values[len(sums) :], strict=True):
                tensor[rank * len(value) : (rank + 1) * len(value)] = value

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Every process gets the leader's values, in place."""
        buffer = _pack(tensors)
        self._run(lambda later: dist.broadcast(buffer, 0, async_op=later), buffer)
        for tensor, value in zip(tensors, _unpack(buffer, tensors), strict=True):
            tensor.copy_(value)

    def _disconnect(self) -> None:
        dist.destroy_process_group()


def _padded(tensor: Tensor) -> int:
    """Bytes of a tensor in a packed buffer."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """uint8: the tensors' bytes, one after another."""
    buffer = torch.zeros(sum(_padded(t) for t in tensors), dtype=torch.uint8, device=tensors[0].device)
    at = 0
    for tensor in tensors:
        raw = tensor.contiguous().view(-1).view(torch.uint8)
        buffer[at : at + len(raw)] = raw
        at += _padded(tensor)
    return buffer


def _unpack(buffer: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `buffer` with the shapes and types of `like`."""
    found, at = [], 0
    for tensor in like:
        size = tensor.numel() * tensor.element_size()
        found.append(buffer[at : at + size].view(tensor.dtype).view(tensor.shape))
        at += _padded(tensor)
    return found
