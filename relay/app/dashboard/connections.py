"""Closes connections that stall and refuses too many, so that no client can hold the dashboard's sockets for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""Connections at a time; a browser opens up to six for a window."""
PATIENCE_S = 10.0
"""Seconds for a whole request, headers and body, and for a client that reads no more of its answer."""
LOOK_S = 1.0


class Connection(H11Protocol):
    """One connection. Anything but an answer under way must be over within PATIENCE_S."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or close it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._moved_at, self._unread = self.loop.time(), 0
        self.loop.call_later(min(LOOK_S, PATIENCE_S), self._look)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._moved_at = self.loop.time()

    def _look(self) -> None:
        """Close the connection if it has not moved for too long; otherwise look again later."""
        if self.transport.is_closing():
            return
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and (unread == 0 or unread != self._unread):
            self._moved_at = now
        self._unread = unread
        if now - self._moved_at >= PATIENCE_S:
            self.transport.abort()
        else:
            self.loop.call_later(min(LOOK_S, PATIENCE_S), self._look)
