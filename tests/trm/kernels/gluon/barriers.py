"""Barriers whose phase ends after so many arrivals, and when all bytes that were expected have come."""

from __future__ import annotations

from tests.trm.kernels.gluon.machine import Machine, Race


class Barrier:
    """As the hardware's: who waits sees the parity of its phase and nothing else."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.count = self.missing = self.phase = self.bytes = 0

    def __str__(self) -> str:
        return f"{self.place} (phase {self.phase}: {self.missing} arrivals and {self.bytes} bytes are missing)"

    def meet(self, arrivals: int, size: int) -> None:
        if arrivals > self.missing:
            raise Race(f"more arrivals than a phase has: barrier {self}")
        self.missing -= arrivals
        self.bytes += size
        if self.missing == self.bytes == 0:
            self.phase, self.missing = self.phase + 1, self.count


class Passing:
    """Whether a barrier's last phase had this parity; says what is missing."""

    def __init__(self, barrier: Barrier, parity: int) -> None:
        self.barrier, self.parity = barrier, parity

    def __call__(self) -> bool:
        return self.barrier.phase & 1 != self.parity

    def __str__(self) -> str:
        return f"for parity {self.parity} of barrier {self.barrier}"


class Barriers(list[Barrier]):
    """What kernels call `index` on."""

    def index(self, i: int) -> Barrier:  # type: ignore[override]
        assert 0 <= i < len(self), f"barrier {i} of {len(self)}"
        return self[i]


def init(barrier: Barrier, count: int) -> None:
    assert not barrier.count, "begun twice"
    barrier.count = barrier.missing = count


def wait(barrier: Barrier, parity: int) -> None:
    assert barrier.count, "not begun"
    Machine.present.pause(Passing(barrier, int(parity)))


def arrive(barrier: Barrier, pred: bool = True) -> None:
    Machine.present.pause()
    if pred:
        barrier.meet(1, 0)


def expect(barrier: Barrier, size: int, pred: bool = True) -> None:
    """An arrival, and so many bytes in bulk."""
    Machine.present.pause()
    if pred:
        barrier.meet(1, size)
