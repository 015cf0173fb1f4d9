"""The shell of the garbage collector: one look at one object, by uid."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from grange.api.kinds import BUILT_IN
from grange.api.meta import ObjectKey, OwnerReference, Resource, preconditions
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import NotFound
from grange.base.backoff import Exponential
from grange.base.tasks import Nursery
from grange.controllers.garbagecollector import graph, logic
from grange.controllers.garbagecollector.config import GarbageCollectorConfig
from grange.controllers.garbagecollector.graph import FOREGROUND, ORPHAN, Graph, GraphNode
from grange.controllers.garbagecollector.logic import OwnerState
from grange.reconcile import finalizers
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.informer import Informer
from grange.reconcile.recorder import WARNING, Recorder
from grange.reconcile.workqueue import rate_limited_queue

NAME = "garbagecollector"

_UNSEEN_S = 2.0  # so long a watch may be behind before the server is asked again
_RETRY = Exponential(cap_s=60.0)  # deletions that were held go on soon after the word for it


class GarbageCollector:
    """Deletes objects without owners; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
        kinds: the kinds whose objects own and are owned.
    """

    def __init__(
        self,
        deps: Deps,
        config: GarbageCollectorConfig | None = None,
        kinds: Sequence[AnyKind] = BUILT_IN,
    ) -> None:
        self._config = config or GarbageCollectorConfig()
        self._client = deps.client
        self._log = deps.log.bind(controller=NAME)
        self._scheme = Scheme(tuple(kinds))
        self._recorder = Recorder(
            deps.client,
            "garbage-collector",
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self.graph = Graph()
        self.loop = Controller(
            NAME,
            self.reconcile,
            queue=rate_limited_queue(deps.clock, _RETRY, rate_per_s=100.0, burst=1000),
            workers=self._config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._informers: list[Informer[Resource]] = []
        self._own: list[Informer[Resource]] = []
        self._ready = False
        self._kinds = [kind for kind in self._scheme if kind.plural not in self._config.ignored]
        for kind in self._kinds:
            self._watch(deps, kind)

    def _watch(self, deps: Deps, kind: AnyKind) -> None:
        informer: Informer[Resource]
        if kind.plural in self._config.shared:
            informer = deps.informers.informer(kind)
        else:
            informer = Informer(
                deps.client,
                replace(kind, view=Resource),
                clock=deps.clock,
                rng=deps.rng.fork(f"{NAME}/{kind.qualified}"),
                log=deps.log,
                metrics=deps.metrics,
            )
            self._own.append(informer)
        self._informers.append(informer)

        def seen(obj: Resource) -> None:
            self._look(self.graph.put(GraphNode.of(kind, obj)))

        informer.add_handler(
            seen,
            lambda _, new: seen(new),
            lambda old: self._look(self.graph.remove(old.metadata.uid)),
        )

    def _look(self, uids: Sequence[str]) -> None:
        if self._ready:
            for uid in uids:
                self.loop.enqueue(ObjectKey("", uid))

    async def run(self) -> None:
        """Work until cancelled; begins when every kind has shown a complete state."""
        async with Nursery(NAME) as nursery:
            for informer in self._own:
                nursery.start(informer.run(), name=f"{NAME} {informer.kind.qualified}")
            for informer in self._informers:
                await informer.synced.wait()
            # Before this an owner that is merely not listed yet would look gone.
            self._ready = True
            self._look(self.graph.suspects())
            nursery.start(self._recorder.run(), name=f"{NAME} events")
            nursery.start(self.loop.run(), name=f"{NAME} loop")

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at the object of a uid (the key's name) once.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        entry = self.graph.get(key.name)
        if entry is None:
            return Done()
        if entry.orphans_dependents:
            await self._orphan(entry)
        elif entry.waits_for_dependents:
            await self._foreground(entry)
        if entry.owners and await self._attempt(entry):
            return Requeue(_UNSEEN_S)
        return Done()

    # --- by owners ----------------------------------------------------------------------------

    async def _attempt(self, known: GraphNode) -> bool:
        """Delete the object, or drop references of it, if that is what its owners call for.

        Returns:
            Whether it stays for an owner that only the server has shown: one that goes before a watch
            brings it is never seen to go, so the object is to be looked at again.
        """
        if all(self._known_alive(owner, known) for owner in known.owners):
            return False
        obj = await self._live(known)
        if obj is None:
            return False
        entry = GraphNode.of(known.kind, obj)
        states = {owner.uid: await self._state(owner, entry) for owner in entry.owners}
        dependents = self.graph.dependents(entry.uid)
        match logic.decide(entry, states, has_dependents=bool(dependents)):
            case logic.KeepObject(drop=()):
                self._warn(obj, entry, states)
                return any(self._is_unseen(owner, states) for owner in entry.owners)
            case logic.KeepObject(drop=drop):
                await self._drop_owners(entry.kind, obj, drop)
            case logic.Delete(propagation=propagation):
                await self._delete(entry, obj, propagation)
        return False

    def _is_unseen(self, owner: OwnerReference, states: Mapping[str, OwnerState]) -> bool:
        """Whether an owner exists of which the graph has nothing yet, though it watches its kind."""
        if states[owner.uid] not in (OwnerState.ALIVE, OwnerState.WAITING):
            return False
        kind = self._scheme.kind(owner.api_version, owner.kind)
        return kind in self._kinds and self.graph.get(owner.uid) is None

    def _known_alive(self, owner: OwnerReference, dependent: GraphNode) -> bool:
        found = self.graph.get(owner.uid)
        return (
            found is not None
            and not found.waits_for_dependents
            and graph.names(owner, found, dependent)
        )

    async def _state(self, owner: OwnerReference, dependent: GraphNode) -> OwnerState:
        found = self.graph.get(owner.uid)
        if found is not None:
            if not graph.names(owner, found, dependent):
                return (
                    OwnerState.UNKNOWN
                )  # the uid lives, under other coordinates: nothing is certain
            return OwnerState.WAITING if found.waits_for_dependents else OwnerState.ALIVE
        kind = self._scheme.kind(owner.api_version, owner.kind)
        if kind is None or not logic.is_possible_owner(kind, dependent):
            return OwnerState.UNKNOWN
        namespace = dependent.key.namespace if kind.namespaced else ""
        try:
            live = await self._client.get(_metadata_of(kind), owner.name, namespace)
        except NotFound:
            return OwnerState.GONE
        if live.metadata.uid != owner.uid:
            return OwnerState.GONE
        return (
            OwnerState.WAITING
            if GraphNode.of(kind, live).waits_for_dependents
            else OwnerState.ALIVE
        )

    def _warn(self, obj: Resource, entry: GraphNode, states: dict[str, OwnerState]) -> None:
        for owner in entry.owners:
            if states.get(owner.uid) is OwnerState.UNKNOWN:
                self._recorder.event(
                    obj,
                    WARNING,
                    "OwnerRefInvalid",
                    f"owner {owner.api_version}/{owner.kind} {owner.name} (uid {owner.uid}) cannot "
                    "be judged: its kind is not served here, or it is in another namespace",
                    kind=entry.kind,
                )

    async def _delete(self, entry: GraphNode, obj: Resource, propagation: str) -> None:
        try:
            await self._client.delete(
                entry.kind,
                entry.key.name,
                entry.key.namespace,
                uid=entry.uid,
                resource_version=obj.metadata.resource_version,
                propagation=propagation,
            )
        except NotFound:
            return
        self._log.info("deleted dependent", kind=entry.kind.qualified, key=entry.key, uid=entry.uid)

    # --- by finalizers ------------------------------------------------------------------------

    async def _orphan(self, entry: GraphNode) -> None:
        """Free the dependents.

        They are listed from the server: one that the graph has not seen yet would be deleted
        later, as if it had not been marked to be kept.
        """
        namespace = entry.key.namespace
        for kind in self._kinds:
            if kind.namespaced or not namespace:
                for obj in await self._list(kind, namespace):
                    await self._drop_owners(kind, obj, (entry.uid,))
        await self._drop_finalizer(entry, ORPHAN)

    async def _list(self, kind: AnyKind, namespace: str) -> list[Resource]:
        found: list[Resource] = []
        token = ""
        while True:
            page = await self._client.list(
                _metadata_of(kind), namespace, limit=self._config.page, cont=token
            )
            found += page.items
            token = page.next
            if not token:
                return found

    async def _foreground(self, entry: GraphNode) -> None:
        blockers = self.graph.outer_blockers(entry.uid)
        if not blockers:
            await self._drop_finalizer(entry, FOREGROUND)
            return
        # What is on its way out already needs no look: its end wakes this object.
        self._look([blocker.uid for blocker in blockers if not blocker.deleting])

    async def _drop_finalizer(self, entry: GraphNode, finalizer: str) -> None:
        obj = await self._live(entry)
        if obj is not None:
            with suppress(NotFound):
                await finalizers.remove(self._client, _metadata_of(entry.kind), obj, finalizer)

    async def _drop_owners(self, kind: AnyKind, obj: Resource, uids: Sequence[str]) -> None:
        references = obj.metadata.owner_references
        left = [msgspec.to_builtins(owner) for owner in references if owner.uid not in uids]
        if len(left) != len(references):
            await self._patch(kind, obj, {"ownerReferences": left})

    async def _patch(self, kind: AnyKind, obj: Resource, change: dict[str, object]) -> None:
        meta = obj.metadata
        fence = preconditions(meta)
        try:
            await self._client.patch(
                _metadata_of(kind),
                meta.name,
                meta.namespace,
                patch={"metadata": {**change, **fence}},
            )
        except NotFound:
            return

    async def _live(self, entry: GraphNode) -> Resource | None:
        """The object as the server has it; None when it is gone or its name is another's."""
        try:
            obj: Resource = await self._client.get(
                _metadata_of(entry.kind), entry.key.name, entry.key.namespace
            )
        except NotFound:
            return None
        return obj if obj.metadata.uid == entry.uid else None


def _metadata_of(kind: AnyKind) -> AnyKind:
    """The kind, read for its metadata only."""
    return replace(kind, view=Resource)
