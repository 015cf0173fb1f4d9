"""Keeps the files by which the pods of a node resolve names up to date."""

import asyncio
from collections.abc import Callable, Iterable

from grange.agent.cluster_dns.pod_files import (
    ServiceLines,
    hosts_file,
    resolver_file,
    service_lines,
)
from grange.agent.cluster_dns.service_names import ServiceNames
from grange.agent.config import NodeConfig
from grange.agent.container_runtime import NameFiles, PodRuntime, RuntimeFailedError
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.base.log import Logger

_BATCH_S = 0.05
_RETRY_S = 5.0


class PodNames:
    """Writes the files of one node's pods.

    Args:
        runtime: has the pods.
        names: of Services.
        config: of the node.
        clock, log: time and the node's logger.
    """

    def __init__(
        self,
        runtime: PodRuntime,
        names: ServiceNames,
        config: NodeConfig,
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._runtime = runtime
        self._names = names
        self._config = config
        self._clock = clock
        self._log = log
        self._written: dict[
            str, int
        ] = {}  # by UID of the pod: hash of its files, which may be large
        self._lines: dict[str, ServiceLines] = {}  # by namespace
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()  # an older content must not end up over a newer one
        names.listen(self._touch)

    async def write(self, pod: Pod, address: str) -> None:
        """Write a pod's files, unless they are up to date.

        Raises:
            RuntimeFailedError: they cannot be written now.
        """
        await self._names.synced()
        await self._write(pod, address)

    def forget(self, pod_uid: str) -> None:
        """The pod of this UID is over."""
        self._written.pop(pod_uid, None)

    async def run(self, pods: Callable[[], Iterable[tuple[Pod, str]]]) -> None:
        """Follow the Services until cancelled.

        Args:
            pods: those that are prepared, with their addresses.
        """
        await self._names.synced()
        while True:
            self._changed.clear()
            failed = False
            for pod, address in list(pods()):
                try:
                    await self._write(pod, address)
                except RuntimeFailedError as error:
                    self._log.warning("cannot write names", pod=str(pod.key), error=error)
                    failed = True
            try:
                async with self._clock.timeout(_RETRY_S if failed else None):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await self._clock.sleep(_BATCH_S)

    def _touch(self) -> None:
        self._lines.clear()
        self._changed.set()

    async def _write(self, pod: Pod, address: str) -> None:
        files = NameFiles(
            hosts_file(pod, address, self._services(pod.metadata.namespace)),
            resolver_file(pod, self._config.resolver, self._config.cluster_dns),
        )
        uid, digest = pod.metadata.uid, hash(files)
        async with self._writing:
            if self._written.get(uid) != digest:
                await self._runtime.write_name_files(uid, files)
                self._written[uid] = digest

    def _services(self, namespace: str) -> ServiceLines:
        if self._config.cluster_dns:
            return ServiceLines()  # it knows them
        lines = self._lines.get(namespace)
        if lines is None:
            lines = service_lines(namespace, self._names.records().values())
            self._lines[namespace] = lines
        return lines
