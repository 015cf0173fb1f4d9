"""Releases pods that a finalizer holds and whose owner is gone: its controller does not see them any more.

Any member of the farm does it, because an owner that is gone belongs to none. The owner is read live
first: a cache that is behind must not release the pods of a new owner.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey, Resource, controller_of
from grange.api.scheme import KindInfo
from grange.api.status import Conflict, NotFound
from grange.client.client import Client
from grange.reconcile import finalizers
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.informer import Informer

R = TypeVar("R", bound=Resource)

_AGAIN_S = 1.0


async def _nothing(_: Pod) -> None:
    return


class OrphanedPods(Generic[R]):
    """Watches pods with a finalizer and releases those whose owner is gone.

    Args:
        client: to the API.
        kind: of the owners.
        owners, pods: the informers.
        finalizer: of the kind's pods.
        adopts: whether the kind adopts pods; one without any owner is released only if not.
        prepare: called before a pod is released; an error of the API keeps it.
    """

    def __init__(
        self,
        client: Client,
        kind: KindInfo[R],
        owners: Informer[R],
        pods: Informer[Pod],
        *,
        finalizer: str,
        adopts: bool = True,
        prepare: Callable[[Pod], Awaitable[None]] = _nothing,
    ) -> None:
        self._client = client
        self._kind = kind
        self._owners = owners
        self._pods = pods
        self._finalizer = finalizer
        self._adopts = adopts
        self._prepare = prepare
        self._loop: Controller | None = None

    def attach(self, loop: Controller) -> None:
        """Enqueue pods into a loop that runs ``reconcile``."""
        self._loop = loop
        self._pods.add_handler(self._seen, lambda _, new: self._seen(new), lambda _: None)
        self._owners.add_handler(lambda _: None, lambda _, __: None, self._owner_gone)

    def enqueue_all(self) -> None:
        """Look at every pod; call when all informers have listed their collections.

        Pods that were listed before the owners could not be compared with them.
        """
        for pod in self._pods.store.list():
            self._seen(pod)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Release one pod if its owner is gone.

        Raises:
            ApiError: it could not be prepared or released; try again.
        """
        pod = self._pods.store.get(key)
        if pod is None or not self._is_tracked(pod):
            return Done()
        reference = controller_of(pod.metadata)
        if reference is not None:
            with suppress(NotFound):
                live = await self._client.get(self._kind, reference.name, key.namespace)
                if live.metadata.uid == reference.uid:
                    return Done()
        try:
            await self._prepare(pod)
            await finalizers.remove(self._client, POD, pod, self._finalizer)
        except NotFound:
            return Done()
        except Conflict:  # it changed, or this member may not write just now
            return Requeue(_AGAIN_S)
        return Done()

    def _seen(self, pod: Pod) -> None:
        if self._loop is not None and self._is_tracked(pod) and not self._has_owner(pod):
            self._loop.enqueue(pod.key)

    def _owner_gone(self, owner: R) -> None:
        if self._loop is None:
            return
        for pod in self._pods.store.list(owner.metadata.namespace):
            reference = controller_of(pod.metadata)
            if reference is not None and reference.uid == owner.metadata.uid:
                self._seen(pod)

    def _is_tracked(self, pod: Pod) -> bool:
        if not finalizers.has(pod, self._finalizer):
            return False
        reference = controller_of(pod.metadata)
        if reference is None:
            return not self._adopts
        return (
            reference.kind == self._kind.kind
            and reference.api_version.rpartition("/")[0] == self._kind.group
        )

    def _has_owner(self, pod: Pod) -> bool:
        reference = controller_of(pod.metadata)
        if not self._owners.has_synced:
            return True
        if reference is None:
            return False
        owner = self._owners.store.get(ObjectKey(pod.metadata.namespace, reference.name))
        return owner is not None and owner.metadata.uid == reference.uid
