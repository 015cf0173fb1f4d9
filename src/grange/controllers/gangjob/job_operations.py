"""What an operator does with the pods, Services and gang objects of a job."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.service import Service
from grange.api.meta import Document, OwnerReference, Resource
from grange.api.scheme import AnyKind
from grange.base.log import Logger
from grange.client.client import Client
from grange.controllers.gangjob import job_names, replica_slices
from grange.controllers.gangjob.controller_interface import (
    ControllerInterface,
    JobControllerConfiguration,
)
from grange.controllers.gangjob.owned_replicas import OwnedReplicas
from grange.controllers.gangjob.replica_control import ReplicaControl
from grange.reconcile.control import delete_owned, from_template, sync_owned
from grange.reconcile.informer import Informer
from grange.reconcile.owners import owner_reference

J = TypeVar("J", bound=Resource)

LEADER = "master"


class JobOperations(Generic[J]):
    """The part of ``JobController`` that acts on one job at a time.

    Args:
        controller: the operator.
        config: settings.
        client: to the API.
        pods: those of all jobs.
        services: those of all jobs.
        log: where objects without a usable index are reported.

    Attributes:
        controller: the operator.
        config: settings.
        client: to the API.
        pods: informer of pods.
        services: informer of Services.
        pod_control: creates and deletes pods of jobs.
        service_control: creates and deletes Services of jobs.
    """

    def __init__(
        self,
        controller: ControllerInterface[J],
        config: JobControllerConfiguration,
        client: Client,
        *,
        pods: OwnedReplicas[Pod, J],
        services: OwnedReplicas[Service, J],
        log: Logger,
    ) -> None:
        self.controller = controller
        self.config = config
        self.client = client
        self.pods: Informer[Pod] = pods.informer
        self.services: Informer[Service] = services.informer
        self.pod_control: ReplicaControl[Pod] = pods.control
        self.service_control: ReplicaControl[Service] = services.control
        self._pods = pods
        self._services = services
        self._log = log

    # --- names and references -----------------------------------------------------------------

    def gen_labels(self, job_name: str) -> dict[str, str]:
        """The labels that all pods and Services of a job have."""
        return job_names.gen_labels(self.controller.labels, job_name)

    def gen_replica_labels(self, job: J, replica_type: str, index: int) -> dict[str, str]:
        """The labels of one replica's pod and Service."""
        labels, name = self.controller.labels, job.metadata.name
        return job_names.gen_replica_labels(labels, name, replica_type, index)

    def gen_owner_reference(self, job: J) -> OwnerReference:
        """The reference by which a job controls an object."""
        return owner_reference(self.controller.kind, job)

    # --- pods and Services --------------------------------------------------------------------

    async def get_pods_for_job(self, job: J) -> list[Pod]:
        """The pods that the job controls, after adopting and releasing; do not change them.

        Raises:
            ApiError: the first error of a claim; try again.
        """
        return await self._pods.claim(job)

    async def get_services_for_job(self, job: J) -> list[Service]:
        """The Services that the job controls, after adopting and releasing.

        Raises:
            ApiError: the first error of a claim; try again.
        """
        return await self._services.claim(job)

    def filter_pods_for_replica_type(self, pods: Iterable[Pod], replica_type: str) -> list[Pod]:
        """The pods of a role, in their order."""
        return replica_slices.filter_for_replica_type(self.controller.labels, pods, replica_type)

    def filter_services_for_replica_type(
        self, services: Iterable[Service], replica_type: str
    ) -> list[Service]:
        """The Services of a role, in their order."""
        labels = self.controller.labels
        return replica_slices.filter_for_replica_type(labels, services, replica_type)

    def get_pod_slices(
        self, pods: Iterable[Pod], replicas: int, *, overflow: bool = True
    ) -> list[list[Pod]]:
        """The pods of a role by index; with ``overflow`` also those beyond the replicas."""
        labels = self.controller.labels
        return replica_slices.replica_slices(labels, pods, replicas, self._log, overflow=overflow)

    def get_service_slices(
        self, services: Iterable[Service], replicas: int, *, overflow: bool = True
    ) -> list[list[Service]]:
        """The Services of a role by index; with ``overflow`` also those beyond the replicas."""
        labels = self.controller.labels
        return replica_slices.replica_slices(
            labels, services, replicas, self._log, overflow=overflow
        )

    def new_pod(
        self, job: J, replica_type: str, index: int, template: Document, *, leader: bool = False
    ) -> Document:
        """The pod of a replica, from a template; the labels of the replica override the template's.

        Args:
            job: whose.
            replica_type: the role.
            index: which one.
            template: metadata and spec.
            leader: whether its role leads the job.
        """
        labels = self.gen_replica_labels(job, replica_type, index)
        if leader:
            labels[self.controller.labels.leader] = LEADER
        meta, spec = template.get("metadata") or {}, template.get("spec") or {}
        if self.config.enable_gang_scheduling:
            labels[GROUP_LABEL] = job.metadata.name
            spec = {"schedulerName": self.config.scheduler_name, **spec}
        labelled = {"metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}
        return from_template(
            {**labelled, "spec": spec},
            name=job_names.gen_general_name(job.metadata.name, replica_type, index),
            namespace=job.metadata.namespace,
            owner=self.gen_owner_reference(job),
        )

    def new_service(
        self, job: J, replica_type: str, index: int, ports: Sequence[Document]
    ) -> Document:
        """The headless Service of a replica: it gives the replica's pod a name, ready or not."""
        labels = self.gen_replica_labels(job, replica_type, index)
        return {
            "metadata": {
                "name": job_names.gen_general_name(job.metadata.name, replica_type, index),
                "namespace": job.metadata.namespace,
                "labels": labels,
            },
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "ports": [*ports],
                "publishNotReadyAddresses": True,
            },
        }

    async def reconcile_pods(
        self,
        job: J,
        pods: Iterable[Pod],
        replica_type: str,
        replicas: int,
        make: Callable[[int], Document],
    ) -> list[Pod | None]:
        """Have one pod for each index of a role: create what is missing, delete the others.

        Of several pods of an index one is kept: not being deleted, then ready, then oldest.

        Args:
            job: whose.
            pods: as ``get_pods_for_job`` returned them.
            replica_type: the role.
            replicas: how many.
            make: the pod of an index, from ``new_pod``.

        Returns:
            By index, the pod that was there; it may be finished or on its way out. None where there
            was none.

        Raises:
            ApiError: something could not be created or deleted.
        """
        return await self._pods.keep(job, pods, replica_type, replicas, make)

    async def reconcile_services(
        self,
        job: J,
        services: Iterable[Service],
        replica_type: str,
        replicas: int,
        make: Callable[[int], Document],
    ) -> list[Service | None]:
        """Have one Service for each index of a role, as ``reconcile_pods`` does with pods."""
        return await self._services.keep(job, services, replica_type, replicas, make)

    # --- gangs --------------------------------------------------------------------------------

    async def sync_pdb(self, job: J, min_available: int) -> PodDisruptionBudget:
        """Have a PodDisruptionBudget of the job's name that keeps so many of its pods.

        Raises:
            AlreadyExists: the name belongs to another owner's.
        """
        labels = self.gen_labels(job.metadata.name)
        document: Document = {
            "metadata": {"name": job.metadata.name, "labels": labels},
            "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
        }
        reference = self.gen_owner_reference(job)
        return await sync_owned(self.client, PODDISRUPTIONBUDGET, document, job, reference)

    async def delete_pdb(self, job: J) -> bool:
        """Delete the job's PodDisruptionBudget; whether there was one."""
        return await delete_owned(self.client, PODDISRUPTIONBUDGET, job.metadata.name, job)

    async def sync_pod_group(self, job: J, spec: Document) -> Resource:
        """Have a PodGroup of the job's name with these fields of its spec.

        Raises:
            AlreadyExists: the name belongs to another owner's.
        """
        labels = self.gen_labels(job.metadata.name)
        document = {"metadata": {"name": job.metadata.name, "labels": labels}, "spec": spec}
        reference, kind = self.gen_owner_reference(job), self._pod_group_kind()
        group: Resource = await sync_owned(self.client, kind, document, job, reference)
        return group

    async def delete_pod_group(self, job: J) -> bool:
        """Delete the job's PodGroup; whether there was one."""
        return await delete_owned(self.client, self._pod_group_kind(), job.metadata.name, job)

    def _pod_group_kind(self) -> AnyKind:
        return self.config.pod_group_kind or PODGROUP
