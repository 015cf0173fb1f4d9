"""Observes everything that the plan for a controller depends on."""

from collections.abc import Container, Mapping

import msgspec

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.selectors import SelectorError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.controllers.replication import node_eligibility
from grange.controllers.replication.full_nodes import FullNodes
from grange.controllers.replication.inputs import Inputs, InvalidController
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.plan import Plan
from grange.controllers.replication.state import State
from grange.controllers.shared import availability, pod_identity


class Observer:
    """Makes ``Inputs`` from what the listers, the scheduler and earlier reconciles know.

    Args:
        listers: controllers, pods and nodes.
        state: what earlier reconciles left.
        scheduler: names eligible nodes.
        clock: of ages.
    """

    def __init__(
        self,
        listers: Listers,
        state: State,
        scheduler: node_eligibility.Scheduler,
        *,
        clock: Clock,
    ) -> None:
        self._listers = listers
        self._state = state
        self._scheduler = scheduler
        self._clock = clock

    async def observe(
        self, controller: ReplicationController, owned: list[Pod]
    ) -> tuple[Inputs, float | None, GrangeError | None]:
        """What the plan depends on, seconds until the next held place is due, and why nodes are unknown."""
        uid = controller.metadata.uid
        trouble: GrangeError | None = None
        try:
            eligible, earlier = await node_eligibility.eligible_places(self._scheduler, controller)
        except (SelectorError, msgspec.ValidationError) as error:
            raise InvalidController(str(error)) from error
        except GrangeError as error:
            trouble = error  # what needs no further node goes on
            eligible, earlier = sorted({pod_identity.node_of(pod) for pod in owned} - {""}), None
        self._state.eligible[uid] = (eligible, earlier)
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, due_s = self._state.replacements.held(uid, finished, self._clock.monotonic())
        bound = {pod.spec.node_name for pod in owned if pod.spec.node_name}
        down = frozenset(name for name in bound if not self._listers.is_up(name))
        active = [pod for pod in owned if pods.is_active(pod)]
        seen = availability.observe(
            controller, active, down, self._clock.now(), self._state.readiness
        )
        inputs = Inputs(
            controller,
            owned,
            eligible,
            down=down,
            taken=self._listers.taken(controller.metadata.namespace, besides=owned),
            held=held,
            available=seen.available,
            template=pod_identity.template_hash(pod_identity.sources(controller)[0]),
            earlier=earlier,
            full=self._full(controller),
        )
        return inputs.without(drained_nodes(controller)), due_s, trouble

    def candidates(self, controller: ReplicationController, newer: Mapping[str, Pod]) -> list[Pod]:
        """Its pods and orphans that it might adopt, some of them newer than in the cache."""
        found = self._listers.candidates(controller)
        return [newer.get(pod.metadata.uid, pod) for pod in found] if newer else found

    def _full(self, controller: ReplicationController) -> Container[str]:
        """The nodes without room, where the controller has to choose one for a pod itself."""
        if controller.spec.placement == "Packed":
            return frozenset()
        present, _ = pod_identity.sources(controller)
        spec = msgspec.convert(present.spec.template.get("spec") or {}, pods.PodSpec)
        return FullNodes(self._listers, spec)

    def shortage(self, inputs: Inputs, plan: Plan) -> str:
        """Why replicas have no eligible node, in words; empty if all have one."""
        if not plan.short:
            return ""
        eligible, _ = self._state.eligible[inputs.controller.metadata.uid]
        return node_eligibility.shortage_reasons(
            inputs.controller,
            self._listers.nodes.store,
            occupied={pod_identity.node_of(pod) for pod in inputs.owned},
            eligible=frozenset(eligible),
        )
