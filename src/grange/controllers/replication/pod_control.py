"""Claims the pods of a controller and carries out its plan: every write of the replication controller to a pod.

Creations and deletions go in batches of 1, 2, 4, … that stop at the first error (slow start), so a
template that the server refuses costs one request and not a thousand. Every write is fenced: a
deletion and a repair carry the pod's uid and the version at which it was seen to be ours, a creation
has a name that collides if another process did the same.

A request that has left the machine cannot be called back: a proxy or a kernel may deliver it long after its
sender has lost the controller or changed its plan. So each deletion is recorded in the controller's status
before it is sent, with the version of the pod that it names. Before a reconcile deletes anything else, a write
on the pod makes every recorded deletion fail, unless the pod has changed or is gone (ADR 10).
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import QUOTA_LABELS, Pod, is_active
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import PendingDeletion
from grange.api.meta import controller_of
from grange.api.status import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    TooManyRequests,
    is_namespace_terminating,
)
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.first_few import first_few
from grange.client.client import Client
from grange.controllers.replication import deletion_budgets, podtemplate
from grange.controllers.replication.plan import Addition, Plan, Removal, Repair
from grange.controllers.replication.podtemplate import LeaseTolerations
from grange.controllers.shared import pod_identity
from grange.controllers.shared.event_reasons import Reason
from grange.reconcile import owners
from grange.reconcile.control import find_owned, slow_start
from grange.reconcile.expectations import Expectations, ExpectedWrites
from grange.reconcile.recorder import NORMAL, WARNING, Recorder


class StaleCache(GrangeError):
    """The server has what the listers do not show yet: try again shortly; this is no failure."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The pods that concern a controller.

    Attributes:
        owned: pods that it controls, by name.
        adopt: orphans with its name label, to adopt.
        release: pods that it controls and whose name label was changed to another name, to release.
    """

    owned: tuple[Pod, ...]
    adopt: tuple[Pod, ...]
    release: tuple[Pod, ...]


def sort_by_owner(controller: ReplicationController, candidates: Sequence[Pod]) -> PodClaims:
    """Sort pods of the controller's namespace by owner.

    The owner reference decides. A pod of the controller that lost its labels stays (they are repaired); one
    whose name label was changed is released. An orphan with the name label is adopted, unless it is
    finished or terminating, or the controller is being deleted.
    """
    meta = controller.metadata
    mark = pod_identity.label_value(meta.name)
    owned, adopt, release = [], [], []
    for pod in sorted(candidates, key=lambda item: item.metadata.name):
        owner = controller_of(pod.metadata)
        label = pod.metadata.labels.get(pod_identity.RC_NAME_LABEL)
        if owner is not None and owner.uid == meta.uid:
            if label is not None and label != mark and not pod.metadata.deletion_timestamp:
                release.append(pod)
            else:
                owned.append(pod)
        elif owner is None and label == mark and is_active(pod) and not meta.deletion_timestamp:
            adopt.append(pod)
    return PodClaims(tuple(owned), tuple(adopt), tuple(release))


class PodControl:
    """Writes pods on behalf of controllers."""

    def __init__(
        self,
        client: Client,
        expectations: Expectations,
        recorder: Recorder,
        *,
        clock: Clock,
        zoned: Callable[[], bool] = lambda: False,
        leased: LeaseTolerations | None = None,
    ) -> None:
        self._leased = leased or LeaseTolerations()
        self._clock = clock
        self._zoned = zoned
        self._client = client
        self._expectations = expectations
        self._recorder = recorder

    async def claim(
        self, controller: ReplicationController, claim: PodClaims
    ) -> tuple[list[Pod], Exception | None]:
        """Adopt and release; the adopted pods and the first error."""
        wanted = {pod.metadata.uid for pod in claim.adopt}
        if not wanted and not claim.release:
            return [], None
        # Pods are listed by the uid label, so it is set together with the owner reference. The name
        # label is not: removing it meanwhile takes the pod out on purpose. The server may reject the
        # labels of quota; a pod without a node gets them as a repair.
        left = {pod_identity.RC_NAME_LABEL, *QUOTA_LABELS}
        labels = {k: v for k, v in pod_identity.labels_of(controller).items() if k not in left}
        manager = owners.RefManager(
            self._client,
            owner=controller,
            owner_kind=REPLICATIONCONTROLLER,
            kind=POD,
            matches=lambda pod: pod.metadata.uid in wanted,
            can_adopt=owners.live_check(self._client, REPLICATIONCONTROLLER, controller),
            labels=labels,
        )
        claims = await manager.claim([*claim.adopt, *claim.release])
        for pod in claims.objects:
            self._record(controller, Reason.ADOPTED, f"Adopted pod {pod.metadata.name}")
        if not claims.errors:
            for pod in claim.release:
                self._record(controller, Reason.RELEASED, f"Released pod {pod.metadata.name}")
        return claims.objects, claims.errors[0] if claims.errors else None

    async def carry_out(self, controller: ReplicationController, plan: Plan) -> GrangeError | None:
        """Delete, repair and create, in this order, and return the first error.

        An error in one part does not prevent the others.
        """
        uid = controller.metadata.uid
        going = {item.pod.metadata.uid: item.pod.metadata.name for item in plan.delete}
        made = [item.name for item in plan.create]
        stale: list[str] = []

        async def delete(item: Removal) -> None:
            await self._delete(controller, item, deletions)

        async def create(item: Addition) -> None:
            if not await self._create(controller, item, creations):
                stale.append(item.name)

        async def repair(item: Repair) -> None:
            await self._repair(controller, item)

        with self._expectations.deleting(uid, going) as deletions:
            error = await slow_start(plan.delete, delete)
        error = await slow_start(plan.repair, repair) or error
        with self._expectations.creating(uid, made) as creations:
            error = await slow_start(plan.create, create) or error
        if error is None and stale:
            return StaleCache(f"{stale[0]} exists but has not been seen yet")
        return error

    async def _create(
        self, controller: ReplicationController, item: Addition, writes: ExpectedWrites
    ) -> bool:
        """Create; False if the pod exists already and is ours, which the listers will show."""
        namespace = controller.metadata.namespace
        source = item.source or controller
        document = podtemplate.pod_document(
            source, name=item.name, node=item.node, zoned=self._zoned()
        )
        self._leased.admit(controller, document, item.node)
        try:
            with writes.sending(item.name):
                await self._client.create(POD, document, namespace)
        except ApiError as error:
            taken = isinstance(error, AlreadyExists)
            if taken and await find_owned(self._client, POD, item.name, controller):
                return False
            if not is_namespace_terminating(error):
                message = f"Error creating pod {item.name}: {error.message}"
                self._record(controller, Reason.CREATE_FAILED, message, WARNING)
            raise
        self._record(controller, Reason.CREATED, f"Created pod {item.name}")
        return True

    async def _delete(
        self, controller: ReplicationController, item: Removal, writes: ExpectedWrites
    ) -> None:
        """Delete a pod, if it exists and is still ours."""
        uid, meta = controller.metadata.uid, item.pod.metadata
        try:
            with writes.sending(meta.uid):
                deleted = await self._delete_version(controller, item)
        except ApiError as error:
            if is_over_budget(error):
                raise
            message = f"Error deleting pod {meta.name}: {error.message}"
            self._record(controller, Reason.DELETE_FAILED, message, WARNING)
            raise
        if not deleted:
            self._expectations.deletion_observed(uid, meta.uid)
            return
        self._record(controller, Reason.DELETED, f"Deleted pod {meta.name} ({item.why})")

    async def _delete_version(self, controller: ReplicationController, item: Removal) -> bool:
        """Delete the recorded version of a pod; False if it is gone or not ours any more.

        Another version is not deleted, because its deletion is not recorded.

        Raises:
            Conflict: the pod has changed and is still ours; the next reconcile decides about it.
            TooManyRequests: its PodDisruptionBudget allows nothing.
        """
        meta = item.pod.metadata
        try:
            if item.evict:
                version = meta.resource_version
                await self._client.evict(
                    meta.name, meta.namespace, uid=meta.uid, resource_version=version
                )
                return True
            await deletion_budgets.charge(self._client, item.pod, item.budgets, self._clock.now())
            await self._client.delete_as_read(POD, item.pod)
        except NotFound:
            return False
        except Conflict:
            await deletion_budgets.give_back(self._client, item.pod, item.budgets)
            with suppress(NotFound):
                live = await self._client.get(POD, meta.name, meta.namespace)
                ours = owners.is_controlled_by(live, controller)
                if live.metadata.uid == meta.uid and not live.metadata.deletion_timestamp and ours:
                    raise
            return False
        return True

    async def _repair(self, controller: ReplicationController, item: Repair) -> None:
        meta, change = item.pod.metadata, {"labels": dict(item.labels)}
        try:
            # A late repair must not put labels back on a pod that was released meanwhile.
            await self._client.patch_as_read(POD, item.pod, {"metadata": change})
        except (NotFound, Conflict):
            return  # gone, or changed: its event is on its way
        except ApiError as error:
            message = f"Error putting labels back on pod {meta.name}: {error.message}"
            self._record(controller, Reason.REPAIR_FAILED, message, WARNING)
            raise
        keys = ", ".join(sorted(item.labels))
        self._record(controller, Reason.REPAIRED, f"Put labels back on pod {meta.name}: {keys}")

    def _record(
        self, controller: ReplicationController, reason: Reason, message: str, kind: str = NORMAL
    ) -> None:
        self._recorder.event(controller, kind, reason, message, kind=REPLICATIONCONTROLLER)


def is_over_budget(error: Exception) -> bool:
    """Whether an eviction was refused because the budget was spent meanwhile."""
    return isinstance(error, TooManyRequests) and any(
        cause.reason == deletion_budgets.CAUSE for cause in error.causes
    )


def is_quiet(error: Exception) -> bool:
    """Whether an error is a normal race that needs no condition."""
    return isinstance(error, (StaleCache, Conflict)) or (
        isinstance(error, ApiError) and (is_namespace_terminating(error) or is_over_budget(error))
    )


class NotAdopted(GrangeError):
    """Pods could not be adopted, and block the creation of others."""


async def has_unseen(
    client: Client, controller: ReplicationController, seen: Iterable[Pod]
) -> bool:
    """Whether the controller has pods, or orphans to adopt, that are not among those seen.

    Pod names collide on purpose, so that two owners that decide the same make one pod; but names that pods of an
    earlier controller of the same name hold are avoided, and nothing collides there. So these pods are listed live
    before others are created.

    Raises:
        ApiError: pods cannot be read.
    """
    meta = controller.metadata
    mark = f"{pod_identity.RC_NAME_LABEL}={pod_identity.label_value(meta.name)}"
    live = sort_by_owner(controller, (await client.list(POD, meta.namespace, labels=mark)).items)
    known = {pod.metadata.uid for pod in seen}
    return any(pod.metadata.uid not in known for pod in (*live.owned, *live.adopt))


def not_adopted(wanted: Iterable[Pod], adopted: Iterable[Pod], failure: Exception) -> Exception:
    """The error for pods that could not be adopted; a conflict is returned unchanged."""
    ours = {pod.metadata.uid for pod in adopted}
    left = [pod.metadata.name for pod in wanted if pod.metadata.uid not in ours]
    if is_quiet(failure) or not left:
        return failure
    names = first_few(left, 3)
    pods_, them, their = ("pod", "it", "its") if len(left) == 1 else ("pods", "them", "their")
    error = NotAdopted(
        f"{pods_} {names} could not be adopted ({failure}), so no other pod is created: "
        f"delete {them}, or remove {their} label {pod_identity.RC_NAME_LABEL}"
    )
    error.__cause__ = failure
    return error


REVOKED_ANNOTATION = "grange.dev/deletion-revoked-at"
"""Pod annotation: the version of the pod that a revoked deletion named."""


def deletions_of(plan: Plan) -> tuple[PendingDeletion, ...]:
    """The deletions of a plan."""
    metas = [item.pod.metadata for item in plan.delete]
    return tuple(PendingDeletion(meta.name, meta.uid, meta.resource_version) for meta in metas)


async def revoke_deletions(client: Client, controller: ReplicationController) -> dict[str, Pod]:
    """Make every recorded deletion fail that has not taken effect.

    Afterwards each of the pods is gone, on its way out, or has another version than the one that
    its deletion names.

    Returns:
        The pods that were changed for that, by uid, as they are now.

    Raises:
        ApiError: not all of them are certain; nothing else may be taken away, try again.
    """
    changed: dict[str, Pod] = {}

    async def change(item: PendingDeletion) -> None:
        # The value is new at each version, so this is never a write that changes nothing.
        note = {REVOKED_ANNOTATION: item.resource_version}
        fence = {"uid": item.uid, "resourceVersion": item.resource_version}
        with suppress(NotFound, Conflict):  # gone, or another version already
            changed[item.uid] = await client.patch(
                POD,
                item.pod,
                controller.metadata.namespace,
                patch={"metadata": {**fence, "annotations": note}},
            )

    error = await slow_start(controller.status.pending_deletions, change)
    if error is not None:
        raise error
    return changed
