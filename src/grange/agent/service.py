"""The agent of one node: registers it, keeps it alive, and gives every pod on it a worker."""

import asyncio
import signal

from grange.agent import admission, eviction_thresholds
from grange.agent.cluster_dns.pod_names import PodNames
from grange.agent.cluster_dns.service_names import ServiceNames
from grange.agent.config import NodeConfig
from grange.agent.container_runtime import PodRecord, PodRuntime, RuntimeFailedError
from grange.agent.container_start import ContainerStarter
from grange.agent.disk_monitor import DiskMonitor
from grange.agent.eviction_ranking import EVICTED, is_critical
from grange.agent.heartbeat import Heartbeat
from grange.agent.image_puller import ImagePuller
from grange.agent.image_store import ImageStore
from grange.agent.metrics import instruments
from grange.agent.prober import Prober, SystemProber
from grange.agent.pull_secrets import PullSecrets
from grange.agent.worker import PodWorker
from grange.agent.worker_tools import Tools
from grange.api import pod_requests
from grange.api.kinds import POD, SERVICE
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import ObjectKey
from grange.api.pod_requests import Resources
from grange.base.log import Logger
from grange.base.tasks import Nursery, supervise
from grange.reconcile.deps import Deps
from grange.reconcile.informer import Informer
from grange.reconcile.recorder import Recorder


