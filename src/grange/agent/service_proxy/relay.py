"""One TCP connection through the proxy: two protocols that copy to each other."""

import asyncio
from collections.abc import Callable
from typing import cast

_BUFFERED = 512 * 1024
"""Bytes that may wait for a slow reader before the writer is made to wait, in each direction."""


class RelaySide(asyncio.Protocol):
    """One end of a connection; the other end gets what arrives here.

    Args:
        made: called with this side when it is connected.
        lost: called when it is gone.
    """

    def __init__(
        self, made: Callable[["RelaySide"], None], lost: Callable[["RelaySide"], None]
    ) -> None:
        self._made = made
        self._lost = lost
        self.transport: asyncio.Transport | None = None
        self.other: RelaySide | None = None
        self._is_ended = False
        self._early: list[bytes] = []  # what a transport delivers although it was asked to wait

    def join(self, other: "RelaySide") -> None:
        """Copy between this side and another from now on."""
        self.other, other.other = other, self
        for side in (self, other):
            if side.transport is not None:
                side.transport.set_write_buffer_limits(high=_BUFFERED)
        for side in (self, other):
            side._begin()

    def _begin(self) -> None:
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)
        if self._is_ended:
            self.eof_received()
        elif self.transport is not None:
            self.transport.resume_reading()

    def is_connected(self) -> bool:
        """Whether its peer is there."""
        return self.transport is not None

    def abort(self) -> None:
        """Reset the connection."""
        if self.transport is not None:
            self.transport.abort()

    def abort_both(self) -> None:
        """Reset the connection and the one that it is joined to."""
        if self.other is not None:
            self.other.abort()
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait with reading until the other side is there."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.transport.pause_reading()
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Copy."""
        if self.other is None:
            self._early.append(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass the end on; the other direction stays open until it ends, too."""
        self._is_ended = True
        other = self.other
        if other is None:
            return True  # not connected yet
        if other.transport is None:
            return False
        if other.transport.can_write_eof():
            other.transport.write_eof()
        return not other._is_ended

    def pause_writing(self) -> None:
        """The peer reads slowly: the other side waits."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        other = self.other
        if other is not None and other.transport is not None and not other.transport.is_closing():
            other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """End the other side as this one ended."""
        other, self.other = self.other, None
        self.transport = None
        if other is not None and other.transport is not None:
            if error is None:
                other.transport.close()
            else:
                other.transport.abort()
        self._lost(self)
