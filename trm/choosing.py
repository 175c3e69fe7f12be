"""Chooses how a device computes training steps; says why, and how long a step should take.

Two sessions on equal machines choose alike: no clock and no trial of speed is involved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import cast

import torch

from relay.core.gpus import gpu_name
from relay.torch.device import NO_COMPILING, compiles
from relay.torch.faults import TaskError
from relay.torch.steps import Sharing
from storage.wording import counted
from trm import compiled
from trm.cards import CPU, H100, Expected, How, expected
from trm.config import TrainConfig
from trm.cost import Method
from trm.kernels.fast_step import FastStep, unavailable
from trm.kernels.tried import TRIED, admitted, tried
from trm.model import Sizes
from trm.train import EagerStep, Step

VARIABLE = "TRM_STEP"
"""Environment variable: one of WANTED."""
WANTED = ("auto", "plain", "compiled", "fused")
DECLINED = "TRM_FUSED"
"""Environment variable: 0 asks for the plain step."""
METHODS: dict[How, Method] = {"plain": "eager", "compiled": "compiled", "portable": "fused", "hopper": "fused"}
"""As memory is predicted."""
REPAID_S = 60.0
"""Seconds that a compiled step must save. A first step that compiles takes about as long."""


@dataclass(frozen=True)
class Choice:
    """One way to compute steps."""

    how: How
    reason: str
    """Half a sentence."""
    expected: Expected | None = None
    warning: str = ""
    """A line to show before the first step."""

    @property
    def method(self) -> Method:
        """As memory is predicted."""
        return METHODS[self.how]

    @property
    def path(self) -> str:
        """The name of its step."""
        if self.how == "compiled":
            return compiled.name()
        return EagerStep.name if self.how == "plain" else FastStep().name

    def step(self, peers: Sharing | None = None) -> Step:
        """A step of this kind."""
        if self.how == "compiled":
            return compiled.CompiledStep(peers=peers)
        return EagerStep(peers=peers) if self.how == "plain" else FastStep(peers=peers)


def choose(device: torch.device | str, config: TrainConfig, sizes: Sizes, steps: int = 0, processes: int = 1) -> Choice:
    """The fastest way for `steps` steps. Raises TaskError if TRM_STEP asks for one that this device lacks."""
    device = torch.device(device)
    case = _Case(device, config, sizes, processes)
    wanted = _wanted()
    if wanted == "plain":
        return case.choice("plain", f"{VARIABLE} or {DECLINED} asks for it")
    if wanted == "compiled":
        return case.compiled_as_asked()
    unfit = unavailable(device, config.arch, sizes)
    if unfit is None:
        return case.ours()
    if wanted == "fused":
        raise TaskError(f"{VARIABLE}=fused is not possible here: {unfit}. Unset {VARIABLE}.")
    return case.of_torch(unfit, steps)


def _wanted() -> str:
    wanted = os.environ.get(VARIABLE) or ("plain" if os.environ.get(DECLINED) == "0" else "auto")
    if wanted not in WANTED:
        raise TaskError(f"{VARIABLE}={wanted} is none of {', '.join(WANTED)}. Set one of these, or unset it.")
    return wanted


@dataclass(frozen=True)
class _Case:
    """A device and what is trained on it."""

    device: torch.device
    config: TrainConfig
    sizes: Sizes
    processes: int

    @property
    def card(self) -> str:
        """The device's name in trm/cards.py."""
        if self.device.type != "cuda":
            return CPU
        return gpu_name({"gpu": torch.cuda.get_device_name(self.device)}) or "unknown"

    def ms(self, how: How) -> Expected | None:
        """A step's time here."""
        return expected(self.card, self.config, self.sizes, how, self.processes)

    def choice(self, how: How, reason: str, warning: str = "") -> Choice:
        """With the time of a step."""
        return Choice(how, reason, self.ms(how), warning)

    def ours(self) -> Choice:
        """Our kernels: those for Hopper if they were tried with this Triton on such a card."""
        import triton  # a second; only a card that can run our kernels waits for it

        capability, version = torch.cuda.get_device_capability(self.device), str(triton.__version__)
        if admitted(capability, version):
            known = tried(capability, version)
            basis = f"were tried with triton {version}" if known else f"are being tried with triton {version}"
            return self.choice("hopper", f"the kernels for Hopper {basis}")
        pairs = [one for one in TRIED if one.capability == capability]
        if not pairs:
            return self.choice("portable", "our portable kernels run from Hopper on")
        reason = f"the kernels for Hopper were not tried with triton {version}"
        return self.choice("portable", reason, self._cost_of_untried(version, pairs[-1].torch))

    def _cost_of_untried(self, version: str, instead: str) -> str:
        """One line with the cost in milliseconds."""
        slow, fast = self.ms("portable"), self.ms("hopper")
        cost = f": {slow.ms:.0f} ms a step instead of {fast.ms:.0f}" if slow and fast else ""
        return (
            f"TRITON: the kernels for Hopper were never tried with triton {version} on a GPU. The portable ones "
            f"run{cost}. torch {instead} brings a triton that was tried."
        )

    def compiled_as_asked(self) -> Choice:
        """Forced, also on a CPU."""
        why = compiled.uncompilable(self.device, self.config)
        if why is not None and self.device.type == "cuda":
            raise TaskError(f"{VARIABLE}=compiled is not possible here: {why}. Unset {VARIABLE}.")
        return self.choice("compiled", f"{VARIABLE} asks for it", _inexact())

    def of_torch(self, unfit: str, steps: int) -> Choice:
        """The compiled step if it repays compiling, otherwise the plain one. unfit: why our kernels cannot run."""
        why = compiled.uncompilable(self.device, self.config)
        if why is None and not compiles():
            why = f"{NO_COMPILING} keeps torch.compile out"
        if why is not None:
            return self.choice("plain", why)
        saved = self.saved_ms()
        if saved * steps <= 1000 * REPAID_S:
            return self.choice("plain", f"{counted(steps, 'step')} would not repay compiling")
        reason = f"{unfit}; torch.compile should save {saved:.0f} ms a step"
        return self.choice("compiled", reason, _inexact())

    def saved_ms(self) -> float:
        """Of a step by compiling: measured here, otherwise half of the plain step. An unknown card is taken for an
        H100, the fastest but for its like: a slower one saves more."""
        plain = self.ms("plain") or expected(H100, self.config, self.sizes, "plain", self.processes)
        fast = self.ms("compiled")
        if plain is None:
            return 0.0
        return plain.ms - fast.ms if fast and plain.measured and fast.measured else plain.ms / 2


def _inexact() -> str:
    """A warning without inductor's deterministic mode."""
    if compiled.deterministic():
        return ""
    return (
        f"COMPILED: torch {torch.__version__} has no deterministic mode for compiled code (2.10 has). Links may be "
        "not exact."
    )


def usable(choice: Choice, device: torch.device) -> Choice:
    """The choice, or the plain step if torch.compile fails on this machine."""
    if choice.how != "compiled" or device.type != "cuda":
        return choice
    fault = compiled.broken(device)
    if fault is None:
        return choice
    warning = f"NOT COMPILED: torch.compile fails on this machine ({fault}). The plain step runs, which is slower."
    return Choice("plain", "torch.compile fails on this machine", warning=warning)


def by_kind(kind: str, parts: int, peers: Sharing) -> Step:
    """A step of the leader's kind, for another process."""
    step = Choice(cast(How, kind), "").step(peers)
    step.parts = parts
    return step


def kind_of(step: Step) -> How:
    """For `by_kind`."""
    if isinstance(step, compiled.CompiledStep):
        return "compiled"
    return "plain" if isinstance(step, EagerStep) else "hopper"
