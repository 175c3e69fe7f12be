"""A link of a given speed to a server on this machine, in a separate process.

    python -m benchmarks.link PORT MEGABITS

Prints its port. All connections share the speed, separately in each direction, as on a real line. The delay of a
real line is not simulated.
"""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import sys
from contextlib import suppress

PIECE = 64 << 10
AHEAD_S = 0.02
"""Bytes that may pass at once, so that the line is not idle while a process sleeps for some milliseconds."""


class Direction:
    """Transfers one after another: when the next bytes may go."""

    def __init__(self, bytes_a_second: float) -> None:
        self._speed, self._free_at = bytes_a_second, 0.0

    async def wait(self, count: int) -> None:
        """Wait until `count` more bytes fit."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now - AHEAD_S) + count / self._speed
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction) -> None:
    """Pass bytes on until one side ends."""
    with suppress(ConnectionError):
        while data := await source.read(PIECE):
            await direction.wait(len(data))
            sink.write(data)
            await sink.drain()
    with suppress(ConnectionError, OSError):
        sink.close()


async def serve(port: int, megabits: float) -> None:
    """Listen until the process ends."""
    there, back = Direction(megabits * 125_000), Direction(megabits * 125_000)

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, answer = await asyncio.open_connection("127.0.0.1", port, limit=PIECE)
        await asyncio.gather(pump(reader, answer, there), pump(onward, writer, back))

    server = await asyncio.start_server(passed, "127.0.0.1", 0, limit=PIECE)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def slowed(port: int, megabits: float) -> int:
    """The port of a new link to `port`; it ends with this process."""
    command = [sys.executable, "-m", "benchmarks.link", str(port), str(megabits)]
    link = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(link.kill)
    assert link.stdout
    return int(link.stdout.readline())


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
