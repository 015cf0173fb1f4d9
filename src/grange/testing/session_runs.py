"""Runs a test session inside a test, and returns what came of it."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from grange.api import codec
from grange.api.kinds.testsession import PASSED, TestSession
from grange.api.meta import Document
from grange.base.clock import LoopClock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import manifests
from grange.cli.environment import Environment
from grange.cli.session import ApiSession, ClusterTarget, opened
from grange.cli.testruns import execution, run_plan, run_report, session_writes
from grange.cli.testruns.component_logs import ContainerLog
from grange.cli.testruns.log_files import RunLogFiles
from grange.cli.testruns.queue_runner import EVERYTHING, QueueRunner
from grange.cli.testruns.run_plan import PlannedSession, PlanSettings
from grange.cli.testruns.tracked_run import SessionRun


class SessionFailed(AssertionError):
    """A session did not pass; the message has the verdict, its cause and the last lines of logs."""


class BadManifest(GrangeError):
    """A manifest of a session cannot be used; the message has the cause."""


@dataclass(frozen=True)
class SessionResult:
    """What came of a session.

    Attributes:
        name: of the object.
        verdict: ``Passed``, ``Failed``, ``Error`` or ``Cancelled``.
        reason: why, as one word.
        message: why.
        metrics: the figures that the driver reported.
        logs: what each component wrote; ``component/container`` where it has several containers.
        session: the session as it was seen last; None where it could not be created.
        explanation: the outcome as ``grange test run`` prints it.
    """

    name: str
    verdict: str
    reason: str
    message: str
    metrics: Mapping[str, float]
    logs: Mapping[str, str]
    session: TestSession | None
    explanation: str = field(repr=False)

    def check(self) -> None:
        """Fail unless the session has passed.

        Raises:
            SessionFailed: it has not.
        """
        if self.verdict != PASSED:
            raise SessionFailed(self.explanation)


def run_session(
    manifest: str | Path | Document,
    *,
    kubeconfig: Path,
    set: Mapping[str, Any] | None = None,  # noqa: A002  as the option of the command line
    namespace: str = "",
    timeout_s: float | None = None,
    check: bool = True,
) -> SessionResult:
    """Run the one session of a manifest and return its result.

    Works from any thread, also where a loop runs. Interrupted, it cancels the session and waits for
    its clean-up.

    Args:
        manifest: a file, or the document of a TestSession; other objects in the file are created
            unless they exist.
        kubeconfig: of the cluster; of ``grange.testing.cluster`` it is ``c.kubeconfig``.
        set: parameters and fields, as of ``grange test run --set``.
        namespace: where; the context's by default.
        timeout_s: seconds after which it is cancelled.
        check: fail the test unless the session has passed.

    Raises:
        SessionFailed: it has not passed.
        GrangeError: the manifest cannot be used, or the cluster cannot be reached.
    """
    documents = [manifest] if isinstance(manifest, dict) else manifests.read([str(manifest)])
    (planned,) = plan(documents, set or {}, only=True)
    others = [item for item in documents if not run_plan.is_session(item)]
    result = run_planned(
        planned, others, kubeconfig=kubeconfig, namespace=namespace, timeout_s=timeout_s
    )
    if check:
        result.check()
    return result


def plan(
    documents: Sequence[Document], values: Mapping[str, Any], *, only: bool = False
) -> list[PlannedSession]:
    """The sessions of manifests, cell by cell.

    Raises:
        BadManifest: there is none, several where one is meant, or parameters do not fit.
    """
    try:
        settings = PlanSettings(values=values, run=Stream.from_system().suffix())
        planned = run_plan.plan(documents, settings)
    except click.UsageError as error:
        raise BadManifest(error.message) from error
    if only and len(planned) != 1:
        raise BadManifest(
            f"the manifest stands for {len(planned)} sessions and one is meant; split it, or "
            "collect it with --grange-sessions"
        )
    return planned


def run_planned(
    planned: PlannedSession,
    others: Sequence[Document] = (),
    *,
    kubeconfig: Path,
    namespace: str = "",
    timeout_s: float | None = None,
) -> SessionResult:
    """Run a planned session and return its result, whatever it is."""
    run = _Run(
        planned, others, ClusterTarget(kubeconfig=kubeconfig, namespace=namespace), timeout_s
    )
    run.start()
    try:
        run.join()
    except BaseException:  # Ctrl-C, or the end of the test's time
        run.interrupt()
        run.join()
        raise
    if run.failure is not None:
        raise run.failure
    return run.result()


class _Run(threading.Thread):
    """A thread with a loop that runs one session."""

    def __init__(
        self,
        planned: PlannedSession,
        others: Sequence[Document],
        target: ClusterTarget,
        timeout_s: float | None,
    ) -> None:
        super().__init__(name="grange-session", daemon=True)
        self._others = others
        self._target = target
        self._timeout_s = timeout_s
        self._run = SessionRun(planned)
        self._logs: dict[str, list[bytes]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: QueueRunner | None = None
        self.failure: BaseException | None = None
        self._env = Environment(
            clock=LoopClock(),
            rng=Stream.from_system(),
            log=Logger("testing"),
            kubeconfig=(),
            interactive=False,
            color=False,
            width=80,
            run=asyncio.run,
        )

    def run(self) -> None:
        """Run it to its end."""
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001  handed to the test's thread
            self.failure = error

    async def _main(self) -> None:
        async with opened(self._env, self._target) as session:
            for document in self._others:
                kind = await session.kind_of(document)
                await session_writes.create_unless_there(session, kind, document)
            await self._execute(session)

    async def _execute(self, session: ApiSession) -> None:
        async def execute(run: SessionRun) -> None:
            await execution.execute(session, run, self, RunLogFiles(None))

        self._runner = QueueRunner(session, [self._run], EVERYTHING, execute)
        self._loop = asyncio.get_running_loop()
        await self._runner.run(self._timeout_s)

    def interrupt(self) -> None:
        """Cancel the session."""
        if self._loop is not None and self._runner is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._runner.interrupt)

    def updated(self, run: SessionRun) -> None:
        """Nothing: the result is read at the end."""

    def output(self, run: SessionRun, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Keep the lines of a container."""
        self._logs.setdefault(source.label, []).extend(lines)

    def result(self) -> SessionResult:
        """What came of it."""
        run, session = self._run, self._run.session
        lines = run_report.summary([run], self._env)
        return SessionResult(
            name=run.name,
            verdict=run.verdict,
            reason="" if session is None else session.status.reason,
            message=run.error or ("" if session is None else session.status.message),
            metrics={}
            if session is None
            else {item.name: item.value for item in session.status.metrics},
            logs={
                label: b"".join(found).decode(errors="replace")
                for label, found in self._logs.items()
            },
            session=session,
            explanation="\n".join(lines),
        )


def documents_of(path: Path) -> list[Document]:
    """The documents of a file.

    Raises:
        GrangeError: it cannot be read.
    """
    return [codec.clone(item) for item in manifests.read([str(path)])]
