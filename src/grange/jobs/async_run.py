"""Jobs that a program runs, for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack

from grange.api.job_status import FAILED, FINISHED_TYPES, JobStatus
from grange.api.kinds import GANGJOB, POD
from grange.api.kinds.gangjob import GangJob
from grange.api.kinds.pod import Pod
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock, LoopClock
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.jobs.job_options import RoleOptions, RunOptions, Work, job_document
from grange.jobs.object_changes import object_changes
from grange.jobs.run_errors import JobDeleted, JobFailed
from grange.jobs.run_members import LogLine, RunMembers

_LINES_AHEAD = 1_000
_Lines: TypeAlias = asyncio.Queue[
    LogLine | Exception | None
]  # then the error that ended it, or None


async def start(
    client: Client,
    work: Work | None = None,
    *,
    replicas: int | None = None,
    roles: Mapping[str, int | RoleOptions] | None = None,
    **options: Unpack[RunOptions],
) -> "AsyncJobRun":
    """Create a job of a function or a command; returns when it is accepted.

    The arguments are those of ``run``.

    Raises:
        FunctionNotPortable: the function or an argument cannot be sent.
        InvalidRun: the arguments contradict each other.
        ApiError: the server has refused the job; the message names the field.
    """
    document = job_document(work, replicas, roles, options)
    namespace = document["metadata"]["namespace"]
    return AsyncJobRun(client, await client.create(GANGJOB, document, namespace))


class AsyncJobRun:
    """A job on a cluster. It goes on without this handle, see ``attach``.

    >>> async with connect() as client:
    ...     async with await start(client, train, replicas=4) as job:
    ...         print(await job.result())

    At the end of an ``async with`` block the job is deleted, whether it has ended or not.

    Args:
        client: the connection, which has to stay open.
        job: the job as it was created or read.
        clock: for pauses and limits; the running loop's by default.

    Attributes:
        name: of the job.
        namespace: of the job.
    """

    def __init__(self, client: Client, job: GangJob, clock: Clock | None = None) -> None:
        self.name = job.metadata.name
        self.namespace = job.metadata.namespace
        self._client = client
        self._job = job
        self._clock = clock or LoopClock()
        self._members = RunMembers(client, job)

    @classmethod
    async def attach(cls, client: Client, name: str, namespace: str = "default") -> Self:
        """The handle of a job that exists.

        Raises:
            NotFound: there is no GangJob of that name.
        """
        return cls(client, await client.get(GANGJOB, name, namespace))

    def over(self, client: Client) -> "AsyncJobRun":
        """The handle of the same job over another connection."""
        return AsyncJobRun(client, self._job)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cancel()

    async def status(self) -> JobStatus:
        """Phase, conditions, and the counts of each role, as they are now.

        Raises:
            JobDeleted: the job does not exist any more.
        """
        try:
            job = await self._client.get(GANGJOB, self.name, self.namespace)
        except NotFound:
            job = None
        return self._existing(job).status

    async def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job has succeeded or failed; a server that is away is waited for.

        Raises:
            JobDeleted: the job does not exist any more.
            TimeoutError: it has not ended after so many seconds; it goes on.
        """
        fields = f"metadata.name={self.name}"
        changes = object_changes(self._client, self._clock, GANGJOB, self.namespace, fields=fields)
        async with self._clock.timeout(timeout_s), aclosing(changes):
            while True:
                status = self._existing((await anext(changes)).get(self.name)).status
                if status.phase in FINISHED_TYPES:
                    return status

    async def result(self, timeout_s: float | None = None) -> Any:
        """Wait, and return what the function returned in member 0 of the leading role.

        That is the role with ``leader``, else the first one that completes. A command has no
        result: None.

        Raises:
            JobFailed: the job has failed; the message has the failed member's traceback.
            JobDeleted: the job does not exist any more.
            ResultUnavailable: there is no value that can be read.
            TimeoutError: the job has not ended after so many seconds; it goes on.
        """
        pods = await self._succeeded(timeout_s)
        specs = self._job.spec.replica_specs
        leading = [name for name, role in specs.items() if role.leader]
        completing = [name for name, role in specs.items() if role.completes]
        return self._members.value((leading + completing + list(specs))[0], 0, pods)

    async def results(self, role: str = "", timeout_s: float | None = None) -> tuple[Any, ...]:
        """Wait, and return what the function returned in all members of a role, by index.

        Args:
            role: may be left out where there is one only.
            timeout_s: as for ``result``.

        Raises:
            JobFailed, JobDeleted, ResultUnavailable, TimeoutError: as for ``result``.
            KeyError: the job has no such role.
        """
        specs = self._job.spec.replica_specs
        name = role or (next(iter(specs)) if len(specs) == 1 else "")
        if name not in specs:
            raise KeyError(f"role {role!r}: {self.name} has {', '.join(specs)}")
        pods = await self._succeeded(timeout_s)
        return tuple(self._members.value(name, at, pods) for at in range(specs[name].replicas))

    async def _succeeded(self, timeout_s: float | None) -> Sequence[Pod]:
        status = await self.wait(timeout_s)
        pods = await self._members.list()
        if status.phase == FAILED:
            reason = next((item.message for item in status.conditions if item.type == FAILED), "")
            member, left = self._members.failure(pods)
            if left:  # the reason may quote the first of it
                reason = f"{reason.partition(': ' + left.splitlines()[0])[0]}\n[{member}] {left}"
            raise JobFailed(f"job {self.name} has failed: {reason}")
        return pods

    async def cancel(self) -> None:
        """Delete the job and its members; one that does not exist any more is no error."""
        uid = self._job.metadata.uid
        try:
            await self._client.delete(GANGJOB, self.name, self.namespace, uid=uid)
        except (NotFound, Conflict):  # or another job has its name
            return

    async def logs(
        self, *, role: str = "", index: int | None = None, follow: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """The lines of all members; close the generator (``contextlib.aclosing``) when done with it.

        Args:
            role: only this role.
            index: only this index.
            follow: go on until the job has ended, also with members that are created later; lines
                of several members come as they arrive.

        Raises:
            ApiError: a log broke off or cannot be read.
            JobDeleted: the job does not exist any more.
        """
        if not follow:
            for pod in await self._members.list():
                if self._members.is_selected(pod, role, index):
                    async with aclosing(self._members.lines(pod)) as lines:
                        async for line in lines:
                            yield line
            return
        await self.status()  # before anything is opened
        queue: _Lines = asyncio.Queue(_LINES_AHEAD)
        item: LogLine | Exception | None = None
        async with Nursery("job logs") as nursery:
            nursery.start(self._follow(queue, role, index))
            try:
                while isinstance(item := await queue.get(), LogLine):
                    yield item
            finally:
                nursery.cancel()
        if isinstance(item, Exception):
            raise item

    async def _follow(self, queue: _Lines, role: str, index: int | None) -> None:
        """Put the lines of all members into the queue, and at the end None or an error."""
        opened: set[tuple[str, int]] = set()  # UID and restarts of containers that are read

        async def read(pod: Pod) -> None:
            async with aclosing(self._members.lines(pod, follow=True)) as lines:
                async for line in lines:
                    await queue.put(line)

        def open_logs(readers: Nursery, pods: Iterable[Pod]) -> None:
            for pod in pods:
                restarts = sum(item.restart_count for item in pod.status.container_statuses)
                key = (pod.metadata.uid, restarts)
                if key not in opened and self._members.is_selected(pod, role, index):
                    opened.add(key)
                    readers.start(read(pod))

        async def watch(readers: Nursery) -> None:
            changes = object_changes(
                self._client, self._clock, POD, self.namespace, labels=self._members.selector
            )
            async with aclosing(changes):
                async for pods in changes:
                    open_logs(readers, self._members.own(pods.values()))

        try:
            async with Nursery("log readers") as readers:
                watcher = readers.start(watch(readers))
                await self.wait()
                watcher.cancel()
                open_logs(readers, await self._members.list())
        except ExceptionGroup as group:
            await queue.put(_first(group))
        else:
            await queue.put(None)

    def _existing(self, job: GangJob | None) -> GangJob:
        if job is None or job.metadata.uid != self._job.metadata.uid:
            raise JobDeleted(f"job {self.namespace}/{self.name} does not exist any more")
        return job


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
