"""Jobs that a program runs, for programs that are not asynchronous."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from grange.api.job_status import JobStatus
from grange.app import loop_thread
from grange.app.connect import connect
from grange.jobs.async_run import AsyncJobRun, start
from grange.jobs.job_options import RoleOptions, RunOptions, Work
from grange.jobs.run_members import LogLine

T = TypeVar("T")


def run(
    work: Work | None = None,
    *,
    replicas: int | None = None,
    roles: Mapping[str, int | RoleOptions] | None = None,
    kubeconfig: str | Path | None = None,
    context: str = "",
    **options: Unpack[RunOptions],
) -> "JobRun":
    """Run a function or a command on a cluster, and return its handle at once.

    >>> def train(epochs: int) -> float:
    ...     return 0.97
    >>> with run(train, args=(10,), replicas=4) as job:
    ...     print(job.result())

    A function is sent as source, with the imports, functions, classes and constants of its module
    that it uses. Its arguments and what it returns are JSON values; a result has 4096 bytes at most.

    Args:
        work: a function made by ``def`` or ``async def``, or the words of a command.
        replicas: members of the only role, ``worker``; 1 by default.
        roles: members by role, as a number or as ``RoleOptions``; instead of ``replicas``.
        kubeconfig: as for ``connect``.
        context: as for ``connect``.
        options: see ``RunOptions``.

    Raises:
        FunctionNotPortable: the function or an argument cannot be sent.
        InvalidRun: the arguments contradict each other.
        ApiError: the server has refused the job; the message names the field.
        KubeconfigError: no cluster is configured.
    """

    async def create() -> AsyncJobRun:
        async with connect(kubeconfig, context) as client:
            return await start(client, work, replicas=replicas, roles=roles, **options)

    return JobRun(loop_thread.call(create()), kubeconfig, context)


def attach(
    name: str,
    namespace: str = "default",
    *,
    kubeconfig: str | Path | None = None,
    context: str = "",
) -> "JobRun":
    """The handle of a job that exists, started by this program or in any other way.

    Raises:
        NotFound: there is no GangJob of that name.
    """

    async def read() -> AsyncJobRun:
        async with connect(kubeconfig, context) as client:
            return await AsyncJobRun.attach(client, name, namespace)

    return JobRun(loop_thread.call(read()), kubeconfig, context)


class JobRun:
    """A job on a cluster; made by ``run`` and ``attach``.

    Every method may be called from any thread, also where an event loop runs, and connects for as
    long as it takes. The job goes on without the handle; a ``with`` block deletes it at its end.

    Attributes:
        name: of the job.
        namespace: of the job.
    """

    def __init__(
        self, job: AsyncJobRun, kubeconfig: str | Path | None = None, context: str = ""
    ) -> None:
        self.name = job.name
        self.namespace = job.namespace
        self._job = job
        self._kubeconfig = kubeconfig
        self._context = context

    def __repr__(self) -> str:
        return f"JobRun({self.namespace}/{self.name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def status(self) -> JobStatus:
        """Phase, conditions, and the counts of each role, as they are now.

        Raises:
            JobDeleted: the job does not exist any more.
        """
        return self._call(lambda job: job.status())

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job has succeeded or failed; a server that is away is waited for.

        Raises:
            JobDeleted: the job does not exist any more.
            TimeoutError: it has not ended after so many seconds; it goes on.
        """
        return self._call(lambda job: job.wait(timeout_s))

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait, and return what the function returned in member 0 of the leading role.

        That is the role with ``leader``, else the first one that completes. A command has no
        result: None.

        Raises:
            JobFailed: the job has failed; the message has the failed member's traceback.
            JobDeleted: the job does not exist any more.
            ResultUnavailable: there is no value that can be read.
            TimeoutError: the job has not ended after so many seconds; it goes on.
        """
        return self._call(lambda job: job.result(timeout_s))

    def results(self, role: str = "", timeout_s: float | None = None) -> tuple[Any, ...]:
        """Wait, and return what the function returned in all members of a role, by index.

        Args:
            role: may be left out where there is one only.
            timeout_s: as for ``result``.

        Raises:
            JobFailed, JobDeleted, ResultUnavailable, TimeoutError: as for ``result``.
            KeyError: the job has no such role.
        """
        return self._call(lambda job: job.results(role, timeout_s))

    def cancel(self) -> None:
        """Delete the job and its members; one that does not exist any more is no error."""
        self._call(lambda job: job.cancel())

    def logs(
        self, *, role: str = "", index: int | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """The lines of all members.

        Args:
            role: only this role.
            index: only this index.
            follow: go on until the job has ended, also with members that are created later; lines
                of several members come as they arrive.

        Raises:
            ApiError: a log broke off or cannot be read.
            JobDeleted: the job does not exist any more.
        """

        async def lines() -> AsyncGenerator[LogLine, None]:
            async with connect(self._kubeconfig, self._context) as client:
                found = self._job.over(client).logs(role=role, index=index, follow=follow)
                async with aclosing(found):
                    async for line in found:
                        yield line

        return loop_thread.iterate(lines)

    def _call(self, work: Callable[[AsyncJobRun], Awaitable[T]]) -> T:
        async def main() -> T:
            async with connect(self._kubeconfig, self._context) as client:
                return await work(self._job.over(client))

        return loop_thread.call(main())
