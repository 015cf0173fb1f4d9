"""Runs a session in pods: the core of the kind's controller, with the status in memory.

Theory of operation. The executor decides, applies what was decided, and waits for an event of the
session's pods or for the time at which something is due. Nothing is decided by what a request
answered: a creation that is repeated finds the pod of the first try, and a deletion names the UID. A
session that is cancelled, also by the end of the program, is decided about until its pods are gone.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    COMPONENT_LABEL,
    ROLE_LABEL,
    SessionEvidenceStatus,
    TestSession,
)
from grange.api.status import ApiError, BadRequest, Invalid
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import cleanup
from grange.client.client import Client
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.health import main_container
from grange.controllers.testsession.library.execution_state import ExecutionState
from grange.controllers.testsession.library.execution_writes import ExecutionWrites
from grange.controllers.testsession.library.library_errors import (
    SessionFailedError,
    SubscriptionError,
)
from grange.controllers.testsession.library.pod_subscription import PodSubscription
from grange.controllers.testsession.library.pod_watcher import DEFAULT_NAMESPACE, Watcher
from grange.controllers.testsession.library.session_executor import ExecutionContext
from grange.controllers.testsession.library.session_records import DRIVER_ROLE, SessionEventKind
from grange.controllers.testsession.logic import decide
from grange.controllers.testsession.session_inputs import SessionDecision

LOG_LIMIT = 16 * 1024 * 1024
"""Bytes that are kept of the end of each log."""

AGAIN_S = 0.5  # after an error of the API
_LAST_CHANCE_S = 60.0  # beyond the time for clean-up, in which pods that were forced away may go

_BY_CONTROLLER = frozenset(
    {
        *(SessionEventKind.QUEUE, SessionEventKind.ACCEPT),
        *(SessionEventKind.DONE, SessionEventKind.ERROR, SessionEventKind.CANCELLED),
    }
)


class PodExecutor:
    """Runs sessions in pods of one namespace.

    Args:
        client: to the API.
        watcher: started by its owner.
        namespace: of the pods; the watcher's.
        default_pools: by role, for components that name no pool.
        link_mounts: whether mounts are links below a container's root, as where pods are processes.
        clock: time.
        rng: identifiers.
        log: where errors of the API go.
    """

    def __init__(  # noqa: PLR0913  the tools are handed in
        self,
        client: Client,
        watcher: Watcher,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        default_pools: Mapping[str, str] | None = None,
        link_mounts: Callable[[], bool] = lambda: False,
        clock: Clock,
        rng: Stream,
        log: Logger,
    ) -> None:
        self._writes = ExecutionWrites(client, namespace)
        self._watcher, self._namespace = watcher, namespace
        self._default_pools = default_pools or {}
        self._link_mounts = link_mounts
        self._clock, self._rng, self._log = clock, rng, log

    async def execute(self, context: ExecutionContext, session: TestSession) -> Mapping[str, bytes]:
        """Run a session to its end; see ``Executor``.

        Raises:
            SessionFailedError: the test has not passed.
        """
        meta = session.metadata
        meta = msgspec.structs.replace(
            meta, namespace=self._namespace, uid=meta.uid or self._rng.uid()
        )
        state = ExecutionState(
            msgspec.structs.replace(session, metadata=meta),
            self._default_pools,
            started=self._clock.now(),
            timeout_s=context.timeout_s,
        )
        try:
            events = self._watcher.subscribe(meta.name)
        except SubscriptionError as error:
            raise SessionFailedError(
                f"session {meta.name} cannot be watched: {error}", is_infrastructure=True
            ) from error
        try:
            await self._run(context, state, events)
        finally:
            self._watcher.unsubscribe(meta.name)
        if state.status.verdict != testsession.PASSED:
            raise SessionFailedError(
                state.status.message,
                is_infrastructure=state.status.verdict == testsession.ERROR,
                logs=state.logs,
            )
        return state.logs

    async def _run(
        self, context: ExecutionContext, state: ExecutionState, events: PodSubscription
    ) -> None:
        """Drive a session to its end; also when that is disturbed."""
        try:
            await self._drive(context, state, events)
        finally:
            if not state.is_over:
                state.cancel()
                limit_s = state.session.spec.timeouts.cleanup_seconds + 2 * _LAST_CHANCE_S
                await cleanup(
                    self._drive(context, state, events),
                    limit_s=limit_s,
                    clock=self._clock,
                    log=self._log,
                )

    async def _drive(
        self, context: ExecutionContext, state: ExecutionState, events: PodSubscription
    ) -> None:
        quiet = False  # nothing has happened since the last decision
        while not self._gives_up(context, state):
            wait_s: float | None = None
            try:
                if state.status.phase == testsession.CLEANING:
                    await self._confirm(state, ask=quiet)
                decision = decide(state.inputs(self._now(), link_mounts=self._link_mounts()))
                for event in state.accept(decision):
                    kind = SessionEventKind[event.type]
                    if kind not in _BY_CONTROLLER:
                        context.record(kind, event.message)
                if state.is_over:
                    return
                if await self._apply(state, decision):
                    continue
                wait_s = _least(decision.requeue_s, state.left_s(self._now()))
            except ApiError as error:
                name = state.session.metadata.name
                self._log.warning("request of a session failed", session=name, error=error)
                wait_s = AGAIN_S
            quiet = not await self._next_change(state, events, wait_s)

    async def _confirm(self, state: ExecutionState, *, ask: bool) -> None:
        """Ask the server which pods of the session there are, once none should be left."""
        state.confirmed = False
        if state.files_removed and (ask or not state.pods):
            state.keep_only(await self._writes.pods(state.uid), self._now())
            state.confirmed = not state.pods

    async def _apply(self, state: ExecutionState, decision: SessionDecision) -> bool:
        """Do what was decided; whether there is something to decide about already.

        Raises:
            ApiError: some of it was not done; try again.
        """
        if decision.remove_files and not state.files_removed:
            await self._writes.remove_files(decision.remove_files)
            state.files_removed = True
        if decision.remove:
            await self._writes.delete_pods(decision.remove)
        if decision.create:
            return await self._create(state, decision)
        if decision.collect:
            await self._collect(state)
            return True
        return False

    async def _create(self, state: ExecutionState, decision: SessionDecision) -> bool:
        context, pods, workers = decision.context, decision.create, decision.workers
        await self._writes.add_files(context, pods, workers)
        found, errors = await self._writes.create_pods(context, pods, workers, state.pools)
        state.add(found, self._now())
        refused = {
            name: error.message
            for name, error in errors.items()
            if isinstance(error, (Invalid, BadRequest))
        }
        state.refuse(refused)
        if errors and not refused:
            raise errors[min(errors)]
        return bool(refused)

    async def _collect(self, state: ExecutionState) -> None:
        """Read the driver's log, and those of the workers where the test has not passed."""
        passed = state.status.verdict == testsession.PASSED
        since = timestamps.parse_or(state.status.phase_time, self._now())
        limit_s = state.session.spec.timeouts.collect_seconds
        left_s = limit_s - (self._now() - since).total_seconds()
        failures: list[str] = []
        try:
            async with self._clock.timeout(max(0.0, left_s)):
                for pod in filter(_has_output, state.pods):
                    if passed and pod.metadata.labels.get(ROLE_LABEL) != DRIVER_ROLE:
                        continue
                    try:
                        state.logs[_component(pod)] = await self._writes.log(pod, LOG_LIMIT)
                    except ApiError as error:
                        failures.append(f"log of {pod.metadata.name}: {error}")
        except TimeoutError:
            failures.append(f"logs were not read within {limit_s} s")
        evidence = SessionEvidenceStatus(complete=not failures, message="; ".join(failures))
        state.evidence = CollectedEvidence(evidence, failure="; ".join(failures))

    def _gives_up(self, context: ExecutionContext, state: ExecutionState) -> bool:
        """Whether pods that do not go away are left behind, so that their machines are free again."""
        if state.status.phase != testsession.CLEANING:
            return False
        since = timestamps.parse_or(state.status.phase_time, self._now())
        limit_s = state.session.spec.timeouts.cleanup_seconds + _LAST_CHANCE_S
        if self._now() < since + timedelta(seconds=limit_s):
            return False
        left = ", ".join(pod.metadata.name for pod in state.pods) or "not known"
        message = f"pods are not gone after {limit_s:g} s: {left}; delete them"
        context.record(SessionEventKind.INTERNAL_ERROR, message)
        state.is_abandoned = True
        return True

    async def _next_change(
        self, state: ExecutionState, events: PodSubscription, wait_s: float | None
    ) -> bool:
        """Wait for an event of the session's pods, and take note of all; whether there was one."""
        try:
            async with self._clock.timeout(wait_s):
                state.observe(await anext(events))
        except TimeoutError:
            return False
        while len(events):
            state.observe(await anext(events))
        return True

    def _now(self) -> datetime:
        return self._clock.now()


def _least(wait_s: float | None, left_s: float) -> float | None:
    """The sooner of two times; one that has passed is none."""
    if not 0.0 < left_s < math.inf:
        return wait_s
    return left_s if wait_s is None else min(wait_s, left_s)


def _has_output(pod: Pod) -> bool:
    """Whether the main container has been started, so that there is a log."""
    return any(
        item.name == main_container(pod) and (item.state.running or item.state.terminated)
        for item in pod.status.container_statuses
    )


def _component(pod: Pod) -> str:
    """The component's name, with the pod's index where it has several pods."""
    labels = pod.metadata.labels
    session = labels.get(testsession.SESSION_LABEL, "")
    return pod.metadata.name.removeprefix(f"{session}-") or labels.get(COMPONENT_LABEL, "")
