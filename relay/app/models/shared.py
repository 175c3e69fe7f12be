"""Parts of a plug-in whose model is trained with torch: its errors, its device, its changed settings."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from relay.core.errors import BadConfig, BadData
from relay.torch.faults import TaskError
from storage.packages import install

if TYPE_CHECKING:
    from relay.torch.device import DeviceError


@contextmanager
def speaking_our_errors() -> Iterator[None]:
    """Turns a model's errors into BadConfig (78), for an impossible setting, or BadData (65), for unusable data."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise BadConfig(f"{missing}. Training needs more packages: `{install('train')}`.") from missing
    except TaskError as error:
        raise BadConfig(str(error)) from error
    except ValueError as error:
        raise BadData(str(error)) from error


def device(wanted: str, small: str) -> str:
    """'cuda', 'cpu' or 'xla', if present; raises BadConfig. small: a task for which a CPU is enough."""
    with speaking_our_errors():
        from relay.torch.device import DeviceError, choose

        try:
            return choose(wanted)
        except DeviceError as error:
            raise BadConfig(f"{error} {_other_device(error, small)}") from error


def fingerprint(device: str, threads: int) -> Mapping[str, str]:
    """The environment of a session on this device."""
    with speaking_our_errors():
        from relay.torch.fingerprint import of_session

        return of_session(device, threads)


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
