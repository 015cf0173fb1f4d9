"""The server's side of the streams of programs: read and written on the event loop."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from grange.agent.container_runtime import EXIT_KILLED, ContainerID, RuntimeFailedError
from grange.agent.container_streams import OVERRUN, STDERR, STDOUT, Output, StreamEnd
from grange.agent.runtimes.process import program_streams, shim_connection
from grange.agent.runtimes.process.program_streams import Ends
from grange.agent.runtimes.process.shim_connection import ShimConnection, number_of
from grange.base.clock import Clock

_READ_BYTES = 32 * 1024
_PIPE_BYTES = 1024 * 1024  # how far an attached reader may be behind
_CHANNELS = {program_streams.STDOUT: STDOUT, program_streams.STDERR: STDERR}
_END_OF_TRANSMISSION = b"\x04"  # what a terminal takes as the end of input
_LOST = "the supervisor of the command is gone"


class ProcessStream:
    """The streams of a command, or those of a container's main process.

    Args:
        target: the container.
        connection: to the shim that the command belongs to, or that of the container.
        is_command: closing kills it.
        is_terminal: it has a terminal.
        on_close: called once.
        clock: for the bound on its end.
        kill_limit_s: how long a command may take to be killed.

    Attributes:
        target: the container.
        is_command: whether closing kills it.
    """

    def __init__(
        self,
        target: ContainerID,
        connection: socket.socket,
        *,
        is_command: bool,
        is_terminal: bool,
        on_close: Callable[["ProcessStream"], None],
        clock: Clock,
        kill_limit_s: float,
    ) -> None:
        self.target = target
        self.is_command = is_command
        self._socket = connection
        self._is_terminal = is_terminal
        self._on_close = on_close
        self._clock = clock
        self._kill_limit_s = kill_limit_s
        self._ends = Ends({}, -1)
        self._loop = asyncio.get_running_loop()
        self._state: dict[str, object] = {}
        self._began = asyncio.Event()
        self._over = asyncio.Event()  # the shim has ended, or does not follow it any more
        self._is_closed = False
        self._waiting: dict[asyncio.Future[None], Callable[[], None]] = {}
        self._shim = ShimConnection(connection, self._take, self._shim_ended)

    async def begin(self, beginning: Awaitable[None]) -> None:
        """Wait for ``begun`` or ``attached``; what does not begin is closed."""
        try:
            await beginning
        except BaseException:
            await self.close()
            raise

    async def begun(self, ends: Ends, spec: dict[str, object]) -> None:
        """Wait until the command runs, or could not be executed.

        Args:
            ends: of its streams; owned from here on.
            spec: what it is, for messages.

        Raises:
            RuntimeFailedError: it could not be started.
        """
        self._ends = ends
        await self._until(self._began)
        state = self._state
        if "unforked" in state:
            why = os.strerror(number_of(state, "unforked"))
            raise RuntimeFailedError(f"cannot start a process: {why}")
        if "stage" in state:
            code, message = shim_connection.start_failure({**state, **spec})
            self._state = {"exit_code": code, "message": message}
        elif not state:
            raise RuntimeFailedError(f"the command did not start: {_LOST}")

    async def attached(self, *, stdout: bool, stderr: bool, takes_input: bool) -> None:
        """Ask the container's shim for the streams of the main process.

        Raises:
            RuntimeFailedError: it does not give them.
        """
        streams, ends = program_streams.pipes(stdin=False)
        self._ends = ends
        try:
            for descriptor in streams.descriptors[1:]:
                os.set_blocking(descriptor, False)
                with suppress(OSError):  # above what the user may have: the usual size then
                    program_streams.set_pipe_size(descriptor, _PIPE_BYTES)
            self._shim.attach(streams.descriptors[1:], takes_input=takes_input)
        finally:
            streams.close()
        await self._until(self._began)
        if "attached" not in self._state:
            raise RuntimeFailedError("the container ended meanwhile")
        wanted = {program_streams.STDOUT: stdout, program_streams.STDERR: stderr}
        for descriptor, name in list(ends.outputs.items()):
            if not wanted[name]:
                os.close(descriptor)
                del ends.outputs[descriptor]
        if not takes_input and not self._is_terminal:
            self.end_input()

    async def _until(self, event: asyncio.Event) -> None:
        try:
            async with self._clock.timeout(self._kill_limit_s):
                await event.wait()
        except TimeoutError as error:
            raise RuntimeFailedError("the supervisor of the container does not answer") from error

    def _shim_ended(self) -> None:
        self._began.set()
        self._over.set()

    def _take(self, state: dict[str, object], descriptor: int) -> None:
        if "attached" in state and descriptor >= 0:
            os.set_blocking(descriptor, False)
            self._ends.input = descriptor
        elif descriptor >= 0:  # what the container runs, which is known
            os.close(descriptor)
        if self.is_command or "attached" in state or "overrun" in state:
            self._state = state
            self._began.set()
        if "overrun" in state:
            self._over.set()

    # --- the seam ------------------------------------------------------------------------------

    async def read(self) -> Output | None:
        """The next output; see ``ContainerStream``."""
        while True:
            outputs = self._ends.outputs
            for descriptor, name in list(outputs.items()):
                data = program_streams.read(descriptor, _READ_BYTES)
                if data is None:
                    continue
                if data:
                    outputs[descriptor] = outputs.pop(descriptor)  # the others have their turn
                    return Output(_CHANNELS[name], data)
                self._close_output(descriptor)
            if not outputs:
                return None
            await self._ready(list(outputs), self._loop.add_reader, self._loop.remove_reader)

    def _close_output(self, descriptor: int) -> None:
        self._wake()
        self._ends.outputs.pop(descriptor, None)
        if descriptor == self._ends.input:  # a terminal
            self._ends.input = -1
        os.close(descriptor)

    async def write(self, data: bytes) -> None:
        """Give input; see ``ContainerStream``."""
        left = memoryview(data)
        while left and self._ends.input >= 0:
            try:
                left = left[os.write(self._ends.input, left) :]
            except BlockingIOError:
                descriptor = [self._ends.input]
                await self._ready(descriptor, self._loop.add_writer, self._loop.remove_writer)
            except OSError:  # the program has closed its input
                self._drop_input()

    async def _ready(
        self,
        descriptors: list[int],
        add: Callable[[int, Callable[[], None]], None],
        remove: Callable[[int], bool],
    ) -> None:
        """Wait until one of the descriptors is ready, or the stream is closed."""
        ready: asyncio.Future[None] = self._loop.create_future()

        def stop() -> None:
            for descriptor in descriptors:
                remove(descriptor)

        self._waiting[ready] = stop
        for descriptor in descriptors:
            add(descriptor, self._wake)
        try:
            await ready
        finally:
            if self._waiting.pop(ready, None) is not None:
                stop()

    def _wake(self) -> None:
        """Let all who wait look again; to be called before a descriptor is closed, too.

        The number of a closed one may be another's before those who waited for it run.
        """
        waiting, self._waiting = self._waiting, {}
        for ready, stop in waiting.items():
            stop()
            if not ready.done():
                ready.set_result(None)

    def end_input(self) -> None:
        """Let the program see the end of its input; see ``ContainerStream``."""
        if not self._is_terminal:
            self._drop_input()
        elif self.is_command and self._ends.input >= 0:
            with suppress(OSError):
                os.write(self._ends.input, _END_OF_TRANSMISSION)

    def _drop_input(self) -> None:
        self._wake()
        descriptor, self._ends.input = self._ends.input, -1
        if descriptor >= 0 and descriptor not in self._ends.outputs:
            os.close(descriptor)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal a size; see ``ContainerStream``."""
        if self._is_terminal and self._ends.input >= 0:
            with suppress(OSError):  # its program has just ended
                program_streams.resize(self._ends.input, columns, rows)

    async def wait(self) -> StreamEnd:
        """How it ended; see ``ContainerStream``."""
        await self._over.wait()
        state = self._state
        if not self.is_command:
            return StreamEnd(message=OVERRUN if "overrun" in state else "")
        if "exit_code" not in state:
            return StreamEnd(EXIT_KILLED, _LOST)
        return StreamEnd(number_of(state, "exit_code"), str(state.get("message", "")))

    async def close(self) -> None:
        """Kill the command or detach; see ``ContainerStream``."""
        self.abandon()
        if self.is_command:
            with suppress(RuntimeFailedError):  # stuck in the kernel; its shim goes on killing it
                await self._until(self._over)
        self._shim.close()
        if not self._is_closed:
            self._is_closed = True
            self._on_close(self)

    def abandon(self) -> None:
        """Begin to close: the shim kills the command, and readers see the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._wake()
        self._ends.close()
