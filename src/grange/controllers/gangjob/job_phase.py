"""The life of a job, as a table; nothing else decides what may follow what.

Theory of operation. A job is *created*; it is *queued* while its gang waits for quota or room, and
*running* as soon as one pod of the roles that decide it runs. While pods are replaced it is
*restarting*, until as many run as it needs. *Suspended* it has no pods; resumed it begins again as a
created one. *Succeeded* and *failed* are final: no event leads out of them.

The conditions follow the phase. ``Running`` and ``Restarting`` replace each other at the same place,
so that a reader who looks at the last condition sees what is true now.
"""

from collections.abc import Mapping
from enum import Enum

from grange.api.job_status import (
    CREATED,
    FAILED,
    QUEUED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
)


class JobPhase(Enum):
    """Where a job is; the values are the types of its conditions."""

    CREATED = CREATED
    QUEUED = QUEUED
    RUNNING = RUNNING
    RESTARTING = RESTARTING
    SUSPENDED = SUSPENDED
    SUCCEEDED = SUCCEEDED
    FAILED = FAILED


class JobStep(Enum):
    """What happens to a job."""

    WAIT = "gang waits"
    ADMIT = "gang admitted"
    RUN = "needed pods run"
    RESTART = "pods replaced"
    SUSPEND = "suspended"
    RESUME = "resumed"
    SUCCEED = "success rule met"
    FAIL = "failure, limit or deadline"


JOB: Mapping[tuple[JobPhase, JobStep], JobPhase] = {
    (JobPhase.CREATED, JobStep.WAIT): JobPhase.QUEUED,
    (JobPhase.CREATED, JobStep.RUN): JobPhase.RUNNING,
    (JobPhase.CREATED, JobStep.RESTART): JobPhase.RESTARTING,
    (JobPhase.CREATED, JobStep.SUSPEND): JobPhase.SUSPENDED,
    (JobPhase.CREATED, JobStep.SUCCEED): JobPhase.SUCCEEDED,
    (JobPhase.CREATED, JobStep.FAIL): JobPhase.FAILED,
    (JobPhase.QUEUED, JobStep.ADMIT): JobPhase.CREATED,
    (JobPhase.QUEUED, JobStep.RUN): JobPhase.RUNNING,
    (JobPhase.QUEUED, JobStep.RESTART): JobPhase.RESTARTING,
    (JobPhase.QUEUED, JobStep.SUSPEND): JobPhase.SUSPENDED,
    (JobPhase.QUEUED, JobStep.SUCCEED): JobPhase.SUCCEEDED,
    (JobPhase.QUEUED, JobStep.FAIL): JobPhase.FAILED,
    (JobPhase.RUNNING, JobStep.RESTART): JobPhase.RESTARTING,
    (JobPhase.RUNNING, JobStep.SUSPEND): JobPhase.SUSPENDED,
    (JobPhase.RUNNING, JobStep.SUCCEED): JobPhase.SUCCEEDED,
    (JobPhase.RUNNING, JobStep.FAIL): JobPhase.FAILED,
    (JobPhase.RESTARTING, JobStep.RUN): JobPhase.RUNNING,
    (JobPhase.RESTARTING, JobStep.RESTART): JobPhase.RESTARTING,
    (JobPhase.RESTARTING, JobStep.SUSPEND): JobPhase.SUSPENDED,
    (JobPhase.RESTARTING, JobStep.SUCCEED): JobPhase.SUCCEEDED,
    (JobPhase.RESTARTING, JobStep.FAIL): JobPhase.FAILED,
    (JobPhase.SUSPENDED, JobStep.RESUME): JobPhase.CREATED,
    (JobPhase.SUSPENDED, JobStep.SUCCEED): JobPhase.SUCCEEDED,
    (JobPhase.SUSPENDED, JobStep.FAIL): JobPhase.FAILED,
}
"""What follows in a phase when something happens; what is not here cannot happen."""

FINAL = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED})
