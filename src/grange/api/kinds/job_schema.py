"""Schemas that the kinds of jobs share: their status, and the failure of one role."""

from grange.api import schema_builder
from grange.api.meta import Document

CORE = "io.k8s.api.core.v1"
RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def template() -> Document:
    """The pod to copy."""
    return schema_builder.reference(f"{CORE}.PodTemplateSpec", "The pod to copy.")


def roles(name: str, description: str) -> Document:
    """A mapping of roles by name."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"$ref": f"#/definitions/{name}"},
    }


def status_definitions(name: str) -> dict[str, Document]:
    """The schemas that ``status_fields`` refers to.

    Args:
        name: of the kind's definition.
    """
    return {
        f"{name}RoleStatus": {"type": "object", "properties": _ROLE_STATUS},
        f"{name}Progress": {"type": "object", "properties": _PROGRESS},
        f"{name}Condition": {
            "type": "object",
            "required": ["type", "status"],
            "properties": _CONDITION,
        },
    }


def status_fields(name: str) -> dict[str, Document]:
    """The fields of ``status``, as ``JobStatus`` has them.

    Args:
        name: of the kind's definition.
    """
    conditions = schema_builder.conditions()
    return {
        "observedGeneration": schema_builder.observed_generation(),
        "phase": schema_builder.text("Type of the condition that describes the job best."),
        "conditions": {**conditions, "items": {"$ref": f"#/definitions/{name}Condition"}},
        "startTime": _time("When it was first acted on, again after each resumption."),
        "completionTime": _time("When it succeeded or failed."),
        "lastReconcileTime": _time("Written by other controllers; kept."),
        "replicaStatuses": roles(f"{name}RoleStatus", "Counts of pods, by role."),
        "restarts": schema_builder.whole("Restarts that are charged."),
        "restartsTowardsMax": schema_builder.whole(
            "Those of them that the failure policy made, compared with its limit."
        ),
        "unchargedRestarts": schema_builder.whole("Restarts that disruptions and rules caused."),
        "countedPods": schema_builder.several(
            {"type": "string"},
            "UIDs of finished pods that are counted and exist still.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
        "podGroup": schema_builder.text("Name of the gang's object; empty without one."),
        "queue": schema_builder.text("Whose quota the gang uses."),
        "quotaUsed": schema_builder.amounts(
            "How much of it, of the resources that the queue limits."
        ),
        "progress": schema_builder.reference(f"{name}Progress", "The last report of a pod."),
        "specDigests": {
            "type": "object",
            "description": "Of the parts of the spec that may not change while the job runs, by path.",
            "additionalProperties": {"type": "string"},
        },
    }


def _time(description: str) -> Document:
    return {"type": "string", "format": "date-time", "description": description}


_CONDITION: dict[str, Document] = {
    "type": schema_builder.text(
        "Created, Queued, Running, Restarting, Suspended, Succeeded or Failed."
    ),
    "status": schema_builder.text("True, False or Unknown."),
    "reason": schema_builder.text("Why, in one word."),
    "message": schema_builder.text("Why, for people."),
    "lastTransitionTime": _time("When the status last changed."),
    "lastUpdateTime": _time("When the condition was last written."),
    "observedGeneration": schema_builder.observed_generation(),
}

_PROGRESS: dict[str, Document] = {
    "percent": {"type": "number", "description": "How far it is, 0 to 100."},
    "message": schema_builder.text("What the pod wrote."),
    "updatedAt": _time("When it was reported."),
}

_ROLE_STATUS: dict[str, Document] = {
    "active": schema_builder.whole("Pods that run."),
    "pending": schema_builder.whole("Pods that have not started; counted for Jobs of batch/v1."),
    "ready": schema_builder.whole("Pods that are ready."),
    "succeeded": schema_builder.whole("Indexes that are complete."),
    "failed": schema_builder.whole("Pods that failed, in all attempts."),
    "selector": schema_builder.text("Label selector of the pods, for autoscalers."),
    "attempt": schema_builder.whole("Restarts of the whole role."),
    "restarts": schema_builder.whole("Restarts of its pods that are charged."),
    "inPlaceRestarts": schema_builder.whole(
        "Restarts of containers in pods that are at work; charged when the pod ends."
    ),
    "completedIndexes": schema_builder.text("Indexes that are complete, as ranges: 0-3,7."),
    "failedIndexes": schema_builder.text("Indexes that are given up, as ranges."),
    "indexRestarts": {
        "type": "object",
        "description": "Charged restarts by index, where there are any.",
        "additionalProperties": {"type": "integer", "format": "int32"},
    },
}
