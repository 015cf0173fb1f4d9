"""Jobs for programs: run functions and commands as jobs, and build operators for kinds of jobs.

Owns: handles of jobs that a program runs, how functions reach their members, and the public names
    of the operators' library.
Never: decisions about pods; those are the job controller's.
Flow: ``run`` or ``start`` → a GangJob whose members get the function as source → ``result`` reads
    what they leave. An operator subclasses ``ControllerInterface``, makes a ``JobController`` and
    runs it with ``grange.run_controllers``.
Concurrency: ``start`` and ``AsyncJobRun`` use the caller's loop, ``run`` and ``JobRun`` one loop in
    a thread. Controllers: one event loop, one pass over a job at a time.
Start reading at: ``run``; for operators ``ControllerInterface``, then ``JobController``.
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
from grange.jobs.async_run import AsyncJobRun, start
from grange.jobs.job_options import InvalidRun, RoleOptions, RunOptions
from grange.jobs.run_errors import (
    FunctionNotPortable,
    JobDeleted,
    JobFailed,
    JobRunError,
    ResultUnavailable,
)
from grange.jobs.run_members import LogLine
from grange.jobs.sync_run import JobRun, attach, run
from grange.reconcile.owner_handler import DeletedFinalStateUnknown
from grange.reconcile.owners import recheck_deletion_timestamp

__all__ = [
    "AsyncJobRun",
    "CachesNotSynced",
    "ControllerInterface",
    "DeletedFinalStateUnknown",
    "FunctionNotPortable",
    "InvalidJob",
    "InvalidReplicaLabel",
    "InvalidRun",
    "JobController",
    "JobControllerConfiguration",
    "JobDeleted",
    "JobFailed",
    "JobLabels",
    "JobRun",
    "JobRunError",
    "LogLine",
    "ReplicaControl",
    "ResultUnavailable",
    "RoleOptions",
    "RunOptions",
    "attach",
    "gen_expectation_pods_key",
    "gen_expectation_services_key",
    "gen_general_name",
    "recheck_deletion_timestamp",
    "replica_index",
    "replica_type",
    "run",
    "start",
]
