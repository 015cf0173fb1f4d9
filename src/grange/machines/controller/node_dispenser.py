"""The dispenser: gives each available machine to one pod, and takes machines back.

A claim is one write at the version that was read, so that of several only one succeeds, however late
the others arrive. A pod is bound to its node after the claim: a controller that stops in
between is followed by one that finds the claim and binds.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from grange.api.bindings import Binding
from grange.api.kinds import MACHINE
from grange.api.kinds.machine import Machine
from grange.api.kinds.node import is_ready
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.disruption.disruption_progress import is_disrupted
from grange.machines.scaling_plan import ScalingPlan

_P, _E = MachinePhase, MachineEvent
_TRIES = 5


@dataclass(frozen=True, slots=True)
class NodeReply:
    """The answer to a request. Without a node and without ``no_binding`` the machine is not ready yet.

    Attributes:
        node: name of the node that is the pod's now; empty where it has none.
        no_binding: no machine is meant for the pod.
        reason: why there is no node, for people.
        since: since when there is no binding.
    """

    node: str = ""
    no_binding: bool = False
    reason: str = ""
    since: datetime | None = None


class NodeDispenser:
    """Claims machines for pods.

    Args:
        context: tools.
    """

    def __init__(self, context: NodeControllerContext) -> None:
        self._client, self._listers, self._updater = (
            context.client,
            context.listers,
            context.updater,
        )
        self._events, self._clock, self._log = context.events, context.clock, context.log
        self._bindings: dict[str, dict[str, str]] = {}  # by pool: machines by UID of their pod
        self._skips: dict[str, tuple[str, datetime]] = {}  # reasons by UID, and since when
        self._changed = asyncio.Event()

    # --- for pods that are placed on their machine ------------------------------------------------

    async def give(self, machine: Machine, pod: Pod) -> bool:
        """Claim a machine for a pod and bind the pod; whether something had changed meanwhile.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        if machine.phase is not _P.CLAIMED:
            claimed = await self.claim(machine, pod)
            if claimed is None:
                return True
        if pod.spec.node_name:
            return False
        meta = pod.metadata
        binding = Binding(meta.namespace, meta.name, meta.uid, machine.node)
        (error,) = await self._client.bind([binding])
        if error is None:
            return False
        if isinstance(error, (Conflict, NotFound)):
            return True  # it is gone or elsewhere: the machine is given back
        raise error

    async def claim(self, machine: Machine, pod: Pod) -> Machine | None:
        """Make an available machine a pod's; None where another write was first.

        Raises:
            ApiError: the request failed, and may have succeeded; to be looked at again.
        """
        fields = binding_fields(pod)
        try:
            claimed = await self._updater.move(
                machine, _E.CLAIM, reason="Claimed", message=f"by pod {pod.key}", fields=fields
            )
        except (Conflict, NotFound):
            return None
        self._listers.wrote(claimed)
        self._events.moved(machine, claimed, "Claimed", f"by pod {pod.key}")
        self._events.claimed(pod, claimed)
        self.wake()
        return claimed

    # --- for others that ask ----------------------------------------------------------------------

    def publish(self, pool: str, plan: ScalingPlan) -> None:
        """What a pass has decided."""
        # Pools that are gone publish nothing more.
        kept = {name: found for name, found in self._bindings.items() if self._listers.pool(name)}
        self._bindings = {**kept, pool: dict(plan.bindings)}
        now = self._clock.now()
        skipped = {skip.pod_uid: skip.reason for skip in plan.skip if skip.pod_uid}
        self._skips = {
            uid: known
            for uid, known in self._skips.items()
            if uid in skipped or (uid not in self._bindings[pool] and self._listers.waits(uid))
        }
        for uid, reason in skipped.items():
            known = self._skips.get(uid)
            self._skips[uid] = (reason, known[1] if known is not None else now)
        self.wake()

    def wake(self) -> None:
        """Something changed that a request may wait for."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def request_node(self, pod: Pod, *, wait_s: float = 0.0) -> NodeReply:
        """Get the machine of a pod; asking again for the same pod gives the same one.

        Args:
            pod: whose.
            wait_s: how long to wait until the machine is available. A cancelled request has claimed
                its machine or has not; the next request shows which.

        Raises:
            ApiError: a request failed; to be asked again.
        """
        due = self._clock.monotonic() + wait_s
        while True:
            changed = self._changed
            reply = await self._reply(pod)
            left_s = due - self._clock.monotonic()
            if reply.node or left_s <= 0.0:
                return reply
            try:
                async with self._clock.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                return await self._reply(pod)

    async def _reply(self, pod: Pod) -> NodeReply:
        uid = pod.metadata.uid
        name = self._binding(uid)
        machine = self._listers.machine(name) if name else None
        if machine is None:
            reason, since = self._skips.get(uid, ("no pass has seen the pod yet", None))
            return NodeReply(no_binding=True, reason=reason, since=since)
        if machine.phase is _P.CLAIMED and machine.status.bound_pod_uid == uid:
            return NodeReply(node=machine.node)
        if not self.is_usable(machine):
            return NodeReply(reason=f"machine {name} is {machine.phase.value}")
        if await self.claim(machine, pod) is None:
            return NodeReply(reason=f"machine {name} has changed")
        return NodeReply(node=machine.node)

    def _binding(self, uid: str) -> str:
        for machine in self._listers.machines_for(uid):
            if machine.phase is _P.CLAIMED:
                return machine.metadata.name
        for bindings in self._bindings.values():
            if uid in bindings:
                return bindings[uid]
        return ""

    def is_usable(self, machine: Machine) -> bool:
        """Whether a pod can be given the machine now.

        It is available and stays so, and its node is ready and not cordoned.
        """
        node = self._listers.node_of(machine)
        if node is None or node.spec.unschedulable or is_disrupted(machine):
            return False
        return machine.phase is _P.AVAILABLE and is_ready(node)

    async def return_node(self, name: str, *, unused: bool) -> bool:
        """Take a machine back.

        Args:
            name: of the machine; the empty one and unknown ones are of no machine.
            unused: its holder has done nothing on it: it is given to another one as it is. Pods that
                are on it show otherwise.

        Returns:
            Whether it was claimed, and is not any more.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        for _ in range(_TRIES):
            try:
                machine = await self._client.get(MACHINE, name) if name else None
            except NotFound:
                machine = None
            if machine is None or machine.phase is not _P.CLAIMED:
                self._log.info("returned machine is not claimed", machine=name)
                return False
            untouched = unused and not self._listers.pods_on(machine.node)
            event = _E.RETURNED_UNUSED if untouched else _E.RETURNED_USED
            message = "its holder has not used it" if untouched else "its holder has used it"
            try:
                moved = await self._updater.move(machine, event, reason="Returned", message=message)
            except Conflict:
                continue  # read again
            except NotFound:
                return False
            self._listers.wrote(moved)
            self._events.moved(machine, moved, "Returned", message)
            return True
        return False


def binding_fields(pod: Pod) -> Document:
    """The fields of a status that name the pod that a machine is for."""
    return {"boundPodName": str(pod.key), "boundPodUID": pod.metadata.uid}
