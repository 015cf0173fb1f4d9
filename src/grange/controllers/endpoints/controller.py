"""The shell of the endpoints controller."""

from grange.api.kinds import ENDPOINTS, ENDPOINTSLICE, POD, SERVICE
from grange.api.kinds.endpoints import Endpoints
from grange.api.kinds.endpointslice import SERVICE_LABEL, EndpointSlice
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.status import NotFound
from grange.controllers.endpoints import logic
from grange.controllers.endpoints.logic import WantedSlice
from grange.reconcile.controller import Controller, Done, Result
from grange.reconcile.deps import Deps
from grange.reconcile.owners import owner_reference

NAME = "endpoints"
WORKERS = 4
BATCH_S = 0.05
"""Changes of pods within this time are one reconcile: a thousand that become ready are few writes."""


class EndpointsController:
    """Keeps the endpoints of Services; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
    """

    def __init__(self, deps: Deps) -> None:
        self._client = deps.client
        self._services = deps.informers.informer(SERVICE)
        self._pods = deps.informers.informer(POD)
        self._slices = deps.informers.informer(ENDPOINTSLICE)
        self._endpoints = deps.informers.informer(ENDPOINTS)
        self._listens = False
        self.loop = Controller(
            NAME,
            self.reconcile,
            workers=WORKERS,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._services.add_handler(self._seen, lambda _, new: self._seen(new))
        self._slices.add_handler(None, lambda _, new: self._slice(new), self._slice)
        self._endpoints.add_handler(None, lambda _, new: self._endpoint(new), self._endpoint)

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in (self._services, self._pods, self._slices, self._endpoints):
            await informer.synced.wait()
        await self.loop.run()

    # --- what happens -------------------------------------------------------------------------

    def _seen(self, service: Service) -> None:
        if not logic.is_managed(service):
            return
        self.loop.enqueue(service.key)
        if not self._listens:
            # Without a Service with a selector, pods are nothing to us.
            self._listens = True
            self._pods.add_handler(self._pod, self._pod_changed, self._pod)

    def _pod(self, *versions: Pod) -> None:
        for service in self._services.store.list(versions[0].metadata.namespace):
            if logic.is_managed(service) and any(_selects(service, pod) for pod in versions):
                self.loop.enqueue_after(service.key, BATCH_S)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if logic.facts(old) != logic.facts(new):
            self._pod(old, new)

    def _slice(self, found: EndpointSlice) -> None:
        name = found.metadata.labels.get(SERVICE_LABEL)
        if name and found.metadata.labels.get(logic.MANAGED_BY) == logic.MANAGER:
            self._again(ObjectKey(found.metadata.namespace, name))

    def _endpoint(self, found: Endpoints) -> None:
        self._again(found.key)

    def _again(self, key: ObjectKey) -> None:
        service = self._services.store.get(key)
        if service is not None and logic.is_managed(service):
            self.loop.enqueue_after(key, BATCH_S)

    # --- what follows -------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the endpoints of one Service up to date.

        Raises:
            ApiError: a request failed that had to succeed; to be tried again.
        """
        service = self._services.store.get(key)
        if service is None or not logic.is_managed(service):
            return Done()  # what it had is its dependent, and goes with it
        pods = [pod for pod in self._pods.store.list(key.namespace) if _selects(service, pod)]
        await self._write_slices(service, pods)
        await self._write_endpoints(service, pods)
        return Done()

    async def _write_slices(self, service: Service, pods: list[Pod]) -> None:
        existing = {
            item.metadata.name: item
            for item in self._slices.store.list(service.metadata.namespace)
            if item.metadata.labels.get(SERVICE_LABEL) == service.metadata.name
            and item.metadata.labels.get(logic.MANAGED_BY) == logic.MANAGER
        }
        wanted = logic.slices(service, pods, existing.values())
        for item in wanted:
            await self._write_slice(service, item, existing.pop(item.name, None))
        for surplus in existing.values():
            try:
                await self._client.delete_as_read(ENDPOINTSLICE, surplus)
            except NotFound:
                continue

    async def _write_slice(
        self, service: Service, wanted: WantedSlice, found: EndpointSlice | None
    ) -> None:
        labels = logic.labels(service)
        content: Document = {"endpoints": list(wanted.endpoints), "ports": list(wanted.ports)}
        namespace = service.metadata.namespace
        if found is None:
            owner = owner_reference(SERVICE, service)
            meta: Document = {"name": wanted.name, "labels": labels, "ownerReferences": [owner]}
            document = {"metadata": meta, "addressType": "IPv4", **content}
            await self._client.create(ENDPOINTSLICE, document, namespace)
            return
        same = (found.endpoints, found.ports) == (wanted.endpoints, wanted.ports)
        if same and found.metadata.labels == labels:
            return
        gone = dict.fromkeys(found.metadata.labels.keys() - labels.keys())
        patch = {"metadata": {**preconditions(found.metadata), "labels": {**labels, **gone}}}
        await self._client.patch(ENDPOINTSLICE, wanted.name, namespace, patch={**patch, **content})

    async def _write_endpoints(self, service: Service, pods: list[Pod]) -> None:
        key = service.key
        subsets, is_over = logic.subsets(service, pods)
        found = self._endpoints.store.get(key)
        annotations = {logic.OVER_CAPACITY: "truncated" if is_over else None}
        if found is None:
            owner = owner_reference(SERVICE, service)
            meta: Document = {"name": key.name, "ownerReferences": [owner]}
            meta["labels"] = dict(service.metadata.labels)
            meta["annotations"] = {name: text for name, text in annotations.items() if text}
            document = {"metadata": meta, "subsets": subsets}
            await self._client.create(ENDPOINTS, document, key.namespace)
            return
        has_been_over = found.metadata.annotations.get(logic.OVER_CAPACITY) == "truncated"
        if list(found.subsets) == subsets and has_been_over == is_over:
            return
        patch = {
            "metadata": {**preconditions(found.metadata), "annotations": annotations},
            "subsets": subsets,
        }
        await self._client.patch(ENDPOINTS, key.name, key.namespace, patch=patch)


def _selects(service: Service, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return all(labels.get(name) == value for name, value in service.spec.selector.items())
