"""What is done to ReplicationControllers by hand and by programs: each is one exact write.

Preconditions are part of the write: a count that must hold is tested by the server in the same
patch, an object that must not have changed carries its version. Where a read has to come first, the
write is fenced by what was read, and tried again a few times when another client wrote in between.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.replicationcontroller import NAME_LABEL, ReplicationController
from grange.api.kinds.transfer_status import DRAINED_NODES, drained_nodes
from grange.api.meta import Document, controller_of, preconditions
from grange.api.names import label_value
from grange.api.replication import (
    PROTECT_ANNOTATION,
    PROTECT_REPLICAS,
    REMOVE_ANNOTATION,
    order_text,
    ordered,
)
from grange.api.status import Conflict, Invalid, NotFound
from grange.base.errors import GrangeError
from grange.base.plurals import counted
from grange.client.client import Client

T = TypeVar("T")

_ATTEMPTS = 20  # a controller whose pods move has its status written many times a second


class OperationRefused(GrangeError):
    """What was asked for must not be done as things are; nothing was written."""


class StillWanted(OperationRefused):
    """The controller asks for replicas: scale it to zero first, or force it."""


class OtherCount(OperationRefused):
    """The controller asks for another number of replicas than was given."""


class WouldRemove(OperationRefused):
    """Pods that run would belong to the controller, which asks for none: they would be removed."""


class Ambiguous(OperationRefused):
    """Labels that were to mean one controller mean several."""


def still_wanted(controller: ReplicationController) -> StillWanted:
    """The error for one that is to be deleted and asks for replicas."""
    amount = counted(controller.spec.replicas, "replica")
    return StillWanted(
        f"{controller.metadata.name} asks for {amount}: "
        "scale it to zero first, or use --force to delete it anyway"
    )


async def pods_of(client: Client, controller: ReplicationController, node: str) -> list[Pod]:
    """The pods on a node that belong to a controller, also those that have lost its labels.

    Args:
        client: to the API.
        controller: whose; as owner references name it, because labels may be set by anyone.
        node: name of the node.
    """
    fields = f"spec.nodeName={node}"
    listed = await client.list(POD, controller.metadata.namespace, fields=fields)
    return [pod for pod in listed.items if _belongs(pod, controller)]


def _belongs(pod: Pod, controller: ReplicationController) -> bool:
    owner = controller_of(pod.metadata)
    return owner is not None and owner.uid == controller.metadata.uid


class ReplicationControllers:
    """The operations, in one namespace.

    Args:
        client: to the API.
        namespace: where the controllers are.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def get(self, name: str) -> ReplicationController:
        """One controller.

        Raises:
            NotFound: there is none of this name.
        """
        return await self._client.get(REPLICATIONCONTROLLER, name, self._namespace)

    async def find(self, labels: str) -> ReplicationController:
        """The one controller with these labels.

        Raises:
            NotFound: none has them.
            Ambiguous: several do.
        """
        found = await self._client.list(REPLICATIONCONTROLLER, self._namespace, labels=labels)
        if len(found.items) == 1:
            return found.items[0]
        if not found.items:
            raise NotFound(f"no ReplicationController has the labels {labels!r}")
        names = ", ".join(item.metadata.name for item in found.items)
        raise Ambiguous(f"labels {labels!r} mean several controllers: {names}; name one")

    async def create(
        self,
        name: str,
        spec: Mapping[str, object],
        *,
        labels: Mapping[str, str] | None = None,
        protect: bool = True,
        dry_run: bool = False,
    ) -> ReplicationController:
        """Create a controller that asks for no replicas yet.

        Args:
            name: of it.
            spec: all but ``replicas``, which is always zero.
            labels: of the controller itself.
            protect: refuse to delete it, by any client, while it asks for replicas.
            dry_run: have the server judge it and keep nothing.

        Raises:
            WouldRemove: an earlier controller of this name left pods, and the new one is not paused.
            AlreadyExists: the name is taken.
            Invalid: a rule is broken; the causes name the fields.
        """
        if not spec.get("paused"):
            await self._check_orphans(name)
        annotations = {PROTECT_ANNOTATION: PROTECT_REPLICAS} if protect else {}
        document: Document = {
            "metadata": {"name": name, "labels": dict(labels or {}), "annotations": annotations},
            "spec": {**spec, "replicas": 0},
        }
        return await self._client.create(
            REPLICATIONCONTROLLER, document, self._namespace, dry_run=dry_run
        )

    async def _check_orphans(self, name: str) -> None:
        mark = f"{NAME_LABEL}={label_value(name)}"
        left = [
            pod
            for pod in (await self._client.list(POD, self._namespace, labels=mark)).items
            if controller_of(pod.metadata) is None
            and not pod.metadata.deletion_timestamp
            and not is_finished(pod)
        ]
        if left:
            raise WouldRemove(
                f"ReplicationController {name}: running pods without a controller ({len(left)}) "
                f"would become its own and be removed, because it asks for no replicas yet: "
                f"use grange apply with spec.replicas: {len(left)} to take them over, "
                f"or delete them first ({mark})"
            )

    async def enable(
        self, name: str, *, unchanged_since: ReplicationController | None = None
    ) -> ReplicationController:
        """Have it scaled and repaired again.

        Raises:
            Conflict: it has changed since it was seen.
        """
        return await self._patch(name, {"spec": {"paused": False}}, unchanged_since)

    async def disable(
        self, name: str, *, unchanged_since: ReplicationController | None = None
    ) -> ReplicationController:
        """Leave it alone: pods keep running, nothing is scaled or repaired.

        Raises:
            Conflict: it has changed since it was seen.
        """
        return await self._patch(name, {"spec": {"paused": True}}, unchanged_since)

    async def set_replicas(self, name: str, replicas: int) -> ReplicationController:
        """Ask for so many.

        Raises:
            Invalid: the number is negative.
        """
        _check_count("spec.replicas", replicas)
        return await self._patch(name, {"spec": {"replicas": replicas}}, None)

    async def add_replicas(self, name: str, more: int) -> ReplicationController:
        """Ask for so many more, or fewer; never for less than none.

        Raises:
            Conflict: others kept changing the number.
        """

        async def attempt() -> ReplicationController:
            seen = await self.get(name)
            wanted = max(0, seen.spec.replicas + more)
            if wanted == seen.spec.replicas:
                return seen
            return await self._test_and_set(seen, seen.spec.replicas, {"/spec/replicas": wanted})

        return await _again(attempt)

    async def compare_and_set_replicas(
        self, name: str, expected: int, replicas: int
    ) -> ReplicationController:
        """Ask for so many, if so many were asked for until now.

        Raises:
            OtherCount: another number is asked for.
            Invalid: a number is negative.
        """
        _check_count("spec.replicas", replicas)
        seen = await self.get(name)
        if seen.spec.replicas == expected:
            try:
                return await self._test_and_set(seen, expected, {"/spec/replicas": replicas})
            except Conflict:
                seen = await self.get(name)
        raise OtherCount(
            f"{name}: expected {counted(expected, 'replica')}, found {seen.spec.replicas}"
        )

    async def update_template(
        self,
        name: str,
        template: Document,
        *,
        unchanged_since: ReplicationController | None = None,
    ) -> ReplicationController:
        """Make pods from another template; as ``spec.rollout`` specifies.

        Raises:
            Conflict: it has changed since it was seen.
            Invalid: the template breaks a rule.
        """
        seen = unchanged_since or await self.get(name)
        operations: list[Document] = [
            {"op": "test", "path": "/metadata/uid", "value": seen.metadata.uid},
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        if unchanged_since is not None:
            version = unchanged_since.metadata.resource_version
            held = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            operations.insert(0, held)
        return await self._json_patch(name, operations)

    async def set_strategy(self, name: str, strategy: str) -> ReplicationController:
        """``Static`` or ``Dynamic``.

        Raises:
            Invalid: it is neither.
        """
        return await self._patch(name, {"spec": {"strategy": strategy}}, None)

    async def delete(self, name: str, *, force: bool = False, propagation: str = "Orphan") -> None:
        """Delete a controller; its pods stay unless asked otherwise.

        Args:
            name: of it.
            force: although it asks for replicas, and although it is protected.
            propagation: Orphan, Background or Foreground: what becomes of its pods.

        Raises:
            StillWanted: it asks for replicas.
            Conflict: others kept changing it.
        """

        async def attempt() -> None:
            seen = await self.get(name)
            if not force:
                if seen.spec.replicas != 0:
                    raise still_wanted(seen)
                await self._client.delete_as_read(
                    REPLICATIONCONTROLLER, seen, propagation=propagation
                )
                return
            # Whatever it has become: while its pods move, its status changes before every write.
            which = (REPLICATIONCONTROLLER, name, self._namespace)
            uid = seen.metadata.uid
            if PROTECT_ANNOTATION in seen.metadata.annotations:
                bare = {"uid": uid, "annotations": {PROTECT_ANNOTATION: None}}
                await self._client.patch(*which, patch={"metadata": bare})
            await self._client.delete(*which, uid=uid, propagation=propagation)

        await _again(attempt)

    async def remove_pod(self, name: str, pod: str, *, uid: str = "") -> ReplicationController:
        """Ask for one replica less, and for this pod to be the one that goes: in one write.

        Names of pods come back. Given the uid, the same order can be given again when its answer was
        lost, and never means the successor.

        Args:
            name: of the controller.
            pod: its name.
            uid: of the pod that is meant; empty for the one that has the name now.

        Raises:
            Refused: the pod is not the controller's or not the one that is meant, it is on its way
                out already, or the controller is disabled.
            Conflict: others kept changing the controller.
        """
        meant = uid

        async def attempt() -> ReplicationController:
            nonlocal meant
            seen = await self.get(name)
            going = await self._client.get(POD, pod, self._namespace)
            meant = meant or going.metadata.uid
            if going.metadata.uid != meant:
                raise OperationRefused(
                    f"the pod that was {pod} is gone: another one has the name now"
                )
            _check_removal(seen, going)
            if going.metadata.uid in ordered(seen):
                return seen
            orders = await self._undone(seen) | _named([going])
            change: Document = {
                "metadata": {"annotations": {REMOVE_ANNOTATION: order_text(orders)}},
                "spec": {"replicas": seen.spec.replicas - 1},
            }
            return await self._patch(name, change, seen)

        return await _again(attempt)

    async def drain_node(
        self, name: str, node: str, *, shrink: bool = False
    ) -> ReplicationController:
        """Have the controller's pods leave a node, and stay away from it, in one write.

        Args:
            name: of the controller.
            node: to leave; it need not exist (any more).
            shrink: the pods go for good and the replicas with them; else they move, each coming
                up on another node before it goes.

        Raises:
            Refused: to shrink, and a pod there is on its way out already or may not be removed.
            Conflict: others kept changing the controller.
        """

        async def attempt() -> ReplicationController:
            seen = await self.get(name)
            annotations = {DRAINED_NODES: ",".join(sorted(drained_nodes(seen) | {node}))}
            change: Document = {"metadata": {"annotations": annotations}}
            if shrink:
                known = ordered(seen)
                there = await pods_of(self._client, seen, node)
                fresh = [pod for pod in there if pod.metadata.uid not in known]
                for pod in fresh:
                    _check_removal(seen, pod)
                orders = await self._undone(seen) | _named(fresh)
                annotations[REMOVE_ANNOTATION] = order_text(orders)
                change["spec"] = {"replicas": max(0, seen.spec.replicas - len(fresh))}
            return await self._patch(name, change, seen)

        return await _again(attempt)

    async def undrain_node(self, name: str, node: str) -> ReplicationController:
        """Let the controller's pods come to a node again.

        Raises:
            Conflict: others kept changing the controller.
        """

        async def attempt() -> ReplicationController:
            seen = await self.get(name)
            left = ",".join(sorted(drained_nodes(seen) - {node}))
            change = {"metadata": {"annotations": {DRAINED_NODES: left or None}}}
            return await self._patch(name, change, seen)

        return await _again(attempt)

    async def _undone(self, seen: ReplicationController) -> dict[str, str]:
        """The pods that were ordered to go and may be there yet; by name, lest all be listed."""
        left = {}
        for uid, name in ordered(seen).items():
            try:
                pod = await self._client.get(POD, name, self._namespace) if name else None
            except NotFound:
                continue
            if pod is None or (pod.metadata.uid == uid and _belongs(pod, seen)):
                left[uid] = name
        return left

    # --- writes -------------------------------------------------------------------------------

    async def _patch(
        self, name: str, change: Document, seen: ReplicationController | None
    ) -> ReplicationController:
        if seen is not None:
            fence = preconditions(seen.metadata)
            change = {**change, "metadata": {**(change.get("metadata") or {}), **fence}}
        return await self._client.patch(REPLICATIONCONTROLLER, name, self._namespace, patch=change)

    async def _test_and_set(
        self, seen: ReplicationController, expected: int, values: Mapping[str, object]
    ) -> ReplicationController:
        """Write values if the count still holds; unlike a version, a status does not disturb it.

        Raises:
            Conflict: it does not.
        """
        operations: list[Document] = [
            {"op": "test", "path": "/metadata/uid", "value": seen.metadata.uid},
            {"op": "test", "path": "/spec/replicas", "value": expected},
        ]
        operations += [
            {"op": "replace", "path": path, "value": value} for path, value in values.items()
        ]
        try:
            return await self._json_patch(seen.metadata.name, operations)
        except Invalid as error:
            live = await self.get(seen.metadata.name)
            same = live.metadata.uid == seen.metadata.uid and live.spec.replicas == expected
            if same:
                raise
            raise Conflict(f"{seen.metadata.name} asks for another number by now") from error

    async def _json_patch(self, name: str, operations: Sequence[Document]) -> ReplicationController:
        return await self._client.patch(
            REPLICATIONCONTROLLER, name, self._namespace, patch=operations, type="json"
        )


def _named(pods: Sequence[Pod]) -> dict[str, str]:
    return {pod.metadata.uid: pod.metadata.name for pod in pods}


def _check_count(field: str, value: int) -> None:
    if value < 0:
        raise Invalid(f"{field}: {value} is negative: ask for 0 or more")


def _check_removal(controller: ReplicationController, pod: Pod) -> None:
    name = controller.metadata.name
    if not _belongs(pod, controller):
        raise OperationRefused(
            f"pod {pod.metadata.name} does not belong to {name}: delete it by itself"
        )
    if pod.metadata.deletion_timestamp:
        raise OperationRefused(f"pod {pod.metadata.name} is on its way out already")
    if controller.spec.paused:
        raise OperationRefused(
            f"{name} is disabled and removes nothing: `grange rc enable {name}` first"
        )
    if controller.spec.replicas == 0:
        raise OperationRefused(f"{name} asks for no replicas: all of its pods are on their way out")


async def _again(attempt: Callable[[], Awaitable[T]]) -> T:
    """Read and write; again when another client wrote in between, a few times.

    Raises:
        Conflict: it never held.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await attempt()
        except Conflict:
            continue
    return await attempt()
