"""A second process that ends the machine if the guard is killed or hangs.

It reads from the guard: one JSON line with the plan, one with the command's process group, one when the guard is done.
It decides when its input closes without the last one, or when the machine should have been deleted long ago.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from relay.app.guard.commands import ByCommands
from relay.app.guard.ending import end
from relay.app.guard.rented import Machine, Rented, records
from relay.app.guard.watching import LAST_S, STUCK_S, TICK_S, group_alive, signal_group
from relay.core.clock import RealRuntime, Runtime
from relay.core.lease.children import Child, start_aside

LATE_S = 300.0
"""After the time at which the machine should have been deleted, the guard counts as hanging."""
ROOT = Path(__file__).parents[3]
WORDS = (sys.executable, "-m", "relay.app.guard.standby")


@dataclass(frozen=True)
class Orders:
    """How to end this machine, without any key."""

    due: float
    """When the machine should be deleted, on the monotonic clock."""
    provider: str
    """The provider's name in the records; empty for two commands."""
    name: str
    end_command: str
    gone_command: str
    cwd: str

    @classmethod
    def of(cls, machine: Machine, due: float) -> Orders:
        """The orders for this machine."""
        if isinstance(machine, ByCommands):
            return cls(due, "", machine.name, machine.end_command, machine.gone_command, str(machine.cwd))
        assert isinstance(machine, Rented)
        return cls(due, machine.record.name, machine.name, "", "", "")

    def machine(self, environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
        """The machine. The key comes from the environment."""
        if not self.provider:
            return ByCommands(self.end_command, self.gone_command, environ, Path(self.cwd))
        record = next(one for one in records() if one.name == self.provider)
        return Rented(record, self.name, environ, root)


class Standby:
    """The guard's hold on the second process."""

    def __init__(self, child: Child, orders: Orders) -> None:
        self._child = child
        self._say(asdict(orders))

    def follow(self, group: int) -> None:
        """The command runs in this process group."""
        self._say({"group": group})

    def over(self) -> None:
        """The guard is done: the second process ends without a deletion."""
        self._say({"over": True})
        if self._child.stdin:
            with suppress(OSError):
                self._child.stdin.close()
        self._child.wait()

    def _say(self, document: Mapping[str, object]) -> None:
        assert self._child.stdin
        with suppress(OSError):
            self._child.stdin.write(f"{json.dumps(document)}\n".encode())
            self._child.stdin.flush()


def stand_by(orders: Orders, environ: Mapping[str, str]) -> Standby:
    """Start the second process. environ: with the provider's key. Raises NoSuchProgram (78)."""
    path = os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH"))))
    return Standby(start_aside(WORDS, {**environ, "PYTHONPATH": path}), orders)


def take_over(
    machine: Machine,
    group: int | None,
    runtime: Runtime,
    tell: Callable[[str], None],
    alive: Callable[[int], bool] = group_alive,
    send: Callable[[int, int], None] = signal_group,
) -> NoReturn:
    """End the command, then the machine, which ends this process. Raises StillRuns (78)."""
    tell("GUARD GONE: it was killed, or hangs. Ending the command and this machine.")
    if group is not None:
        asked = runtime.monotonic()
        send(group, signal.SIGTERM)
        while alive(group):
            past = runtime.monotonic() - asked
            if past >= LAST_S:
                send(group, signal.SIGKILL)
            if past >= LAST_S + STUCK_S:
                break
            runtime.sleep(TICK_S)
    end(machine, runtime, tell)


def wait_for_end(due: float, lines: Iterator[bytes | None], runtime: Runtime) -> tuple[bool, int | None]:
    """(whether the guard is done, the command's process group). `lines`: None for each second without one."""
    group = None
    for line in lines:
        if line is None:
            if runtime.monotonic() >= due + LATE_S:
                break
            continue
        document = json.loads(line)
        if document.get("over"):
            return True, group
        group = document["group"]
    return False, group


def _lines(number: int, every_s: float = 1.0) -> Iterator[bytes | None]:
    """The lines of an open file, and None for each second without one; ends with the file."""
    kept = b""
    while True:
        if not select.select([number], [], [], every_s)[0]:
            yield None
            continue
        found = os.read(number, 65_536)
        if not found:
            return
        *whole, kept = (kept + found).split(b"\n")
        yield from whole


def tell(text: str) -> None:
    """Print a line, if somebody can still read it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of the second process."""
    lines, runtime = _lines(sys.stdin.fileno()), RealRuntime()
    first = next((line for line in lines if line is not None), None)
    if first is None:
        return
    orders = Orders(**json.loads(first))
    machine = orders.machine(dict(os.environ))
    done, group = wait_for_end(orders.due, lines, runtime)
    if not done:
        take_over(machine, group, runtime, tell)


if __name__ == "__main__":
    main()
