"""Commands in running containers, and streams to their main processes."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from grange.agent.container_runtime import (
    CommandResult,
    ContainerID,
    Program,
    RuntimeFailedError,
)
from grange.agent.container_streams import StreamOptions
from grange.agent.runtimes.process import program_streams, shim_connection
from grange.agent.runtimes.process.process_streams import ProcessStream
from grange.agent.runtimes.process.shim_connection import ShimConnection
from grange.base.clock import Clock


class ShimRequest(Protocol):
    """Asks the launcher for a shim (``Launcher.request``)."""

    def __call__(
        self,
        operation: str,
        directory: str,
        spec: dict[str, object],
        descriptors: Sequence[int] = (),
    ) -> socket.socket:
        """The connection to the shim."""


class CommandRunner:
    """Runs commands and keeps the streams that are open.

    Args:
        request: asks for a shim.
        clock: for bounds.
        kill_limit_s: how long a command may take to be killed.
    """

    def __init__(self, request: ShimRequest, clock: Clock, *, kill_limit_s: float) -> None:
        self._request = request
        self._clock = clock
        self._kill_limit_s = kill_limit_s
        self._streams: dict[ProcessStream, None] = {}

    async def run(
        self, target: ContainerID, spec: dict[str, object], timeout_s: float
    ) -> CommandResult:
        """Run a command to its end; see ``PodRuntime``."""
        answer: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

        def answered(state: dict[str, object], _descriptor: int = -1) -> None:
            if not answer.done():
                answer.set_result(state)

        connection = ShimConnection(self._request("run", "", spec), answered, lambda: answered({}))
        try:
            async with self._clock.timeout(timeout_s + self._kill_limit_s):
                state = await answer
        except TimeoutError as error:
            raise RuntimeFailedError(
                f"{target}: the command's supervisor does not answer"
            ) from error
        finally:
            connection.close()
        if "unforked" in state:
            why = os.strerror(shim_connection.number_of(state, "unforked"))
            raise RuntimeFailedError(f"{target}: cannot start a process: {why}")
        if "stage" in state:
            return CommandResult(*shim_connection.start_failure({**state, **spec}))
        if "exit_code" not in state:
            raise RuntimeFailedError(f"{target}: the command could not be run")
        return CommandResult(
            shim_connection.number_of(state, "exit_code"),
            str(state.get("output", "")),
            timed_out=bool(state.get("timed_out")),
        )

    async def exec(
        self, target: ContainerID, spec: dict[str, object], options: StreamOptions
    ) -> ProcessStream:
        """Begin a command; see ``PodRuntime``."""
        stdin, stdout, stderr, tty = options
        try:
            streams, ends = (
                program_streams.terminal()
                if tty
                else program_streams.pipes(stdin=stdin, stdout=stdout, stderr=stderr)
            )
        except OSError as error:
            raise RuntimeFailedError(f"{target}: no streams: {error.strerror}") from error
        try:
            connection = self._request("run", "", spec, streams.descriptors)
        except BaseException:
            ends.close()
            raise
        finally:
            streams.close()
        stream = self._opened(target, connection, is_command=True, is_terminal=tty)
        await stream.begin(stream.begun(ends, spec))
        return stream

    async def attach(
        self, target: ContainerID, directory: Path, program: Program, options: StreamOptions
    ) -> ProcessStream:
        """Streams to a main process; see ``PodRuntime``.

        Args:
            target: the container.
            directory: of its attempt.
            program: that it runs.
            options: what is wanted.
        """
        try:
            connection = shim_connection.connect(directory)
        except OSError as error:
            raise RuntimeFailedError(f"{target}: cannot attach: {error.strerror}") from error
        if connection is None:
            raise RuntimeFailedError(f"{target} is not running")
        stream = self._opened(target, connection, is_command=False, is_terminal=program.tty)
        await stream.begin(
            stream.attached(
                stdout=options.stdout,
                stderr=options.stderr,
                takes_input=options.stdin and program.stdin,
            )
        )
        return stream

    def abandon(self, target: ContainerID) -> None:
        """Kill the commands of a container that has ended."""
        for stream in self._streams:
            if stream.target == target and stream.is_command:
                stream.abandon()

    async def close(self, pod_uid: str = "") -> None:
        """Close the streams of a pod, or all."""
        for stream in list(self._streams):
            if pod_uid in ("", stream.target.pod_uid):
                await stream.close()

    def _opened(
        self,
        target: ContainerID,
        connection: socket.socket,
        *,
        is_command: bool,
        is_terminal: bool,
    ) -> ProcessStream:
        stream = ProcessStream(
            target,
            connection,
            is_command=is_command,
            is_terminal=is_terminal,
            on_close=lambda stream: self._streams.pop(stream, None),
            clock=self._clock,
            kill_limit_s=self._kill_limit_s,
        )
        self._streams[stream] = None
        return stream
