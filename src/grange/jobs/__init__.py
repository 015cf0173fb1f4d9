"""Jobs for programs: the library that an operator for a kind of job is built on.

Owns: the public names of the library; what they mean stands with their definitions.
Never: behaviour.
Flow: an operator subclasses ``ControllerInterface``, makes a ``JobController`` and runs it with
    ``grange.run_controllers``.
Concurrency: as of the controllers: one event loop, one pass over a job at a time.
Start reading at: ``ControllerInterface``, then ``JobController``.
"""

from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.controller_interface import (
    ControllerInterface,
    JobControllerConfiguration,
)
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.job_controller import CachesNotSynced, JobController
from grange.controllers.gangjob.job_names import (
    InvalidReplicaLabel,
    gen_expectation_pods_key,
    gen_expectation_services_key,
    gen_general_name,
    replica_index,
    replica_type,
)
from grange.controllers.gangjob.replica_control import ReplicaControl
from grange.reconcile.owner_handler import DeletedFinalStateUnknown
from grange.reconcile.owners import recheck_deletion_timestamp

__all__ = [
    "CachesNotSynced",
    "ControllerInterface",
    "DeletedFinalStateUnknown",
    "InvalidJob",
    "InvalidReplicaLabel",
    "JobController",
    "JobControllerConfiguration",
    "JobLabels",
    "ReplicaControl",
    "gen_expectation_pods_key",
    "gen_expectation_services_key",
    "gen_general_name",
    "recheck_deletion_timestamp",
    "replica_index",
    "replica_type",
]