class NodeAgent:
    """One node. Several of them may share a runtime and a process.

    Args:
        deps: client, informers, clock, rng, log, metrics.
        config: of the node.
        runtime: what runs its pods; opened by the caller.
        prober: what asks probes; sockets and commands by default.
        names: of Services, shared with other nodes of the process.
        images: that containers can be made from; None where there are none.

    Attributes:
        registered: set once the API has the Node.
    """

    def __init__(
        self,
        deps: Deps,
        config: NodeConfig,
        runtime: PodRuntime,
        *,
        prober: Prober | None = None,
        names: ServiceNames | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self.registered = asyncio.Event()
        self._deps = deps
        self._config = config
        self._runtime = runtime
        self._log = deps.log.bind(node=config.name)
        self._recorder = Recorder(
            deps.client, "grange-agent", clock=deps.clock, rng=deps.rng, log=self._log
        )
        self._heartbeat = Heartbeat(
            deps,
            config,
            recorder=self._recorder,
            has_synced_status=self._has_synced_status,
            disk=lambda: self._disk.pressure,
        )
        self._disk = DiskMonitor(
            runtime.disk,
            eviction_thresholds.parse(config.eviction),
            self._running_pods,
            self._finished_pods,
            self._evict,
            clock=deps.clock,
            log=self._log,
        )
        self._names: PodNames | None = None
        if config.name_files:
            shared = names or ServiceNames(deps.informers)
            self._names = PodNames(runtime, shared, config, clock=deps.clock, log=self._log)
        self._puller: ImagePuller | None = None
        if images is not None:
            credentials = PullSecrets(deps.client).of
            self._puller = ImagePuller(
                images, credentials, self._recorder, clock=deps.clock, log=self._log
            )
        starter = ContainerStarter(
            deps.client,
            runtime,
            config,
            self._services_of,
            self._names,
            self._puller,
            clock=deps.clock,
        )
        self._tools = Tools(
            client=deps.client,
            runtime=runtime,
            starter=starter,
            prober=prober or SystemProber(runtime, deps.clock),
            recorder=self._recorder,
            clock=deps.clock,
            log=self._log,
            config=config,
            metrics=instruments(deps.metrics),
            admit=self._admit,
            refuse_resize=self._refuse_resize,
            room_changed=self._room_changed,
        )
        self._room = pod_requests.allocatable(config.capacity)
        self._workers: dict[str, PodWorker] = {}
        self._nursery: Nursery | None = None
        self._services = deps.informers.informer(SERVICE)
        fields = f"spec.nodeName={config.name}" if config.own_objects_only else ""
        self._pods: Informer[Pod] = deps.informers.informer(POD, fields=fields)
        self._listening = False

    async def run(self) -> None:
        """Serve until cancelled; the pods' programs go on without the agent.

        The informers of ``deps`` must be running.
        """
        async with Nursery(f"agent {self._config.name}") as nursery:
            self._nursery = nursery
            try:
                nursery.start(self._recorder.run(), name="event recorder")
                if self._puller is not None:
                    nursery.start(self._puller.run(), name="image puller")
                await self._disk.measure()  # before pods are taken and the node is reported
                await self._heartbeat.register()
                self.registered.set()
                nursery.start(self._disk.run(), name="disk monitor")
                nursery.start(self._heartbeat.run(), name="heartbeat")
                await self._pods.synced.wait()
                self._listen()
                if self._names is not None:
                    nursery.start(self._names.run(self._with_address), name="names of Services")
                for record in self._strangers():
                    nursery.start(
                        end_pod(self._runtime, record, self._tools), name="end a forgotten pod"
                    )
                await asyncio.Event().wait()
            finally:
                self._nursery = None
                self._workers.clear()

    async def leave(self) -> None:
        """Report that the node is no longer served, if the API can be reached; after ``run``."""
        await self._heartbeat.leave()

    def pod(self, key: ObjectKey) -> Pod | None:
        """A pod of the node; None if there is no such pod on it."""
        found = self._pods.store.get(key)
        return found if found and found.spec.node_name == self._config.name else None

    def _has_synced_status(self) -> bool:
        """Whether the API knows all that is known here of the node's pods."""
        behind = any(worker.is_behind for worker in self._workers.values())
        return self._listening and not behind

    async def _services_of(self, namespace: str) -> list[Service]:
        """The Services of a namespace; no container starts before they are known."""
        await self._services.synced.wait()
        return list(self._services.store.list(namespace))

    def _with_address(self) -> list[tuple[Pod, str]]:
        """The pods that are prepared, and their addresses."""
        return [
            (worker.pod, record.sandbox.address)
            for record in self._runtime.pods()
            if (worker := self._workers.get(record.sandbox.uid)) is not None
        ]

    # --- pods ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Register the handlers of pods; after a restart of the agent the handlers are there already."""
        if self._listening:
            for pod in self._pods.store.list():
                self._on_change(pod)
            return
        self._listening = True
        self._pods.add_handler(
            self._on_change, lambda old, new: self._on_change(new), self._on_delete
        )

    def _on_change(self, pod: Pod) -> None:
        if pod.spec.node_name != self._config.name or self._nursery is None:
            return
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(pod)
            return
        worker = PodWorker(pod, self._tools)
        self._workers[uid] = worker
        self._nursery.start(self._work(uid, worker), name=f"pod {pod.key}")

    def _on_delete(self, pod: Pod) -> None:
        worker = self._workers.get(pod.metadata.uid)
        if worker is not None:
            worker.vanish()

    async def _work(self, uid: str, first: PodWorker) -> None:
        """Run the pod's worker; one that crashes is replaced, from what the runtime knows."""
        worker: PodWorker | None = first

        async def attempt() -> None:
            nonlocal worker
            if worker is None:
                worker = self._workers[uid].again()
                self._workers[uid] = worker
            try:
                await worker.run()
            finally:
                worker = None

        try:
            await supervise(f"pod {first.pod.key}", attempt, clock=self._deps.clock, log=self._log)
        finally:
            self._workers.pop(uid, None)

    def _running_pods(self) -> list[Pod]:
        return [worker.pod for worker in self._workers.values() if worker.holds_resources]

    def _finished_pods(self) -> list[str]:
        return [uid for uid, worker in self._workers.items() if worker.is_over]

    def _evict(self, pod: Pod, why: str) -> None:
        worker = self._workers.get(pod.metadata.uid)
        if worker is not None:
            worker.evict(why)

    def _admit(self, pod: Pod) -> tuple[str, str] | None:
        if self._disk.pressure.is_pressure and not is_critical(pod):
            return EVICTED, "The node had condition: [DiskPressure]. "
        wanted = pod_requests.pod_request(pod.spec).resources
        return admission.refusal(wanted, self._held_by_others(pod), self._room)

    def _refuse_resize(self, pod: Pod, wanted: Resources) -> tuple[str, str] | None:
        if never := admission.refusal(wanted, (), self._room):
            return pod_requests.INFEASIBLE, never[1]
        now = admission.refusal(wanted, self._held_by_others(pod), self._room)
        return (pod_requests.DEFERRED, now[1]) if now else None

    def _room_changed(self) -> None:
        for worker in self._workers.values():
            worker.room_changed()

    def _held_by_others(self, pod: Pod) -> list[Resources]:
        return [
            worker.requested
            for uid, worker in self._workers.items()
            if uid != pod.metadata.uid and worker.holds_resources
        ]

    def _strangers(self) -> list[PodRecord]:
        """Pods that the runtime has for this node and the API does not."""
        return [
            record
            for record in self._runtime.pods()
            if record.setup.node_name == self._config.name
            and record.sandbox.uid not in self._workers
        ]


async def end_pod(runtime: PodRuntime, record: PodRecord, tools: Tools) -> None:
    """Stop and forget a pod that the API does not know: SIGTERM, a short grace, SIGKILL."""
    uid = record.sandbox.uid
    tools.log.warning("ending a pod that the API does not know", pod=record.setup.name, uid=uid)
    ended = asyncio.Event()
    stop = runtime.watch(uid, ended.set)
    try:
        for run in record.runs:
            if run.running:
                await runtime.signal(run.id, signal.SIGTERM)
        async with tools.clock.timeout(tools.config.timing.vanished_grace_s):
            while _is_running(runtime, uid):
                ended.clear()
                await ended.wait()
    except TimeoutError:
        tools.log.info("killing it", pod=record.setup.name, uid=uid)
    finally:
        stop()
    try:
        await runtime.remove(uid)
    except RuntimeFailedError as error:
        tools.log.error("cannot end a pod", pod=record.setup.name, uid=uid, error=error)


async def end_other_nodes(runtime: PodRuntime, nodes: frozenset[str], log: Logger) -> None:
    """End the pods of nodes that are no longer run here (``--nodes`` was larger before).

    All at once; one that cannot be ended is logged and holds up nothing.

    Args:
        runtime: opened.
        nodes: names of the nodes that are.
        log: where that is logged.
    """
    async with Nursery("pods of other nodes") as nursery:
        for record in runtime.pods():
            if record.setup.node_name not in nodes:
                nursery.start(_end_other(runtime, record, log), name="end a pod of another node")


async def _end_other(runtime: PodRuntime, record: PodRecord, log: Logger) -> None:
    facts = {"pod": record.setup.name, "node": record.setup.node_name}
    log.warning("ending a pod of a node that is no longer here", **facts)
    try:
        await runtime.remove(record.sandbox.uid)
    except RuntimeFailedError as error:  # the next start tries again; this one goes on
        log.error("cannot end a pod", error=error, **facts)


def _is_running(runtime: PodRuntime, uid: str) -> bool:
    return any(run.running for record in runtime.pods(uid) for run in record.runs)
