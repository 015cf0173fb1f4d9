"""Every write of the session controller but the status: files, pods and leases.

A deletion carries the UID of what was seen; a creation has a name that is the same in every try. A
late write of a former owner is refused by that, or harmless: see docs/explanation/sessions.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from grange.api.kinds import CONFIGMAP, MACHINELEASE, POD, TESTSESSION
from grange.api.kinds.machinelease import RELEASE_FINALIZER, MachineLease
from grange.api.kinds.testsession import (
    SESSION_FINALIZER,
    SESSION_LABEL,
    SESSION_UID_LABEL,
    TestSession,
)
from grange.api.meta import Document, preconditions
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists, ApiError, BadRequest, Conflict, Invalid, NotFound
from grange.client.client import Client
from grange.controllers.testsession.component_documents import SessionContext, pod_document
from grange.controllers.testsession.component_pods import ComponentPod, WorkerAddress
from grange.controllers.testsession.session_inputs import LeaseRequest, PodRemoval
from grange.reconcile import finalizers
from grange.reconcile.expectations import Expectations
from grange.reconcile.owners import is_controlled_by, owner_reference
from grange.reconcile.side_by_side import side_by_side

PODS, LEASES = "pods", "machineleases"
TRACKED_KINDS: Mapping[str, AnyKind] = {PODS: POD, LEASES: MACHINELEASE}
"""What expectations of sessions are about."""


class SessionObjects:
    """Creates and deletes what sessions own.

    Args:
        client: to the API.
        expectations: what each session waits to see in the cache.
    """

    def __init__(self, client: Client, expectations: Expectations) -> None:
        self._client = client
        self._expectations = expectations

    async def remove_files(self, session: TestSession, names: Iterable[str]) -> None:
        """Delete ConfigMaps by name; returns when the server has none of them.

        Raises:
            ApiError: one may still be there.
        """
        await remove_files(self._client, session.metadata.namespace, names)

    async def add_files(self, session: TestSession, documents: Iterable[Document]) -> None:
        """Create ConfigMaps, where they are not there.

        Raises:
            ApiError: one is missing, so no pod should be created.
        """
        for document in documents:
            with suppress(AlreadyExists):  # its name has the UID and the attempt: it is this one
                await self._client.create(CONFIGMAP, document, session.metadata.namespace)

    async def create_pods(
        self,
        context: SessionContext,
        pods: Sequence[ComponentPod],
        workers: Sequence[WorkerAddress],
    ) -> tuple[set[str], dict[str, ApiError]]:
        """Create pods side by side; the names of those that were, and the errors by name."""
        session, uid = context.session, context.session.metadata.uid
        created: set[str] = set()
        errors: dict[str, ApiError] = {}

        async def create(pod: ComponentPod) -> None:
            try:
                with writes.sending(pod.name):
                    document = _held(pod_document(context, pod, workers))
                    await self._client.create(POD, document, session.metadata.namespace)
            except ApiError as error:
                if not isinstance(error, AlreadyExists):  # the cache shows whose it is
                    errors[pod.name] = error
            else:
                created.add(pod.name)

        with self._expectations.creating(uid, [pod.name for pod in pods], kind=PODS) as writes:
            await side_by_side(pods, create)
        return created, errors

    async def delete_pods(self, session: TestSession, removals: Sequence[PodRemoval]) -> None:
        """Delete pods as they were seen, side by side, and let go of their names.

        The files of their attempts must be gone: a creation that is under way may succeed from now on.

        Raises:
            ApiError: the first error, after all were tried.
        """
        uid = session.metadata.uid
        by_uid = {
            item.pod.metadata.uid: item.pod.metadata.name
            for item in removals
            if not item.pod.metadata.deletion_timestamp
        }

        async def delete(item: PodRemoval) -> None:
            meta = item.pod.metadata
            if meta.uid not in by_uid:
                await self._release_pod(item)
                return
            # NotFound, Conflict: gone, or another pod has the name
            with suppress(NotFound, Conflict), writes.sending(meta.uid):
                await self._delete_pod(item)

        with self._expectations.deleting(uid, by_uid, kind=PODS) as writes:
            await side_by_side(removals, delete)

    async def _release_pod(self, item: PodRemoval) -> None:
        """Let go of a pod that is on its way out."""
        with suppress(NotFound, Conflict):  # gone, or changed: an event of it is on its way
            await finalizers.remove(self._client, POD, item.pod, SESSION_FINALIZER)
        if item.forced:
            with suppress(NotFound, Conflict):
                await self._delete_pod(item)

    async def _delete_pod(self, item: PodRemoval) -> None:
        meta = item.pod.metadata
        await self._client.delete(
            POD,
            meta.name,
            meta.namespace,
            uid=meta.uid,
            grace_period_s=0 if item.forced else None,
            finalizer=SESSION_FINALIZER,
        )

    async def is_free_of_pods(self, session: TestSession) -> bool:
        """Whether the server has no pod of the session; it is asked, not the cache.

        Raises:
            ApiError: it cannot be asked.
        """
        meta = session.metadata
        selector = f"{SESSION_UID_LABEL}={meta.uid}"
        return not (await self._client.list(POD, meta.namespace, labels=selector, limit=1)).items

    async def has_pod(self, session: TestSession, name: str) -> bool:
        """Whether the server has the session's pod of this name; it is asked, not the cache.

        Raises:
            ApiError: it cannot be asked.
        """
        with suppress(NotFound):
            live = await self._client.get(POD, name, session.metadata.namespace)
            return is_controlled_by(live, session)
        return False

    async def release(self, lease: MachineLease) -> None:
        """Delete a lease.

        Raises:
            ApiError: it may still be there.
        """
        meta = lease.metadata
        with suppress(NotFound, Conflict):
            await self._client.delete(MACHINELEASE, meta.name, meta.namespace, uid=meta.uid)

    async def request(
        self, session: TestSession, request: LeaseRequest, before: MachineLease | None
    ) -> None:
        """Create a lease, or give the one that is there its priority.

        Raises:
            ApiError: try again.
        """
        meta = session.metadata
        if before is not None:
            patch: Document = {
                "metadata": preconditions(before.metadata),
                "spec": {"priority": request.spec.priority},
            }
            with suppress(NotFound):
                await self._client.patch(
                    MACHINELEASE, before.metadata.name, meta.namespace, patch=patch
                )
            return
        with (
            suppress(AlreadyExists),  # the cache shows whose it is
            self._expectations.creating(meta.uid, [request.name], kind=LEASES) as writes,
            writes.sending(request.name),
        ):
            document = _lease_document(session, request)
            await self._client.create(MACHINELEASE, document, meta.namespace)


async def remove_files(client: Client, namespace: str, names: Iterable[str]) -> None:
    """Delete ConfigMaps by name; returns when the server has none of them.

    Raises:
        ApiError: one may still be there.
    """
    for name in names:
        with suppress(NotFound):
            await client.delete(CONFIGMAP, name, namespace)


def is_refused(error: ApiError) -> bool:
    """Whether a pod is not accepted as it is, so that trying again cannot help."""
    return isinstance(error, (Invalid, BadRequest))


def _held(pod: Document) -> Document:
    metadata = pod["metadata"]
    held = [*(metadata.get("finalizers") or []), SESSION_FINALIZER]
    return {**pod, "metadata": {**metadata, "finalizers": held}}


def _lease_document(session: TestSession, request: LeaseRequest) -> Document:
    meta = session.metadata
    return {
        "apiVersion": MACHINELEASE.api_version,
        "kind": MACHINELEASE.kind,
        "metadata": {
            "name": request.name,
            "namespace": meta.namespace,
            "labels": {SESSION_LABEL: meta.name, SESSION_UID_LABEL: meta.uid},
            "ownerReferences": [msgspec.to_builtins(owner_reference(TESTSESSION, session))],
            "finalizers": [RELEASE_FINALIZER],  # the lease controller need not write it
        },
        "spec": msgspec.to_builtins(request.spec),
    }
