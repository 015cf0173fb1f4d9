"""How a job is run, the same for GangJobs and the kinds of kubeflow.org: views and schema."""

import msgspec

from grange.api import schema_builder
from grange.api.kinds.podgroup import MODES, REQUIRED, Topology
from grange.api.meta import Document, View
from grange.api.validation.run_policies import MANAGER_MAX

CLEAN_POD_POLICIES = ("All", "Running", "None")
RUNNING = "Running"
BACKENDS = ("Grange", "PodDisruptionBudget", "SchedulerPlugins", "Volcano", "None")


class JobScheduling(View, frozen=True):
    """How the pods of a job are placed together.

    Attributes:
        backend: who places them, and by which object; only GangJobs choose.
        min_available: so many pods start together; None: all of them.
        min_resources: what must be free before it is tried; empty: the requests of those pods.
        queue: whose quota they use.
        priority_class: of the gang.
        schedule_timeout_seconds: after so long without success it makes way for others.
        topology: where the pods should be together; only GangJobs choose.
    """

    backend: str = "Grange"
    min_available: int | None = None
    min_resources: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None
    topology: Topology | None = None


class RunPolicy(View, frozen=True):
    """When a job begins, when it has to end, and what remains of it.

    Attributes:
        clean_pod_policy: which pods are deleted when it is finished.
        ttl_seconds_after_finished: until the job itself is deleted; None: never.
        active_deadline_seconds: it may run so long, not counting suspension; None: no limit.
        backoff_limit: charged restarts before it fails; None: no limit.
        suspend: its pods are removed, and created again when this is false again.
        managed_by: who acts on it; None: our controller.
        scheduling_policy: how its pods are placed together.
    """

    clean_pod_policy: str = RUNNING
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    scheduling_policy: JobScheduling = msgspec.field(default_factory=JobScheduling)


def definitions(name: str, *, placement: bool) -> dict[str, Document]:
    """The schemas of ``runPolicy`` and what is in it.

    Args:
        name: of the kind's definition.
        placement: whether ``schedulingPolicy`` has ``backend`` and ``topology``.
    """
    scheduling = {
        "minAvailable": schema_builder.whole(
            "So many pods start together; all of them by default.",
            **{schema_builder.RULED: {"minimum": 1}},
        ),
        "minResources": schema_builder.amounts(
            "What must be free before it is tried; by default what those pods request."
        ),
        "queue": schema_builder.named("Whose quota the pods use; empty for none."),
        "priorityClass": schema_builder.named("PriorityClass of the gang; empty for none."),
        "scheduleTimeoutSeconds": schema_builder.whole(
            "After so many seconds without success the gang makes way for others.",
            **{schema_builder.RULED: {"minimum": 1}},
        ),
    }
    parts: dict[str, Document] = {}
    if placement:
        scheduling["backend"] = schema_builder.text(
            "Who places the pods, and by which object.", enum=list(BACKENDS), default="Grange"
        )
        scheduling["topology"] = schema_builder.reference(
            f"{name}Topology", "Where the pods should be together."
        )
        parts[f"{name}Topology"] = _TOPOLOGY
    return {
        **parts,
        f"{name}SchedulingPolicy": {"type": "object", "properties": scheduling},
        f"{name}RunPolicy": {
            "type": "object",
            "properties": {
                "cleanPodPolicy": schema_builder.text(
                    "Which pods are deleted when the job is finished: All, those that are Running "
                    "still, or None.",
                    enum=list(CLEAN_POD_POLICIES),
                    default=RUNNING,
                ),
                "ttlSecondsAfterFinished": _seconds("Seconds from its end to its deletion."),
                "activeDeadlineSeconds": {
                    **_seconds("Seconds that it may run, not counting suspension."),
                    "format": "int64",
                },
                "backoffLimit": _seconds("Restarts that are charged before the job fails."),
                "suspend": {
                    **schema_builder.flag("Remove the pods, and create them again when false."),
                    "default": False,
                },
                "managedBy": schema_builder.text(
                    "Controller that acts on the job; Grange's own by default.",
                    **{schema_builder.RULED: {"maxLength": MANAGER_MAX}},
                ),
                "schedulingPolicy": schema_builder.reference(
                    f"{name}SchedulingPolicy", "How the pods are placed together."
                ),
            },
        },
    }


_TOPOLOGY: Document = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": schema_builder.text(
            "Label of nodes; its values are the domains.",
            **{schema_builder.RULED: {"minLength": 1}},
        ),
        "mode": schema_builder.text(
            "Required: all pods in one domain. Preferred: in as few as possible.",
            enum=list(MODES),
            default=REQUIRED,
        ),
    },
}


def _seconds(description: str) -> Document:
    return schema_builder.whole(description, **{schema_builder.RULED: {"minimum": 0}})
