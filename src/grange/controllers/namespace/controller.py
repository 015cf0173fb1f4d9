"""The shell of the namespace controller."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from grange.api import timestamps
from grange.api.kinds import BUILT_IN, NAMESPACE, POD
from grange.api.kinds.namespace import FINALIZER, Namespace
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey, Resource, preconditions
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, Conflict, NotFound
from grange.controllers.namespace import logic
from grange.controllers.namespace.config import NamespaceConfig
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps

NAME = "namespace"


class NamespaceController:
    """Empties and finalizes terminating namespaces; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
        kinds: every kind that may have objects in a namespace.
    """

    def __init__(
        self,
        deps: Deps,
        config: NamespaceConfig | None = None,
        kinds: Sequence[AnyKind] = BUILT_IN,
    ) -> None:
        self._config = config or NamespaceConfig()
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log.bind(controller=NAME)
        namespaced = [kind for kind in kinds if kind.namespaced and kind is not POD]
        # Only identity and finalizers matter, so nothing else is decoded. Pods go first: they may
        # need their ConfigMaps and Secrets until their last second.
        pods: AnyKind = POD
        self._order = [
            [replace(kind, view=Resource) for kind in kinds_] for kinds_ in ([pods], namespaced)
        ]
        self._attempts: dict[str, int] = {}  # by uid: passes that did not find it empty
        self._namespaces = deps.informers.informer(NAMESPACE)
        self._pods = deps.informers.informer(POD)
        self.loop = Controller(
            NAME,
            self.reconcile,
            workers=self._config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._namespaces.add_handler(self._seen, lambda _, new: self._seen(new), self._gone)
        self._pods.add_handler(on_delete=self._pod_gone)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._namespaces.synced.wait()
        await self.loop.run()

    def _seen(self, namespace: Namespace) -> None:
        if namespace.metadata.deletion_timestamp:
            self.loop.enqueue(namespace.key)

    def _gone(self, namespace: Namespace) -> None:
        self._attempts.pop(namespace.metadata.uid, None)

    def _pod_gone(self, pod: Pod) -> None:
        namespace = self._namespaces.store.get(ObjectKey("", pod.metadata.namespace))
        if namespace is not None:
            self._seen(namespace)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one terminating namespace closer to its end.

        Raises:
            ApiError: a request failed that had to succeed; to be tried again.
        """
        namespace = self._namespaces.store.get(key)
        if namespace is None or not namespace.metadata.deletion_timestamp:
            return Done()
        remains = await self._empty(key.name)
        if remains.empty:
            return await self._finalize(namespace)
        await self._write_conditions(namespace, remains)
        uid = namespace.metadata.uid
        attempts = self._attempts[uid] = self._attempts.get(uid, 0) + 1
        return Requeue(self._config.again.delay(attempts))

    async def _empty(self, namespace: str) -> logic.Remains:
        """Delete pods; when there are none left, everything else. What remains after that."""
        counts: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        failures: list[str] = []
        for kinds in self._order:
            for kind in kinds:
                try:
                    left = await self._clear(kind, namespace)
                except ApiError as error:
                    failures.append(f"{kind.qualified}: {error.message}")
                    continue
                counts[kind.qualified] += len(left)
                finalizers.update(name for obj in left for name in obj.metadata.finalizers)
            if any(counts.values()) or failures:
                break
        return logic.Remains(counts, finalizers, failures)

    async def _clear(self, kind: AnyKind, namespace: str) -> list[Resource]:
        """Delete all objects of a kind and return those that are still there."""
        for obj in await self._list(kind, namespace):
            if obj.metadata.deletion_timestamp:
                continue
            try:
                await self._client.delete(
                    kind,
                    obj.metadata.name,
                    namespace,
                    uid=obj.metadata.uid,
                    propagation="Background",
                )
            except (NotFound, Conflict):
                continue  # gone, or its name is another's: the next pass sees
        return await self._list(kind, namespace)

    async def _list(self, kind: AnyKind, namespace: str) -> list[Resource]:
        found: list[Resource] = []
        token = ""
        while True:
            page = await self._client.list(kind, namespace, limit=self._config.page, cont=token)
            found += page.items
            if page.undecodable:
                # Something is there that we cannot read: the namespace is not empty.
                raise ApiError(f"cannot be read: {page.undecodable[0]}")
            token = page.next
            if not token:
                return found

    async def _write_conditions(self, namespace: Namespace, remains: logic.Remains) -> None:
        known = namespace.status.conditions
        now = timestamps.rfc3339(self._clock.now())
        wanted = logic.conditions_of(known, remains, now)
        if wanted == known:
            return
        meta = namespace.metadata
        patch = {
            "metadata": preconditions(meta),
            "status": {"conditions": [msgspec.to_builtins(item) for item in wanted]},
        }
        try:
            await self._client.patch(NAMESPACE, meta.name, patch=patch, subresource="status")
        except (NotFound, Conflict):
            return  # the next pass writes it

    async def _finalize(self, namespace: Namespace) -> Result:
        """Take our finalizer away; the API server then removes the namespace."""
        name, uid = namespace.metadata.name, namespace.metadata.uid
        try:
            document = await self._client.get_document(NAMESPACE, name)
            if document["metadata"].get("uid") != uid:
                return Done()
            spec = document.get("spec") or {}
            held = [item for item in spec.get("finalizers") or [] if item != FINALIZER]
            document["spec"] = {**spec, "finalizers": held}
            await self._client.update(NAMESPACE, document, subresource="finalize")
        except NotFound:
            return Done()
        self._log.info("namespace emptied", namespace=name)
        return Done()
