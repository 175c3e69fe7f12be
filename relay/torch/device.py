"""Chooses the device to train on, tries it out, and sets what decides bits there; knows no model."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch

from trm.presets import TaskError


def choose(wanted: str) -> str:
    """'auto' becomes 'cuda' where there is a GPU, else 'cpu'; a GPU has run a kernel of this torch.

    Raises TaskError if the wanted device is not here, or is a GPU that cannot be used.
    """
    present = torch.cuda.is_available()
    if wanted.startswith("cuda") and not present:
        raise TaskError(f"device={wanted}, but torch {torch.__version__} sees no GPU here. Use device=auto or cpu.")
    chosen = ("cuda" if present else "cpu") if wanted == "auto" else wanted
    if chosen.startswith("cuda"):
        _try_out(torch.device(chosen))
    return chosen


def settle(threads: int) -> None:
    """Process-wide settings that decide bits, of the calling thread: each thread has its own."""
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms(True) would import torch's compiler
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether this is a GPU that triton supports, and triton is here."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def try_kernels(device: torch.device) -> None:
    """Run elementwise kernels and a matrix product of small integers. Raises RuntimeError if the device cannot."""
    x = torch.arange(16.0, device=device).view(4, 4)
    if float((x @ x + 1).sum()) != 3936.0:
        raise RuntimeError("a product of two small matrices came out wrong")


def _try_out(device: torch.device) -> None:
    try:
        try_kernels(device)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        unbuilt = "no kernel image" in str(error) or "ARCH_MISMATCH" in str(error)
        raise TaskError(_unbuilt(device) if unbuilt else _unusable(device, why)) from error


def _unbuilt(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    built = ", ".join(torch.cuda.get_arch_list()) or "no GPU"
    return (
        f"This torch cannot use {torch.cuda.get_device_name(device)} (sm_{major}{minor}): torch {torch.__version__} "
        f"has kernels for {built}. Choose another GPU (on Kaggle: T4 x2 instead of P100), install a torch whose "
        f"list has sm_{major}{minor}, or set device=cpu, which is enough for task=sudoku4."
    )


def _unusable(device: torch.device, why: str) -> str:
    return (
        f"{torch.cuda.get_device_name(device)} is here but runs nothing with torch {torch.__version__}: {why}. See "
        "nvidia-smi whether another process fills it, restart the machine, choose another GPU, or set device=cpu."
    )
