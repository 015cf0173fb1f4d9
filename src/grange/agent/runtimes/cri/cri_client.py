"""Calls to a container runtime: gRPC over a local socket, messages as dictionaries."""

import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.grpc_channel import GrpcChannel, GrpcStatusError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.protobuf_schema import ProtobufError, Schema

CALL_LIMIT_S = 120.0
"""For calls without another limit; a runtime under load takes seconds to start a container."""

_OPEN_LIMIT_S = 10.0
_READY = "RuntimeReady"
_MESSAGE_MAX = 20 * 1024 * 1024  # the output of a command may be 16 MiB
_IMAGE_CALLS = frozenset({"ListImages", "ImageStatus", "PullImage", "RemoveImage"})

_CONTENT_CALLS = frozenset({"ListStatuses"})  # of containerd: the interface shows no progress
_OF_KUBERNETES = {"containerd-namespace": "k8s.io"}

NOT_FOUND, INVALID, UNIMPLEMENTED = "NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED"
TIMED_OUT, UNAVAILABLE = "DEADLINE_EXCEEDED", "UNAVAILABLE"


class CriError(GrangeError):
    """A call failed.

    Args:
        code: as gRPC names it.
        message: the runtime's.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code


class CriClient(Protocol):
    """Makes calls."""

    async def call(
        self, method: str, request: Mapping[str, Any], limit_s: float | None = CALL_LIMIT_S
    ) -> dict[str, Any]:
        """The answer.

        Args:
            method: of RuntimeService or ImageService, or ``ListStatuses`` of containerd.
            request: its message.
            limit_s: how long the runtime may take; None for no limit.

        Raises:
            CriError: the runtime refuses, fails, does not answer in time, or cannot be reached.
        """

    async def close(self) -> None:
        """Close the connection."""


@lru_cache(maxsize=1)
def messages() -> Schema:
    """The messages of the interface."""
    return Schema((Path(__file__).parent / "cri_messages.txt").read_text(encoding="ascii"))


class GrpcCriClient:
    """Calls over gRPC.

    Args:
        socket: of the runtime.
        clock: for the limits.

    Raises:
        RuntimeFailedError: HTTP/2 is not installed.
    """

    def __init__(self, socket: Path, clock: Clock) -> None:
        if importlib.util.find_spec("h2") is None:
            raise RuntimeFailedError(
                f"container runtime {socket}: HTTP/2 is not installed; "
                "install it with pip install 'grange[cri]'"
            )
        self._channel = GrpcChannel(socket, clock, message_max=_MESSAGE_MAX)

    async def call(
        self, method: str, request: Mapping[str, Any], limit_s: float | None = CALL_LIMIT_S
    ) -> dict[str, Any]:
        """The answer; see ``CriClient``."""
        service, metadata = "runtime.v1.RuntimeService", {}
        if method in _IMAGE_CALLS:
            service = "runtime.v1.ImageService"
        elif method in _CONTENT_CALLS:
            service, metadata = "containerd.services.content.v1.Content", _OF_KUBERNETES
        body = messages().encode(f"{method}Request", request)
        try:
            answer = await self._channel.unary(f"/{service}/{method}", body, limit_s, metadata)
        except GrpcStatusError as error:
            raise CriError(error.code, error.message) from error
        try:
            return messages().decode(f"{method}Response", answer)
        except ProtobufError as error:
            raise CriError("INTERNAL", f"answer to {method} cannot be read: {error}") from error

    async def close(self) -> None:
        """Close the connection; calls that wait fail."""
        await self._channel.close()


async def identify(client: CriClient, config: CriConfig) -> str:
    """Name of the container runtime.

    Raises:
        RuntimeFailedError: it does not answer, does not serve CRI v1, or is not ready.
    """
    try:
        answer = await client.call("Version", {}, _OPEN_LIMIT_S)
        status = await client.call("Status", {}, _OPEN_LIMIT_S)
    except CriError as error:
        if error.code == UNIMPLEMENTED:
            why = "it does not serve CRI v1; enable its CRI plugin, or use another socket"
        else:
            why = f"{error.message}; start it, or use another socket"
        raise RuntimeFailedError(f"container runtime {config.socket}: {why}") from error
    for condition in (status.get("status") or {}).get("conditions") or ():
        if condition.get("type") == _READY and not condition.get("status"):
            raise RuntimeFailedError(
                f"container runtime {config.socket}: {_READY} is false: "
                f"{condition.get('message') or condition.get('reason') or 'no reason given'}"
            )
    return str(answer.get("runtime_name", "cri"))
