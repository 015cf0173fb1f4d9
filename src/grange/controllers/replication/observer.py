"""Observes everything that the plan for a controller depends on."""

from collections.abc import Container, Sequence

import msgspec

from grange.api import pod_requests
from grange.api.kinds import pod as pods
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, PodSpec, is_finished
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import ObjectKey
from grange.api.quantity import QuantityError
from grange.api.selectors import SelectorError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.controllers.replication import node_eligibility
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.plan import Inputs, InvalidController, Plan
from grange.controllers.replication.state import ReplicationState
from grange.controllers.shared import availability, pod_identity
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, charged

_MOST_NODES = 200  # whose room is computed in one reconcile; all others count as full


class Observer:
    """Makes ``Inputs`` from the listers, the scheduler and the state of earlier reconciles."""

    def __init__(
        self,
        listers: Listers,
        state: ReplicationState,
        scheduler: node_eligibility.NodeScheduler,
        *,
        clock: Clock,
    ) -> None:
        self._listers = listers
        self._state = state
        self._scheduler = scheduler
        self._clock = clock

    async def observe(self, controller: ReplicationController, owned: list[Pod]) -> Inputs:
        """Observe a controller.

        Raises:
            InvalidController: a template or selector cannot be parsed.
        """
        uid = controller.metadata.uid
        error: GrangeError | None = None
        try:
            nodes = await self._scheduler.eligible_nodes()
            eligible, earlier = node_eligibility.places(nodes, controller)
        except (SelectorError, msgspec.ValidationError) as invalid:
            raise InvalidController(str(invalid)) from invalid
        except GrangeError as unknown:
            error = unknown  # what needs no further node goes on
            eligible, earlier = sorted({pod_identity.node_of(pod) for pod in owned} - {""}), None
        self._state.eligible[uid] = (eligible, earlier)
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, held_s = self._state.replacements.held(uid, finished, self._clock.monotonic())
        down = availability.nodes_down(self._listers.nodes.store, owned)
        active = [pod for pod in owned if pods.is_active(pod)]
        health = availability.observe(
            controller, active, down, self._clock.now(), self._state.readiness
        )
        inputs = Inputs(
            controller,
            owned,
            eligible,
            down=down,
            taken=self._listers.taken(controller.metadata.namespace, besides=owned),
            held=held,
            available=health.available,
            template=pod_identity.template_hash(pod_identity.sources(controller)[0]),
            earlier=earlier,
            full=self._full(controller),
            health=health,
            held_s=held_s,
            nodes_error=error,
        )
        return inputs.without(drained_nodes(controller))

    def _full(self, controller: ReplicationController) -> Container[str]:
        """The nodes without room, if the controller itself chooses a node for each pod."""
        if controller.spec.placement == "Packed":
            return frozenset()
        present, _ = pod_identity.sources(controller)
        spec = msgspec.convert(present.spec.template.get("spec") or {}, PodSpec)
        return _FullNodes(self._listers, spec)

    def shortage(self, inputs: Inputs, plan: Plan) -> str:
        """Why replicas have no eligible node; empty if all have one."""
        if not plan.short:
            return ""
        eligible, _ = self._state.eligible[inputs.controller.metadata.uid]
        return node_eligibility.shortage_reasons(
            inputs.controller,
            self._listers.nodes.store,
            occupied={pod_identity.node_of(pod) for pod in inputs.owned},
            eligible=frozenset(eligible),
        )


class _FullNodes:
    """The names of nodes without room for a pod; the room of each is computed on demand."""

    def __init__(self, listers: Listers, spec: PodSpec) -> None:
        self._listers = listers
        self._spec = spec
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        key = str(name)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_NODES:
                return True
            known = self._known[key] = self._is_full(key)
        return known

    def _is_full(self, name: str) -> bool:
        node = self._listers.nodes.store.get(ObjectKey("", name))
        if node is None:
            return True
        try:
            return not _fits(self._spec, node, self._listers.on_node(name))
        except QuantityError:
            return False  # the scheduler decides


def _fits(spec: PodSpec, node: Node, there: Sequence[Pod]) -> bool:
    usage = IDLE
    for pod in there:
        if not is_finished(pod):
            usage = charged(usage, pod_requests.pod_request(pod.spec), ())
    given = node.status.allocatable or node.status.capacity
    if not given:
        return True  # not reported yet
    return resource_fit.fits(pod_requests.pod_request(spec), pod_requests.allocatable(given), usage)
