"""The Node object and its Lease: how the control plane knows that a node is there.

The Lease is renewed often and is small. The Node's status is written every few minutes, and at the
first heartbeat after the server's copy of the node, which is watched, differs from the agent's:
a control plane that lost sight of it marks it Unknown, and only the agent can end that.
A deleted Node is registered again. Conditions are patched by their type, so that those
which others have set on the Node stay.
"""

import os
from collections.abc import Callable
from datetime import datetime

import msgspec

from grange.agent import isolation_condition
from grange.agent.config import NodeConfig
from grange.agent.disk_monitor import DiskPressure
from grange.agent.events import AgentReason
from grange.api import timestamps
from grange.api.kinds import LEASE, NODE
from grange.api.kinds.lease import NODE_LEASES, OLD_STATUS_SYNCED_UNTIL, STATUS_SYNCED_UNTIL
from grange.api.kinds.node import Node
from grange.api.meta import Document, ObjectKey
from grange.api.status import AlreadyExists, ApiError, NotFound
from grange.base.backoff import Exponential
from grange.client.client import Client
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import NORMAL, Recorder

_VERSION = "v1.36.0+grange"  # of the agent, in the form that clients parse: the API it speaks
_RETRY_S = 1.0
_LEAVE_S = 3.0

# Type, status, reason, message of the conditions that never change.
_CONDITIONS = (
    ("MemoryPressure", "False", "AgentHasSufficientMemory", "memory is not watched yet"),
    ("PIDPressure", "False", "AgentHasSufficientPID", "processes are not watched yet"),
    ("Ready", "True", "AgentReady", "the agent runs pods as processes of this machine"),
)


def metadata(config: NodeConfig) -> Document:
    """Name and labels of the Node."""
    machine = os.uname()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.machine, machine.machine)
    return {
        "name": config.name,
        "labels": {
            "kubernetes.io/hostname": config.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            **config.feature_labels,
            **config.labels,
        },
    }


def _spec(config: NodeConfig) -> Document:
    network = config.pod_network
    return {"podCIDR": network, "podCIDRs": [network]} if network else {}


def _conditions(config: NodeConfig, disk: DiskPressure) -> tuple[tuple[str, str, str, str], ...]:
    reason = "AgentHasDiskPressure" if disk.is_pressure else "AgentHasNoDiskPressure"
    return (
        *_CONDITIONS,
        ("DiskPressure", str(disk.is_pressure), reason, disk.message),
        isolation_condition.condition(config.isolation),
    )


def status(config: NodeConfig, known: Node | None, now: datetime, disk: DiskPressure) -> Document:
    """The Node's status, heartbeat times included.

    Args:
        config: of the node.
        known: the Node as it is, for the times at which conditions last changed.
        now: wall time.
        disk: whether it has disk pressure.
    """
    stamp = timestamps.rfc3339(now)
    before = {item.type: item for item in known.status.conditions} if known is not None else {}
    conditions = []
    for name, value, reason, message in _conditions(config, disk):
        old = before.get(name)
        unchanged = old is not None and old.status == value and old.last_transition_time
        conditions.append(
            {
                "type": name,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": unchanged or stamp,
            }
        )
    machine = os.uname()
    return {
        "capacity": dict(config.capacity),
        "allocatable": dict(config.capacity),
        "addresses": [
            {"type": "InternalIP", "address": config.host_ip},
            {"type": "Hostname", "address": config.name},
        ],
        "conditions": conditions,
        **_daemon_endpoints(config),
        "nodeInfo": {
            "architecture": metadata(config)["labels"]["kubernetes.io/arch"],
            "bootID": "",
            "containerRuntimeVersion": f"{config.runtime}://1",
            "kernelVersion": machine.release,
            "kubeProxyVersion": "",
            "kubeletVersion": _VERSION,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": machine.sysname,
            "systemUUID": "",
        },
    }


def _daemon_endpoints(config: NodeConfig) -> Document:
    if not config.agent_port:
        return {}
    return {"daemonEndpoints": {"kubeletEndpoint": {"Port": config.agent_port}}}


def _is_current(node: Node, config: NodeConfig, disk: DiskPressure) -> bool:
    """Whether the Node has the conditions, the capacity and the port that the agent reports."""
    if config.agent_port not in (0, node.status.daemon_endpoints.kubelet_endpoint.port):
        return False
    known = {item.type: item.status for item in node.status.conditions}
    agrees = all(known.get(name) == value for name, value, _, _ in _conditions(config, disk))
    room = node.status.allocatable  # others may have added resources that are unknown here
    return agrees and all(room.get(name) == value for name, value in config.capacity.items())


async def report_stopped(client: Client, name: str, now: datetime) -> None:
    """Set the Ready condition of a node without an agent to False.

    Raises:
        ApiError: it is not set.
    """
    stamp = timestamps.rfc3339(now)
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "AgentStopped",
        "message": "the agent was stopped",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }
    patch = {"status": {"conditions": [ready]}}
    await client.patch(NODE, name, patch=patch, type="strategic", subresource="status")


