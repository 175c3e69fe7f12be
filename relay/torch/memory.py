"""Memory of a training step: free memory of a device, and the fewest parts of a batch that fit into it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from relay.core.resources import free_memory
from relay.torch.faults import TaskError

CAP = "TRM_MEMORY_GB"
"""Environment variable: use at most this many gigabytes (10^9 bytes) of the device's (or this machine's) memory."""
SLACK = 1.05
"""Free memory must exceed the prediction by this factor: an allocator's holes, and uncounted tensors."""


@dataclass(frozen=True)
class Need:
    """Peak memory as a function of how many rows go through the network at once."""

    fixed: float
    """Weights, optimizer, and tensors for the whole batch, independent of the split."""
    per_row: float
    """Activations kept for the backward pass, and its own."""
    evaluated: float
    """Activations of an evaluation, which runs between two steps."""
    beside: float
    """Memory of a session in addition to both: snapshots, and evaluation if a graph keeps the step's memory."""

    def peak(self, rows: int) -> int:
        """Peak of the step, with `rows` rows at once."""
        return int(self.fixed + self.per_row * rows)

    def session(self, rows: int) -> int:
        """Of a session."""
        return int(self.fixed + max(self.per_row * rows, self.evaluated) + self.beside)


@dataclass(frozen=True)
class Fit:
    """A batch and the number of parts in which to compute it."""

    batch: int
    parts: int
    unsplit: int
    """Memory of a session in one part."""
    needed: int
    """Memory of a session in these parts."""
    peak: int
    """The step's share of `needed`."""
    free: int | None
    """None if unknown."""

    @property
    def remark(self) -> str | None:
        """One line to print, None without a split."""
        if self.parts == 1 or self.free is None:
            return None
        rows = -(-self.batch // self.parts)
        most = "" if self.batch % self.parts == 0 else "at most "
        return (
            f"MEMORY: the batch of {self.batch} needs {gb(self.unsplit)} and {gb(self.free)} are free, so each step "
            f"takes it in {self.parts} parts of {most}{rows} ({gb(self.needed)}). The function is the same; next to "
            "sessions with another split the link is not bit-exact."
        )


def fewest_parts(needed: Need, whole: int, free: int | None, processes: int, kind: str) -> Fit | int:
    """The fewest parts in which a batch of `whole` rows fits into `free` bytes (None: one part). If even single rows do
    not fit, the bytes that a process has.

    processes: number of processes that share the batch; each takes its rows in the parts found. On a CPU they share
    the memory, too.
    """
    batch = whole // processes
    share = None if free is None else free // processes if kind == "cpu" else free
    for parts in range(1, batch + 1):
        rows = -(-batch // parts)
        if share is None or needed.session(rows) * SLACK <= share:
            return Fit(batch, parts, needed.session(batch), needed.session(rows), needed.peak(rows), share)
    return share or 0


def limit(kind: str) -> str:
    """The limit that keeps memory from a CPU's process, in brackets."""
    found = free_memory() if kind == "cpu" and _cap() is None else None
    return "" if found is None else f" ({found.limit})"


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process may still use on the device, within TRM_MEMORY_GB; None if unknown.

    On a CPU limits of the process and its control groups count. On a GPU the cap is enforced. Raises TaskError if
    TRM_MEMORY_GB is not a positive number.
    """
    cap = _cap()
    if device.type != "cuda":
        found = free_memory()
        return min((count for count in (cap, found.count if found else None) if count is not None), default=None)
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)
    if cap is None:
        return free
    index = torch.cuda.current_device() if device.index is None else device.index  # the next call takes no plain "cuda"
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total), index)
    return min(free, cap)


def _cap() -> int | None:
    text = os.environ.get(CAP)
    if not text:
        return None
    try:
        cap = float(text)
    except ValueError:
        cap = 0.0
    if not 0 < cap < 1e6:
        raise TaskError(f"{CAP}={text} is not a number of gigabytes. Set the limit, e.g. {CAP}=15, or unset it.")
    return int(cap * 1e9)


def gb(count: float) -> str:
    """Bytes in gigabytes, as text."""
    return f"{count / 1e9:.1f} GB"
