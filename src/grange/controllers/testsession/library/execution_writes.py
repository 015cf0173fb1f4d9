"""What an executor asks of the server: files, pods and logs of one session.

The sessions of the library are no objects of the API, so their pods have no owner. They are found by
the label with the session's UID.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

from grange.api.kinds import CONFIGMAP, POD
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import SESSION_LABEL, SESSION_UID_LABEL
from grange.api.meta import Document
from grange.api.status import AlreadyExists, ApiError, Conflict, NotFound
from grange.client.client import Client
from grange.client.requests import LogOptions
from grange.controllers.testsession.component_documents import (
    SessionContext,
    attempt_files,
    driver_files,
    pod_document,
)
from grange.controllers.testsession.component_pods import ComponentPod, WorkerAddress
from grange.controllers.testsession.health import main_container
from grange.controllers.testsession.session_inputs import PodRemoval
from grange.reconcile.side_by_side import side_by_side

_HOSTNAME = "kubernetes.io/hostname"


class ExecutionWrites:
    """Creates and deletes the pods of sessions.

    Args:
        client: to the API.
        namespace: of the pods.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def add_files(
        self,
        context: SessionContext,
        pods: Sequence[ComponentPod],
        workers: Sequence[WorkerAddress],
    ) -> None:
        """Create the ConfigMaps that these pods refer to, where they are not there.

        Raises:
            ApiError: one is missing, so no pod should be created.
        """
        documents = [attempt_files(context)]
        if any(pod.is_driver for pod in pods):
            documents.append(driver_files(context, workers))
        for document in documents:
            with suppress(AlreadyExists):  # its name has the UID and the attempt: it is this one
                await self._client.create(CONFIGMAP, _without_owner(document), self._namespace)

    async def remove_files(self, names: Iterable[str]) -> None:
        """Delete ConfigMaps by name: no pod that refers to them starts any more.

        Raises:
            ApiError: one may still be there.
        """
        for name in names:
            with suppress(NotFound):
                await self._client.delete(CONFIGMAP, name, self._namespace)

    async def create_pods(
        self,
        context: SessionContext,
        pods: Sequence[ComponentPod],
        workers: Sequence[WorkerAddress],
        pools: Mapping[str, str],
    ) -> tuple[list[Pod], dict[str, ApiError]]:
        """Create pods side by side, each on a machine of its pool that has no other such pod.

        Args:
            context: of the attempt.
            pods: which.
            workers: for the driver, where they are.
            pools: by the pods' names.

        Returns:
            Those that were created or are there, and the errors by the pods' names.
        """
        found: list[Pod] = []
        errors: dict[str, ApiError] = {}

        async def create(pod: ComponentPod) -> None:
            document = _on_own_machine(pod_document(context, pod, workers), pools[pod.name])
            try:
                found.append(await self._create(document))
            except ApiError as error:
                errors[pod.name] = error

        await side_by_side(pods, create)
        return found, errors

    async def delete_pods(self, removals: Sequence[PodRemoval]) -> None:
        """Delete pods as they were seen, side by side.

        Raises:
            ApiError: the first error, after all were tried.
        """

        async def delete(item: PodRemoval) -> None:
            meta, grace = item.pod.metadata, 0 if item.forced else None
            try:
                await self._client.delete(
                    POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace
                )
            except (NotFound, Conflict):
                return  # gone, or another pod has the name

        await side_by_side(removals, delete)

    async def pods(self, uid: str) -> Sequence[Pod]:
        """The pods of a session that the server has.

        Raises:
            ApiError: it did not answer.
        """
        listing = await self._client.list(POD, self._namespace, labels=f"{SESSION_UID_LABEL}={uid}")
        return listing.items

    async def log(self, pod: Pod, limit_bytes: int) -> bytes:
        """The end of the output of a pod's main container.

        Raises:
            ApiError: it cannot be read.
        """
        options = LogOptions(container=main_container(pod))
        output = bytearray()
        chunks = self._client.logs(pod.metadata.name, self._namespace, options=options)
        async with aclosing(chunks):
            async for chunk in chunks:
                output += chunk
                if len(output) > 2 * limit_bytes:
                    del output[:-limit_bytes]
        return bytes(output[-limit_bytes:])

    async def _create(self, document: Document) -> Pod:
        """Create a pod; one that an earlier try has created is the same pod."""
        try:
            return await self._client.create(POD, document, self._namespace)
        except AlreadyExists as error:
            labels = document["metadata"]["labels"]
            try:
                pod = await self._client.get(POD, document["metadata"]["name"], self._namespace)
            except NotFound:
                raise error from None
            if labels.items() <= pod.metadata.labels.items():
                return pod
            raise


def _without_owner(document: Document) -> Document:
    meta = {key: value for key, value in document["metadata"].items() if key != "ownerReferences"}
    return {**document, "metadata": meta}


def _on_own_machine(document: Document, pool: str) -> Document:
    """Let a pod land only on machines of its pool that have no other pod of a session."""
    spec: Document = {**document["spec"]}
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), POOL_LABEL: pool}
    term = {
        "topologyKey": _HOSTNAME,
        "labelSelector": {"matchExpressions": [{"key": SESSION_LABEL, "operator": "Exists"}]},
        "namespaceSelector": {},
    }
    affinity: Document = {**(spec.get("affinity") or {})}
    against: Document = {**(affinity.get("podAntiAffinity") or {})}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    against[required] = [*(against.get(required) or []), term]
    spec["affinity"] = {**affinity, "podAntiAffinity": against}
    return {**_without_owner(document), "spec": spec}
