"""A small world for tests of the session controller: a real API server in memory, and pods by hand.

Pods are bound and run as soon as they are there, unless ``paused`` or their component is ``slow``; a
test ends them with ``finish``. Leases are granted from ``pools`` as soon as machines are free, unless
``held``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from grange.api import timestamps
from grange.api.http import User
from grange.api.kinds import EVENT, LEASEPOLICY, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.kinds.event import Event
from grange.api.kinds.machinelease import MACHINE_LEASE, RELEASE_FINALIZER, MachineLease
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession, TestSessionStatus
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.controller import SessionService
from grange.controllers.testsession.evidence_collector import EvidenceCollector
from grange.reconcile import finalizers
from grange.sim.api_fixture import ApiFixture, opened

MANAGER = User("grange:admin", ("system:masters", "system:authenticated"))
WORKER: Document = {"command": ["work"]}


class SessionWorld(ApiFixture):
    """Handles to everything in one test.

    Attributes:
        deps: of the controller under test.
        paused: whether pods stay Pending.
        slow: names of pods that stay Pending.
        silent: names of pods that do not end when they are deleted with grace.
        held: whether leases stay queued.
        pools: names of the machines by pool.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log, user=MANAGER)
        self.deps = self.new_deps()
        self.paused = self.held = False
        self.slow: set[str] = set()
        self.silent: set[str] = set()
        self.pools: dict[str, list[str]] = {"workers": ["w1", "w2"], "drivers": ["d1"]}
        self.addresses = 0

    def serve(self, collector: EvidenceCollector | None = None) -> SessionService:
        """Run the controller."""
        service = SessionService(self.deps, collector=collector)
        self.nursery.start(self.deps.informers.run())
        self.start(service)
        return service

    async def add_session(self, name: str = "qps", **spec: Any) -> None:
        """A session, by default with a server, a client and a driver and without pools."""
        given: Document = {
            "driver": {"command": ["drive"]},
            "servers": [WORKER],
            "clients": [WORKER],
            **spec,
        }
        await self.client.create(
            TESTSESSION,
            {"metadata": {"name": name, "namespace": "default"}, "spec": given},
            "default",
        )

    async def add_foreign_pod(self, name: str) -> None:
        """A pod of this name that no session has."""
        spec = {"containers": [{"name": "main", "command": ["x"]}]}
        meta = {"name": name, "namespace": "default"}
        await self.client.create(POD, {"metadata": meta, "spec": spec}, "default")

    async def use_pools(self) -> None:
        """Give every role a pool."""
        pools = {"server": "workers", "client": "workers", "driver": "drivers"}
        document = {"metadata": {"name": "default"}, "spec": {"defaultPools": pools}}
        await self.client.create(LEASEPOLICY, document)
        for pool, machines in self.pools.items():
            for machine in machines:
                meta = {"name": machine, "labels": {"pool": pool}}
                await self.client.create(NODE, {"metadata": meta})

    async def change(self, name: str = "qps", **spec: Any) -> None:
        """Patch a session's spec."""
        await self.client.patch(TESTSESSION, name, "default", patch={"spec": spec})

    async def session(self, name: str = "qps") -> TestSession:
        return await self.client.get(TESTSESSION, name, "default")

    async def status(self, name: str = "qps") -> TestSessionStatus:
        return (await self.session(name)).status

    async def reaches(self, phase: str, name: str = "qps", *, limit_s: float = 60.0) -> float:
        """Wait for a phase; the virtual seconds that it took."""

        async def reached() -> bool:
            return (await self.status(name)).phase == phase

        try:
            return await self.until(reached, limit_s=limit_s)
        except TimeoutError as error:
            error.add_note(str(await self.status(name)))
            raise

    async def is_gone(self, name: str = "qps") -> bool:
        """Whether there is no session of this name."""
        try:
            await self.session(name)
        except NotFound:
            return True
        return False

    async def pods(self) -> dict[str, Pod]:
        """All pods by name."""
        return {pod.metadata.name: pod for pod in (await self.client.list(POD)).items}

    async def leases(self) -> dict[str, MachineLease]:
        """All machine leases by name."""
        found = (await self.client.list(MACHINELEASE)).items
        return {lease.metadata.name: lease for lease in found}

    async def recorded(self, reason: str) -> list[Event]:
        """Events of a reason."""
        return [item for item in (await self.client.list(EVENT)).items if item.reason == reason]

    async def finish(self, name: str, exit_code: int = 0, message: str = "") -> None:
        """End a pod's container."""
        ended = {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "message": message,
            "finishedAt": timestamps.rfc3339(self.clock.now()),
        }
        await self._patch_status(
            name, "Failed" if exit_code else "Succeeded", {"terminated": ended}
        )

    async def hands(self) -> None:
        """Bind and start pods, confirm deletions, grant leases, ten times a second."""
        await self.client.create(NODE, {"metadata": {"name": "n1"}})
        seen: tuple[object, ...] = ()
        while True:
            now = (
                *(self.store.revision, self.paused, self.held),
                *(len(self.slow), len(self.silent)),
            )
            if now != seen:
                seen = now
                for name, pod in (await self.pods()).items():
                    with suppress(NotFound, Conflict):
                        await self._move(name, pod)
                await self._release()
                if not self.held:
                    await self._grant()
            await self.clock.sleep(0.05)

    async def _move(self, name: str, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp:
            if name not in self.silent:
                await self.client.delete(POD, name, meta.namespace, uid=meta.uid, grace_period_s=0)
        elif self.paused or name in self.slow:
            return
        elif not pod.spec.node_name:
            target = {"apiVersion": "v1", "kind": "Node", "name": _machine(pod)}
            await self.client.post(POD, name, meta.namespace, "binding", {"target": target})
        elif pod.status.phase in {"", "Pending"}:
            self.addresses += 1
            running = {"running": {"startedAt": timestamps.rfc3339(self.clock.now())}}
            await self._patch_status(name, "Running", running, podIP=f"10.0.0.{self.addresses}")

    async def _release(self) -> None:
        for lease in (await self.leases()).values():
            if lease.metadata.deletion_timestamp:
                await finalizers.remove(self.client, MACHINELEASE, lease, RELEASE_FINALIZER)

    async def _grant(self) -> None:
        leases = await self.leases()
        taken = {item.node for lease in leases.values() for item in lease.status.machines}
        for lease in leases.values():
            if lease.status.phase or lease.metadata.deletion_timestamp:
                continue
            found: list[Document] = []
            for request in lease.spec.machines:
                free = [item for item in self.pools.get(request.pool, []) if item not in taken]
                found += [{"pool": request.pool, "node": item} for item in free[: request.count]]
            if len(found) == sum(request.count for request in lease.spec.machines):
                taken |= {item["node"] for item in found}
                status = {"phase": "Granted", "machines": found}
                await self.lease_status(lease.metadata.name, status)

    async def lease_status(self, name: str, status: Document) -> None:
        """Set fields of a lease's status."""
        with suppress(NotFound):
            await self.client.patch(
                MACHINELEASE, name, "default", patch={"status": status}, subresource="status"
            )

    async def _patch_status(self, name: str, phase: str, state: Document, **more: Any) -> None:
        container = {
            "name": "main",
            "image": "",
            "imageID": "",
            "ready": "running" in state,
            "restartCount": 0,
            "state": state,
        }
        status = {"phase": phase, "containerStatuses": [container], **more}
        await self.client.patch(
            POD, name, "default", patch={"status": status}, subresource="status"
        )


def _machine(pod: Pod) -> str:
    if MACHINE_LEASE not in pod.metadata.labels:
        return "n1"
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    return required.node_selector_terms[0].match_fields[0].values[0]


@asynccontextmanager
async def session_world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[SessionWorld]:
    """A world whose hands are at work."""
    async with opened(SessionWorld(clock, rng, log)) as world:
        world.nursery.start(world.hands())
        yield world
