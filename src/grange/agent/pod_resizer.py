"""Resizes a pod in place: has what it asks for allocated, and gives it to the containers that run."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from grange.agent import container_limits, resource_allocation
from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.events import AgentReason
from grange.agent.lifecycle import ManagedContainer
from grange.agent.transitions import ContainerPhase
from grange.agent.worker_tools import Tools
from grange.api import quantity
from grange.api.kinds.pod import Pod
from grange.api.meta import Condition
from grange.api.pod_requests import DEFERRED, RESIZE_IN_PROGRESS, RESIZE_PENDING, Resources
from grange.reconcile.recorder import NORMAL, WARNING

_REASONS = {DEFERRED: AgentReason.RESIZE_DEFERRED}


class PodResizer:
    """The resources of one pod.

    Args:
        tools: of the node.
        event: records an Event of the pod.
        requested: what is allocated for the pod.

    Attributes:
        requested: what is allocated for the pod.
    """

    def __init__(
        self,
        tools: Tools,
        event: Callable[[str, AgentReason, str], None],
        requested: Resources,
    ) -> None:
        self.requested = requested
        self._tools = tools
        self._event = event
        self._pending: tuple[str, str] | None = None
        self._failure = ""
        self._failures = 0
        self._is_under_way = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The pod's conditions of this; none while it has what it asks for."""
        found = []
        if self._pending is not None:
            found.append(Condition(RESIZE_PENDING, "True", *self._pending))
        if self._is_under_way:
            reason = "Error" if self._failure else ""
            found.append(Condition(RESIZE_IN_PROGRESS, "True", reason, self._failure))
        return tuple(found)

    @property
    def is_deferred(self) -> bool:
        """Whether it waits until other pods leave room."""
        return self._pending is not None and self._pending[0] == DEFERRED

    async def step(self, pod: Pod, containers: Sequence[ManagedContainer]) -> float | None:
        """Allocate and apply what can be now.

        Returns:
            Seconds until it is to be tried again though nothing happens; None for not at all.
        """
        self._allocate(pod, containers)
        outdated = [
            item
            for item in containers
            if item.phase is ContainerPhase.RUNNING and resource_allocation.is_outdated(item)
        ]
        failures = [why for item in outdated if (why := await self._apply(item))]
        self._failures = self._failures + 1 if failures else 0
        failure = "; ".join(failures)
        if failure and failure != self._failure:
            self._event(WARNING, AgentReason.RESIZE_ERROR, failure)
        self._failure = failure
        was_under_way, self._is_under_way = self._is_under_way, _is_under_way(containers)
        if was_under_way and not self._is_under_way:
            self._event(NORMAL, AgentReason.RESIZE_COMPLETED, "Pod resize completed")
        if self.is_deferred:
            return self._tools.config.timing.retry_cap_s
        return self._tools.config.timing.retries.delay(self._failures) if failures else None

    def _allocate(self, pod: Pod, containers: Sequence[ManagedContainer]) -> None:
        changes = resource_allocation.changes(pod, containers)
        refusal = None
        if changes:
            wanted = resource_allocation.request_of(pod, containers, changes)
            if resource_allocation.grows(wanted, self.requested):
                refusal = self._tools.refuse_resize(pod, wanted)
            if refusal is None:
                self.requested = wanted
                for container in containers:
                    if container.name in changes:
                        resources = changes[container.name]
                        container.spec = replace(container.spec, resources=resources)
                self._is_under_way = True
                self._event(NORMAL, AgentReason.RESIZE_STARTED, "Pod resize started")
        if refusal is not None and (self._pending is None or refusal[0] != self._pending[0]):
            kind = _REASONS.get(refusal[0], AgentReason.RESIZE_INFEASIBLE)
            self._event(WARNING, kind, refusal[1])
        self._pending = refusal

    async def _apply(self, container: ManagedContainer) -> str:
        """Why the container cannot have its resources now; empty where it has them, or restarts."""
        if resource_allocation.needs_restart(container):
            container.on_resize("its resources change, for which it is restarted")
            return ""
        if container.latest is None:
            return ""
        resources = container.spec.resources
        try:
            await self._tools.runtime.resize(
                container.latest.id,
                container_limits.limits_of(container.spec),
                quantity.milli(resources.requests.get("cpu", 0)),
            )
        except RuntimeFailedError as error:
            return f"container {container.name}: {error}"
        container.applied = resources
        return ""


def _is_under_way(containers: Sequence[ManagedContainer]) -> bool:
    return any(
        item.is_resizing
        or (item.phase is ContainerPhase.RUNNING and resource_allocation.is_outdated(item))
        for item in containers
    )
