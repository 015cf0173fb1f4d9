"""A small world for tests of the node controller: a real API server, a simulated cloud, nodes that join."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.support.scripted_faults import ScriptedFaults

from grange.api.kinds import EVENT, MACHINE, NODE, NODEPOOL, POD
from grange.api.kinds.machine import NODE_POOL_LABEL, STARTUP_TAINT, Machine
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import DEDICATED, NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import AlreadyExists, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child
from grange.machines.controller.machine_boot import Bootstrap, NoBootstrap
from grange.machines.controller.node_controller import NodeController, NodeControllerTools
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.providers import ProviderTools
from grange.machines.providers.provider import InstanceState, Provider
from grange.machines.providers.simulated.cloud import SimulatedCloud
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened

READY_S = 1.0  # from an instance that runs to a node that is ready


class MachineWorld(ApiFixture):
    """Handles to everything in one test.

    Attributes:
        cloud: what the provider of all pools sells and runs.
        faults: of its calls.
        bootstrap: of controllers that are made from now on.
        joins: whether the node of this machine joins; all do.
        cloud_names: nodes have the names of their instances, as clusters of some clouds give them.
        controller: which runs.
        task: of the controller.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.faults = ScriptedFaults()
        self.cloud = SimulatedCloud(clock, faults=self.faults)
        self.joins: Callable[[str], bool] = lambda name: True
        self.cloud_names = False
        self.config = NodeControllerConfig()
        self.bootstrap: Bootstrap = NoBootstrap()
        self.controller = self.new_controller()
        self.task: Child[None] | None = None
        self._caches: Child[None] | None = None
        self._running: dict[str, float] = {}
        self._joined: set[str] = set()

    # --- the controller ---------------------------------------------------------------------------

    def provider(self, name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
        """The provider of every pool."""
        return SimulatedProvider(self.cloud, tools.cluster)

    def new_controller(self) -> NodeController:
        """A controller with empty caches."""
        deps = replace(self.new_deps(), metrics=self.registry)
        self._informers = deps.informers
        tools = NodeControllerTools(
            bootstrap=self.bootstrap, create=self.provider, config=self.config
        )
        return NodeController(deps, tools)

    def begin(self) -> None:
        """Run the controller."""
        self._caches = self.nursery.start(self._informers.run())
        (self.task,) = self.start(self.controller)

    async def restart(self) -> None:
        """Kill the controller at once and run another one."""
        await self.stop_controller()
        self.controller = self.new_controller()
        self.begin()

    async def stop_controller(self) -> None:
        """Kill the controller at once."""
        for task in (self.task, self._caches):
            if task is not None:
                task.cancel()
                while not task.done():
                    await self.clock.sleep(0.0)

    # --- nodes -------------------------------------------------------------------------------------

    async def agents(self) -> None:
        """The agents of running instances: each registers its node some time after the start."""
        while True:
            now = self.cloud.now()
            for token, made in list(self.cloud.instances.items()):
                if made.state_at(now) is not InstanceState.RUNNING:
                    if self._running.pop(token, None) is not None:
                        self._joined.discard(token)
                        await self.set_ready(self.node_name(token), ready=False)
                elif self._running.setdefault(token, now) + READY_S > now:
                    continue
                elif token not in self._joined and self.joins(token):
                    self._joined.add(token)
                    await self.join(token)
            await self.clock.sleep(0.2)

    def node_name(self, machine: str) -> str:
        """The name that the node of a machine has."""
        return f"ip-{self.cloud.instances[machine].instance.id}" if self.cloud_names else machine

    async def join(self, machine: str) -> None:
        """An agent registers its node, as it does at its start and when its node is gone."""
        name, taint = self.node_name(machine), {"key": STARTUP_TAINT, "effect": "NoSchedule"}
        id_ = f"sim:///a/{self.cloud.instances[machine].instance.id}" if self.cloud_names else ""
        try:
            await builders.create_node(self.client, name, taints=[taint], provider_id=id_)
        except AlreadyExists:
            await self.set_ready(name, ready=True)

    async def set_ready(self, name: str, *, ready: bool) -> None:
        """What the node's agent reports, or nodelifecycle for it."""
        status = "True" if ready else "Unknown"
        try:
            node = await self.client.get(NODE, name)
        except NotFound:
            return
        if [one.status for one in node.status.conditions if one.type == "Ready"] != [status]:
            patch = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
            await self.client.patch(NODE, name, patch=patch, subresource="status")

    # --- objects -----------------------------------------------------------------------------------

    async def add_pool(self, name: str = "p", **spec: Any) -> NodePool:
        whole = {"provider": "simulated", "mode": DEDICATED, **spec}
        return await self.client.create(NODEPOOL, {"metadata": {"name": name}, "spec": whole})

    async def add_pod(self, name: str, pool: str = "p", cpu: str = "1", **spec: Any) -> Pod:
        selector = {NODE_POOL_LABEL: pool, **spec.pop("nodeSelector", {})}
        document = builders.pod_document(name, requests={"cpu": cpu}, nodeSelector=selector, **spec)
        return await self.client.create(POD, document, "default")

    async def add_daemon(self, name: str, node: str) -> None:
        """A pod that every node has."""
        document = builders.pod_document(name, nodeName=node)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u-d"}
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await self.client.create(POD, document, "default")

    async def add_unschedulable(self, name: str, cpu: str, **spec: Any) -> Pod:
        """A pod for which the scheduler has found no node."""
        document = builders.pod_document(name, requests={"cpu": cpu}, **spec)
        await self.client.create(POD, document, "default")
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        patch = {"status": {"phase": "Pending", "conditions": [waits]}}
        return await self.client.patch(POD, name, "default", patch=patch, subresource="status")

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(POD, name, "default", grace_period_s=0)

    async def delete_all_pods(self) -> None:
        for pod in (await self.client.list(POD)).items:
            await self.delete_pod(pod.metadata.name)

    async def end_machine(self, name: str) -> None:
        """What a user does to have a machine ended."""
        await self.client.patch(MACHINE, name, patch={"spec": {"terminate": True}})

    async def is_gone(self, machine: str) -> bool:
        """Whether there is no record of a name."""
        try:
            await self.machine(machine)
        except NotFound:
            return True
        return False

    async def end_pod(self, name: str, phase: str = "Succeeded") -> None:
        await self.client.patch(
            POD, name, "default", patch={"status": {"phase": phase}}, subresource="status"
        )

    async def add_machine(
        self, name: str, phase: str = "", pool: str = "p", **status: Any
    ) -> Machine:
        """A record as a former controller left it."""
        spec: Document = {"pool": pool, "provider": "simulated", "instanceType": "small"}
        finalizer = "grange.dev/machine-instance"
        document = {"metadata": {"name": name, "finalizers": [finalizer]}, "spec": spec}
        made = await self.client.create(MACHINE, document)
        if not phase:
            return made
        patch = {"status": {"phase": phase, **status}}
        return await self.client.patch(MACHINE, name, patch=patch, subresource="status")

    async def pod(self, name: str) -> Pod:
        return await self.client.get(POD, name, "default")

    async def node(self, name: str) -> Node:
        return await self.client.get(NODE, name)

    async def pool(self, name: str = "p") -> NodePool:
        return await self.client.get(NODEPOOL, name)

    async def machine(self, name: str) -> Machine:
        return await self.client.get(MACHINE, name)

    async def machines(self, *phases: MachinePhase) -> list[Machine]:
        """The machines, or those in some phases."""
        found = (await self.client.list(MACHINE)).items
        return [one for one in found if not phases or one.phase in phases]

    async def live(self) -> list[Machine]:
        """Machines that have not ended."""
        return [one for one in await self.machines() if one.phase is not MachinePhase.TERMINATED]

    def running(self) -> list[str]:
        """Tokens of instances that are there."""
        now = self.cloud.now()
        return [token for token, one in self.cloud.instances.items() if one.state_at(now)]

    async def events(self, reason: str) -> list[str]:
        """Messages of the events of a reason."""
        items = (await self.client.list(EVENT)).items
        return [event.message for event in items if event.reason == reason]

    # --- waiting -----------------------------------------------------------------------------------

    async def bound(self, *names: str, limit_s: float = 30.0) -> float:
        """Wait until pods have their nodes."""

        async def all_bound() -> bool:
            return all([(await self.pod(name)).spec.node_name for name in names])

        return await self.until(all_bound, limit_s=limit_s)

    async def count(self, phase: MachinePhase, number: int, *, limit_s: float = 60.0) -> float:
        """Wait until so many machines are in a phase."""

        async def counted() -> bool:
            return len(await self.machines(phase)) == number

        return await self.until(counted, limit_s=limit_s)

    async def empty(self, *, limit_s: float = 200.0) -> float:
        """Wait until there are no records and no instances."""

        async def gone() -> bool:
            return not (await self.machines()) and not self.running()

        return await self.until(gone, limit_s=limit_s)


@asynccontextmanager
async def machine_world(
    clock: Clock, rng: Stream, log: Logger, *, runs: bool = True
) -> AsyncIterator[MachineWorld]:
    """A world whose controller runs and whose instances join."""
    async with opened(MachineWorld(clock, rng, log)) as world:
        world.nursery.start(world.agents())
        if runs:
            world.begin()
        yield world
