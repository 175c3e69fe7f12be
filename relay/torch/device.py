"""Chooses and tests the device to train on, and sets everything there that decides bits."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Literal

import torch

NO_COMPILING = "DISABLE_COMPILE"
"""Environment variable, known from other projects: anything but 0 keeps torch.compile out."""


class DeviceError(ValueError):
    """The requested device is absent or unusable; its text is one sentence."""

    def __init__(
        self, text: str, wanted: str, why: Literal["absent", "unbuilt", "broken", "xla"], capability: str
    ) -> None:
        super().__init__(text)
        self.wanted = wanted
        self.why = why
        """unbuilt: this torch has no kernels for it. xla: PyTorch/XLA is missing, or is of another torch."""
        self.capability = capability
        """Capability of the GPU, as torch names it (sm_60); '' without a GPU."""


def choose(wanted: str) -> str:
    """'auto' becomes 'cuda' with a GPU, otherwise 'cpu'; a chosen GPU has run a kernel of this torch, XLA a product.

    Raises DeviceError if the requested device is absent or unusable.
    """
    if wanted == "xla":
        _try_xla()
        return wanted
    present = torch.cuda.is_available()
    if wanted.startswith("cuda") and not present:
        text = f"device={wanted}, but torch {torch.__version__} sees no GPU."
        raise DeviceError(text, wanted, "absent", "")
    chosen = ("cuda" if present else "cpu") if wanted == "auto" else wanted
    if chosen.startswith("cuda"):
        _try_out(torch.device(chosen), wanted)
    return chosen


def settle(threads: int) -> None:
    """Settings of the process that decide bits, and of the calling thread: each thread has its own."""
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms(True) would import torch's compiler
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether this is a GPU that Triton supports, and Triton is installed."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def compiles() -> bool:
    """Whether torch.compile may be used."""
    return os.environ.get(NO_COMPILING, "0") in ("", "0")


def try_kernels(device: torch.device) -> None:
    """Run elementwise kernels and a matrix product of small integers. Raises RuntimeError if the device cannot."""
    x = torch.arange(16.0, device=device).view(4, 4)
    if float((x @ x + 1).sum()) != 3936.0:
        raise RuntimeError("a product of two small matrices is wrong")


def _try_xla() -> None:
    """Raises DeviceError if torch_xla is missing, does not fit this torch, or computes nothing."""
    try:
        import torch_xla

        try_kernels(torch_xla.device())
    except (ImportError, AttributeError, RuntimeError) as error:
        absent = isinstance(error, ModuleNotFoundError)
        why = "torch_xla is not installed" if absent else "torch_xla does not run with this torch"
        text = f"device=xla, but {why} ({torch.__version__}): {str(error).splitlines()[0]}."
        raise DeviceError(text, "xla", "xla", "") from error


def xla_client() -> str:
    """The client of PyTorch/XLA that computes here, and its version."""
    import torch_xla.runtime

    return f"{torch_xla.runtime.device_type()} client of torch_xla {torch_xla.__version__}"


def _try_out(device: torch.device, wanted: str) -> None:
    try:
        try_kernels(device)
    except RuntimeError as error:
        name, capability = (
            torch.cuda.get_device_name(device),
            "sm_{}{}".format(*torch.cuda.get_device_capability(device)),
        )
        if "no kernel image" in str(error) or "ARCH_MISMATCH" in str(error):
            built = ", ".join(torch.cuda.get_arch_list()) or "no GPU"
            text = f"This torch cannot use {name} ({capability}): torch {torch.__version__} has kernels for {built}."
            raise DeviceError(text, wanted, "unbuilt", capability) from error
        text = f"{name} runs nothing with torch {torch.__version__}: {str(error).splitlines()[0]}."
        raise DeviceError(text, wanted, "broken", capability) from error


def emulated_bf16(device: torch.device) -> bool:
    """Whether this is a GPU without bfloat16 products (compute capability below 8.0).

    torch.cuda.is_bf16_supported() returns true for some of them, because it counts emulation.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)


_SLOW: dict[str, bool] = {}
"""Answers of slow_bf16 by kind of device: a compiled model can read them, but not query the device."""


def slow_bf16(device: torch.device) -> bool:
    """Whether this device has no bfloat16 products: such a CPU takes 4 to 10 times as long for them.

    Queried once for each kind of device; a state does it before its model is compiled.
    """
    if device.type not in _SLOW:
        slow_cpu = device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        _SLOW[device.type] = slow_cpu or emulated_bf16(device)
    return _SLOW[device.type]


def old_card(device: torch.device) -> str | None:
    """A warning about a GPU without bfloat16, before it takes a long time; None for any other device."""
    if not emulated_bf16(device):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return (
        f"OLD CARD: {torch.cuda.get_device_name(device)} (compute capability {major}.{minor}, below 8.0) has no "
        "bfloat16 products. They are computed in float32: much slower than on a newer card, and links with sessions "
        "on other cards are not bit-exact."
    )
