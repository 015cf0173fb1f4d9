"""Logs of pods on all nodes: those of this machine in the process, those of others from their agents."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from grange.agent.container_logs import logs_gone
from grange.api.kinds.pod import FINISHED
from grange.api.meta import Document
from grange.apiserver.pod_logs import LogSource, PodLogOptions
from grange.app.agent_endpoints import pod_request
from grange.app.node_connections import AgentConnection, NodeConnections, NoSuchNode


class NodeLogs:
    """A log source for the API server.

    Args:
        local: of the nodes of this machine; None where it runs no agent.
        local_nodes: gives their names.
        connections: to the agents of other machines.
    """

    def __init__(
        self,
        local: LogSource | None,
        local_nodes: Callable[[], Collection[str]],
        connections: NodeConnections,
    ) -> None:
        self._local = local
        self._local_nodes = local_nodes
        self._connections = connections

    async def read(self, pod: Document, options: PodLogOptions) -> AsyncGenerator[bytes, None]:
        """The output in pieces; the first is empty.

        Raises:
            ApiError: on the first step, when the output cannot be had.
        """
        node = str(pod["spec"]["nodeName"])
        if self._local is not None and node in self._local_nodes():
            source = self._local.read(pod, options)
        else:
            source = self._remote(node, pod, options)
        try:
            async for piece in source:
                yield piece
        finally:
            await source.aclose()

    async def _remote(
        self, node: str, pod: Document, options: PodLogOptions
    ) -> AsyncGenerator[bytes, None]:
        async with self._connected(node, pod) as agent:
            answer = await agent.send(pod_request(pod, "log", log_query(options)))
            yield b""
            if answer.chunks is None:
                yield answer.body
                return
            try:
                async for piece in answer.chunks:
                    yield piece
            finally:
                close = getattr(answer.chunks, "aclose", None)
                if close is not None:
                    await close()

    @asynccontextmanager
    async def _connected(self, node: str, pod: Document) -> AsyncIterator[AgentConnection]:
        """Connect to the agent that has the log.

        Raises:
            NotFound: the pod has finished, and its node is gone.
            ServiceUnavailable: there is no such node, or its agent serves nothing.
        """
        try:
            async with self._connections.open(node) as agent:
                yield agent
        except NoSuchNode as error:
            if (pod.get("status") or {}).get("phase") not in FINISHED:
                raise
            raise logs_gone(pod, f"its node {node} does not exist any more") from error


def log_query(options: PodLogOptions) -> dict[str, str]:
    """The query parameters that ask for a part of a log."""
    found = {
        "container": options.container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "sinceTime": options.since_time,
    }
    numbers = {
        "sinceSeconds": options.since_seconds,
        "tailLines": options.tail_lines,
        "limitBytes": options.limit_bytes,
    }
    return {
        **{name: value for name, value in found.items() if value},
        **{name: str(value) for name, value in numbers.items() if value is not None},
    }
