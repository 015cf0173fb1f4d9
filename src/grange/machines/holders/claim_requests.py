"""Has a pool boot machines for a claim that no available machine meets.

The pool is one whose new nodes the holder would accept, as far as that is known here: by the labels and
taints of the pool's template, and by an instance type and a zone that the holder names. The node controller
boots what is asked for within the pool's limits, as it does for a pod, and the holder claims it.
"""

from datetime import datetime

import msgspec

from grange.api import timestamps
from grange.api.kinds import NODEPOOL
from grange.api.kinds.machine import (
    CAPACITY_TYPE_LABEL,
    DEDICATED_TAINT,
    NODE_POOL_LABEL,
    ON_DEMAND,
    SPOT,
)
from grange.api.kinds.node import Node, NodeSpec, NodeStatus, Taint
from grange.api.kinds.nodepool import DEDICATED, SPOT_ALWAYS, SPOT_NEVER, NodePool
from grange.api.kinds.pod import Pod, PodSpec
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, ObjectMeta
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL
from grange.machines.scaling.machine_requests import (
    MachineRequest,
    request_annotation,
    requests_of,
)
from grange.machines.scaling.pod_needs import PodNeed, UnusableNeed, need_of
from grange.placement.node_demand import Demand
from grange.reconcile.informer import Informer
from grange.reconcile.latest_views import LatestViews

REQUEST_S = 60.0
"""So long a request holds after the claim was last tried."""

_SPOT_LABELS = {SPOT_NEVER: ON_DEMAND, SPOT_ALWAYS: SPOT}
_READY = (Condition("Ready", "True"),)


class ClaimRequests:
    """Writes requests and withdraws them.

    Args:
        client: of the API server.
        pools: the cache of NodePools.
        clock: of the time that requests hold.
    """

    def __init__(self, client: Client, pools: Informer[NodePool], clock: Clock) -> None:
        self._client, self._pools, self._clock = client, pools, clock
        self._views = LatestViews(pools)

    async def ask(
        self, request_id: str, holder: str, controller: ReplicationController, count: int
    ) -> str:
        """Ask a pool for machines, or put the end of an earlier request off.

        Args:
            request_id: of the claim.
            holder: UID of whom the claim is for.
            controller: what its nodes must meet.
            count: how many machines, with those that the holder has under the claim already.

        Returns:
            What was done, for people; empty where no pool would boot a node that the holder accepts.

        Raises:
            ApiError: the write failed, and may have succeeded.
        """
        key, now = request_annotation(holder, request_id), self._clock.now()
        pools = self._suitable(controller)
        if not pools:
            return ""
        asked = [one for one, _ in pools if key in requests_of(one, now)]
        # One that refuses is left for one that does not; else the request stays where it is.
        pool, need = min(
            pools, key=lambda each: (bool(_refusal(each[0])), each[0] not in asked, _rank(each[0]))
        )
        for one in asked:
            if one is not pool:
                await self._write(one, key, None)
        before = requests_of(pool, now).get(key)
        if before is None or (before.need, before.count) != (need, count) or _ages(before, now):
            until = timestamps.rfc3339(timestamps.shift(now, REQUEST_S))
            await self._write(pool, key, MachineRequest(need, count, until))
        refusal = _refusal(pool)
        done = f"NodePool {pool.metadata.name} is asked for what is missing"
        return f"{done} and refuses ({refusal})" if refusal else done

    async def withdraw(self, request_id: str, holder: str) -> None:
        """The claim is met: its request is removed from the pools that show it.

        Raises:
            ApiError: the write failed; the request ends by itself.
        """
        key = request_annotation(holder, request_id)
        for pool in self._known():
            if key in pool.metadata.annotations:
                await self._write(pool, key, None)

    async def _write(self, pool: NodePool, key: str, request: MachineRequest | None) -> None:
        text = None if request is None else msgspec.json.encode(request, enc_hook=dict).decode()
        patch = {"metadata": {"annotations": {key: text}}}
        try:
            self._views.wrote(await self._client.patch(NODEPOOL, pool.metadata.name, patch=patch))
        except NotFound:
            return  # the next attempt asks another pool

    def _known(self) -> list[NodePool]:
        found = [self._views.get(pool.key) for pool in self._pools.store.list()]
        return [pool for pool in found if pool is not None]

    def _suitable(self, controller: ReplicationController) -> list[tuple[NodePool, PodNeed]]:
        """Pools whose new nodes the controller would accept, with what it needs of each."""
        demand, pod = Demand.of(controller), _pod_of(controller)
        found: list[tuple[NodePool, PodNeed]] = []
        for pool in self._known():
            if pool.spec.mode != DEDICATED or pool.metadata.deletion_timestamp is not None:
                continue
            try:
                need = need_of(pod, pool.spec)
            except UnusableNeed:
                continue
            if demand.accepts(_new_node(pool, need)):
                found.append((pool, need))
        return found


def _ages(request: MachineRequest, now: datetime) -> bool:
    left = timestamps.parse_or(request.until, now) - now
    return left.total_seconds() < REQUEST_S / 2


def _refusal(pool: NodePool) -> str:
    """Why the pool's last pass could not order what was wanted; empty if it could."""
    failed = (one for one in pool.status.conditions if one.status == "False")
    return next((one.message or one.reason for one in failed), "")


def _rank(pool: NodePool) -> tuple[int, str]:
    return (-pool.spec.weight, pool.metadata.name)


def _pod_of(controller: ReplicationController) -> Pod:
    """A pod of the template, with the node labels that the controller selects itself."""
    template = controller.spec.template
    spec = msgspec.convert(template.get("spec") or {}, PodSpec)
    selector = {**spec.node_selector, **controller.spec.node_selector.match_labels}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return Pod(
        metadata=ObjectMeta(
            name=f"ReplicationController {controller.key}", annotations=annotations
        ),
        spec=msgspec.structs.replace(spec, node_selector=selector),
    )


def _new_node(pool: NodePool, need: PodNeed) -> Node:
    """A node as a new machine of the pool would have it."""
    known = {
        **pool.spec.template.labels,
        NODE_POOL_LABEL: pool.metadata.name,
        INSTANCE_TYPE_LABEL: need.instance_type,
        ZONE_LABEL: need.zone,
        CAPACITY_TYPE_LABEL: _SPOT_LABELS.get(need.spot, ""),
        "kubernetes.io/os": "linux",
    }
    labels = {key: value for key, value in known.items() if value}
    taints = (*pool.spec.template.taints, Taint(DEDICATED_TAINT, "NoSchedule"))
    return Node(
        metadata=ObjectMeta(labels=labels),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(conditions=_READY),
    )