class Heartbeat:
    """Registers one node and keeps its Lease renewed.

    Args:
        deps: client, informers, clock, log.
        config: of the node.
        recorder: where the registration is recorded.
        has_synced_status: whether the status of all pods of the node is written. The Lease records
            until when that was so: no older change of a pod is still to come.
        disk: whether the node has disk pressure.
    """

    def __init__(
        self,
        deps: Deps,
        config: NodeConfig,
        *,
        recorder: Recorder,
        has_synced_status: Callable[[], bool],
        disk: Callable[[], DiskPressure],
    ) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log.bind(node=config.name)
        self._config = config
        self._key = ObjectKey("", config.name)
        fields = f"metadata.name={config.name}" if config.own_objects_only else ""
        self._nodes = deps.informers.informer(NODE, fields=fields)
        self._recorder = recorder
        self._has_synced_status = has_synced_status
        self._disk = disk
        self._status_due = 0.0

    async def register(self) -> None:
        """Create the Node, or make an existing one ours; retries until the API takes it."""
        attempt = 0
        while True:
            try:
                await self._register()
            except ApiError as error:
                attempt += 1
                self._log.warning("node not registered", attempt=attempt, error=error)
                await self._clock.sleep(_RETRY_S)
            else:
                return

    async def run(self) -> None:
        """Renew until cancelled. After a failure it is sooner, unless the API stays away."""
        period_s = self._config.timing.heartbeat_s
        backoff, failures = Exponential(_RETRY_S, cap_s=period_s), 0
        while True:
            try:
                await self._beat(was_away=failures > 0)
            except ApiError as error:
                failures += 1
                self._log.warning("heartbeat failed", attempt=failures, error=error)
                await self._clock.sleep(backoff.delay(failures))
            else:
                failures = 0
                await self._clock.sleep(period_s)

    async def leave(self) -> None:
        """Set the Ready condition to False, so that the node gets no more pods and connections."""
        try:
            async with self._clock.timeout(_LEAVE_S):
                await report_stopped(self._client, self._config.name, self._clock.now())
        except (ApiError, TimeoutError) as error:
            self._log.warning("the node is not reported as stopped", error=error)

    async def _register(self) -> None:
        document: Document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata(self._config),
            "spec": _spec(self._config),
        }
        try:
            taints = msgspec.to_builtins(self._config.taints)
            spec = {**document["spec"], **({"taints": taints} if taints else {})}
            node = await self._client.create(NODE, {**document, "spec": spec})
        except AlreadyExists:
            patch = {
                "metadata": {"labels": document["metadata"]["labels"]},
                "spec": document["spec"],
            }
            node = await self._client.patch(NODE, self._config.name, patch=patch)
        await self._write_status(node)
        await self._renew()
        self._recorder.event(
            node, NORMAL, AgentReason.REGISTERED.value, "The agent registered the node", kind=NODE
        )
        self._log.info("node registered", capacity=dict(self._config.capacity))

    async def _beat(self, *, was_away: bool) -> None:
        await self._renew()
        # After an outage what the watch brought may be of before it; what it lacks may be on its way.
        known = None if was_away else self._nodes.store.get(self._key)
        node = known or await self._read()
        if node is None:
            self._log.warning("the node's object is gone; registering it again")
            await self._register()
        elif self._clock.monotonic() >= self._status_due or not _is_current(
            node, self._config, self._disk()
        ):
            await self._write_status(node)

    async def _read(self) -> Node | None:
        """The Node as the server has it now."""
        try:
            return await self._client.get(NODE, self._config.name)
        except NotFound:
            return None

    async def _write_status(self, node: Node) -> None:
        patch = {"status": status(self._config, node, self._clock.now(), self._disk())}
        await self._client.patch(
            NODE, self._config.name, patch=patch, type="strategic", subresource="status"
        )
        self._status_due = self._clock.monotonic() + self._config.timing.status_heartbeat_s

    async def _renew(self) -> None:
        now = timestamps.rfc3339_micro(self._clock.now())
        spec: Document = {
            "holderIdentity": self._config.name,
            "leaseDurationSeconds": self._config.timing.lease_duration_s,
            "renewTime": now,
        }
        synced = {STATUS_SYNCED_UNTIL: now} if self._has_synced_status() else {}
        try:
            # An old agent's annotation never changes again: null removes it.
            renamed = {**synced, OLD_STATUS_SYNCED_UNTIL: None} if synced else {}
            patch = {"metadata": {"annotations": renamed}, "spec": spec}
            await self._client.patch(LEASE, self._config.name, NODE_LEASES, patch=patch)
        except NotFound:
            document: Document = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {
                    "name": self._config.name,
                    "namespace": NODE_LEASES,
                    "annotations": synced,
                },
                "spec": spec,
            }
            await self._client.create(LEASE, document, NODE_LEASES)
