"""Follows the log of one container into a file, over breaks, until the container has ended."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from grange.api.kinds import POD
from grange.api.kinds.pod import ContainerStatus, Pod
from grange.api.meta import ObjectKey
from grange.api.status import ApiError, BadRequest, NotFound
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.client.client import Client, LogOptions
from grange.evidence import log_file
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import EvidenceKey
from grange.evidence.log_file import LogFile

_BACKOFF = Exponential(initial_s=0.1, cap_s=5.0)
_SECONDS = len("2026-01-01T00:00:00")


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Whose log it is.

    Attributes:
        session: key of the session.
        attempt: of the session.
        pod: namespace and name of the pod.
        pod_uid: its UID; another pod of its name is another one's.
        container: its name.
    """

    session: EvidenceKey
    attempt: int
    pod: ObjectKey
    pod_uid: str
    container: str


class ContainerLogReader:
    """The log of one container.

    Args:
        target: whose.
        client: reads it.
        directory: keeps it.
        clock: time.
        log: the logger.
        offload: a single lane for what blocks.

    Attributes:
        ended: set when the container has ended and all of its log is there, or cannot be had.
        problem: why the log is not complete; empty where it is, or as long as it goes on.
    """

    def __init__(
        self,
        target: LogTarget,
        *,
        client: Client,
        directory: EvidenceDirectory,
        clock: Clock,
        log: Logger,
        offload: Offload,
    ) -> None:
        self.target = target
        self.ended = asyncio.Event()
        self.problem = ""
        self._client = client
        self._directory = directory
        self._clock = clock
        self._log = log
        self._offload = offload
        self._file: LogFile | None = None
        self._fed = asyncio.Event()

    @property
    def file(self) -> LogFile | None:
        """The file, once there is one."""
        return self._file

    async def run(self) -> None:
        """Follow; returns when the container has ended."""
        try:
            await self._follow()
        except (EvidenceError, OSError) as error:
            self.problem = f"{self.target.pod.name}/{self.target.container}: {error}"
            self._log.error("log of a session is not kept", why=self.problem)
        finally:
            self.ended.set()
            self._fed.set()

    async def catch_up(self) -> None:
        """Wait until all is kept that the container has written so far, or its log has ended."""
        try:
            newest = await self._newest()
        except NotFound:
            await self.ended.wait()
            return
        while newest and not self.ended.is_set():
            file = self._file
            if file is not None and log_file.sort_key(file.newest) >= log_file.sort_key(newest):
                return
            self._fed.clear()
            await self._fed.wait()

    async def _newest(self) -> bytes:
        """The time of the last line as the API has it now; empty where there is none.

        Raises:
            NotFound: the pod is gone.
        """
        failures = 0
        while True:
            got = b""
            options = LogOptions(container=self.target.container, tail_lines=1, timestamps=True)
            name, namespace = self.target.pod.name, self.target.pod.namespace
            try:
                async with aclosing(self._client.logs(name, namespace, options=options)) as chunks:
                    async for chunk in chunks:
                        got += chunk
                return got.partition(b" ")[0]
            except NotFound:
                raise
            except BadRequest:  # it has not started
                return b""
            except ApiError as error:
                failures += 1
                self._log.info("the end of a log is not known", attempt=failures, error=error)
                await self._clock.sleep(_BACKOFF.delay(failures))

    async def _follow(self) -> None:
        target = self.target
        file = await self._offload.run(
            lambda: self._directory.open_log(
                target.session, target.attempt, target.pod.name, target.container
            )
        )
        self._file = file
        failures = 0
        try:
            while True:
                file.resume()
                got, error = await self._read(file)
                failures = 0 if got else failures + 1
                status = await self._status()
                if isinstance(error, NotFound) or status is None:
                    self.problem = "" if error is None else self._lost(error)
                    return
                if error is None and status.state.terminated is not None:
                    return
                await self._clock.sleep(_BACKOFF.delay(failures))
        finally:
            await self._offload.run(file.finish)

    async def _read(self, file: LogFile) -> tuple[bool, ApiError | None]:
        """Read one stream to its end: whether anything came, and what ended it."""
        # Servers take whole seconds; what comes twice is left out by the file.
        since = f"{file.since[:_SECONDS]}Z" if file.since else ""
        options = LogOptions(
            container=self.target.container, follow=True, since_time=since, timestamps=True
        )
        name, namespace = self.target.pod.name, self.target.pod.namespace
        got = False
        try:
            async with aclosing(self._client.logs(name, namespace, options=options)) as chunks:
                async for chunk in chunks:
                    got = True
                    await self._offload.run(lambda piece=chunk: file.feed(piece))  # type: ignore[misc]  # called at once
                    self._fed.set()
        except ApiError as error:
            return got, error
        return got, None

    async def _status(self) -> ContainerStatus | None:
        """The container's; None if the pod is gone, and an empty one where that is not known."""
        try:
            pod = await self._client.get(POD, self.target.pod.name, self.target.pod.namespace)
        except NotFound:
            return None
        except ApiError:
            return ContainerStatus(name=self.target.container)
        if pod.metadata.uid != self.target.pod_uid:
            return None
        return status_of(pod, self.target.container)

    def _lost(self, error: ApiError) -> str:
        what = f"{self.target.pod.name}/{self.target.container}"
        return f"{what}: the end of the log may be missing: {error.message}"


def status_of(pod: Pod, container: str) -> ContainerStatus:
    """The status of a container; an empty one where the pod has none."""
    listed = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    found = next((item for item in listed if item.name == container), None)
    return found or ContainerStatus(name=container)
