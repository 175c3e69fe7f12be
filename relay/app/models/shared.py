"""Parts of a plug-in whose model is trained with torch: its errors, its device, its changed settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from relay.app.models.plugin import Finding, ForeignCommand, Statement
from relay.core.errors import BadConfig, BadData
from relay.core.workload import Kernels, Refit, Workload
from relay.torch.faults import NotHere, TaskError
from storage.packages import install

if TYPE_CHECKING:
    from relay.torch.device import DeviceError
    from relay.torch.workload import PinnedConfig, SteppedWorkload


class NotFetched(BadData):
    """Data of the hub that is not on this machine, for a command that downloads nothing."""


class TorchPlugin:
    """A plug-in of a `SteppedWorkload`: what depends on nothing else of the model (relay/app/models/plugin.py)."""

    default_task: str

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        """As they are."""
        return overrides

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        """The task."""
        return {"task": str(pinned.get("task"))}

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """A state stays valid."""
        return None

    def device(self, wanted: str) -> str:
        """'cuda', 'cpu' or 'xla', if present; raises BadConfig."""
        with speaking_our_errors():
            from relay.torch.device import DeviceError, choose

            try:
                return choose(wanted)
            except DeviceError as error:
                raise BadConfig(f"{error} {_other_device(error, self.default_task)}") from error

    def fingerprint(self, config: BaseModel, device: str) -> Mapping[str, str]:
        """With the configuration's number of threads."""
        with speaking_our_errors():
            from relay.torch.fingerprint import of_session

            return of_session(device, cast("PinnedConfig", config).threads)

    def check_memory(self, workload: Workload) -> None:
        """Compares the prediction for single rows with what was free; raises BadConfig."""
        with speaking_our_errors():
            _stepped(workload).check_memory()

    def remarks(self, workload: Workload) -> Sequence[str]:
        """How the batch is split or shared, and the limits of an old card."""
        return _stepped(workload).remarks

    def timings(self, workload: Workload) -> Mapping[str, float]:
        """Seconds for compiling kernels and capturing a graph."""
        return _stepped(workload).timings

    def kernels(self, workload: Workload) -> Kernels | None:
        """Triton's kernels, on a GPU."""
        return _stepped(workload).kernels()

    def worth(self, findings: Sequence[Finding]) -> Statement | None:
        """Nothing."""
        return None

    def answers(self, workload: Workload) -> bytes | None:
        """None."""
        return None

    def companions(
        self, pinned: dict[str, Any], config: Callable[[], BaseModel], data_root: Path
    ) -> Mapping[str, Callable[[], bytes]]:
        """None."""
        return {}


def _stepped(workload: Workload) -> SteppedWorkload[Any]:
    return cast("SteppedWorkload[Any]", workload)


@contextmanager
def speaking_our_errors() -> Iterator[None]:
    """Turns a model's errors into BadConfig (78), for an impossible setting, or BadData (65), for unusable data."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise BadConfig(f"{missing}. Training needs more packages: `{install('train')}`.") from missing
    except TaskError as error:
        raise BadConfig(str(error)) from error
    except NotHere as error:
        raise NotFetched(str(error)) from error
    except ValueError as error:
        raise BadData(str(error)) from error


def slow_here(task: str, device: str, small: Sequence[str]) -> str | None:
    """A warning if a large task would run on a CPU. small: tasks for which a CPU is enough."""
    if device != "cpu" or task in small:
        return None
    return f"NO GPU: task={task} will train on the CPU, many times slower. task={small[0]} needs no GPU."


def changed(pinned: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a pinned configuration with some dotted keys changed."""
    merged = copy.deepcopy(dict(pinned))
    for key, value in changes.items():
        *groups, last = key.split(".")
        reduce(lambda node, group: node.setdefault(group, {}), groups, merged)[last] = value
    return merged


def _other_device(error: DeviceError, small: str) -> str:
    """Advice if a device cannot be used."""
    if error.why == "absent":
        return "Use device=auto or cpu."
    if error.why == "xla":
        return "Install them as a pair, in an environment of its own: `pip install torch==2.9.0 torch_xla==2.9.0`."
    if error.why == "unbuilt":
        return (
            f"Choose another GPU (on Kaggle: T4 x2 instead of P100), install a torch whose list has "
            f"{error.capability}, or set device=cpu, which is enough for task={small}."
        )
    return "Check nvidia-smi for another process on it, restart the machine, choose another GPU, or set device=cpu."


def dividing(batch: int, most: int) -> int:
    """The largest number of processes, up to `most`, that share a batch evenly."""
    return max(count for count in range(1, most + 1) if batch % count == 0)
