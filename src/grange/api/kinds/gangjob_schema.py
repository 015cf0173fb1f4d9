"""The schema of GangJob."""

from grange.api import job_frameworks, schema_builder
from grange.api.kinds import job_schema, run_policy
from grange.api.meta import Document

NAME = "dev.grange.v1alpha1.GangJob"

ACTIONS = (
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
    "RestartRole",
    "RestartPod",
    "RestartPodInPlace",
    "Ignore",
    "FailIndex",
    "FailJob",
)
_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_NOT_NEGATIVE = {schema_builder.RULED: {"minimum": 0}}


def _names(description: str) -> Document:
    return schema_builder.several({"type": "string"}, description, **_ATOMIC)


_ROLE: dict[str, Document] = {
    "replicas": schema_builder.whole(
        "How many pods; their indexes count from 0.", default=1, **_NOT_NEGATIVE
    ),
    "minReplicas": schema_builder.whole(
        "The role is elastic: it goes on with so many.", **{schema_builder.RULED: {"minimum": 1}}
    ),
    "maxReplicas": schema_builder.whole(
        "The role is elastic: it may be scaled to so many.",
        **{schema_builder.RULED: {"minimum": 1}},
    ),
    "minAvailable": schema_builder.whole(
        "Pods of this role among those that start together; minReplicas or all by default.",
        **_NOT_NEGATIVE,
    ),
    "restartPolicy": schema_builder.text(
        "What happens to a pod that fails and matches no rule of failurePolicy. ExitCode restarts "
        "it after a signal or exit code 138 (see the reference), and fails the job otherwise.",
        enum=list(job_schema.RESTART_POLICIES),
        default="OnFailure",
    ),
    "leader": schema_builder.flag("The outcome of this role is the job's; one role at most."),
    "completes": {
        **schema_builder.flag("False for servers, which do not end by themselves."),
        "default": True,
    },
    "dependsOn": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}Dependency"},
        "Roles that have to be ready or complete before pods of this one are created.",
        **_ATOMIC,
    ),
    "backoffLimitPerIndex": schema_builder.whole(
        "Charged restarts of one index before it is given up.", **_NOT_NEGATIVE
    ),
    "maxFailedIndexes": schema_builder.whole(
        "Indexes that may be given up before the job fails.", **_NOT_NEGATIVE
    ),
    "template": job_schema.template(),
}

_SUCCESS: dict[str, Document] = {
    "operator": schema_builder.text(
        "Whether All of the targeted indexes have to complete, or Any.", enum=["All", "Any"]
    ),
    "roles": _names("The targeted roles: the leader by default, else all that complete."),
    "indexes": schema_builder.text(
        "The targeted indexes of these roles, like 0-3,7; all by default."
    ),
    "count": schema_builder.whole(
        "So many of the targeted indexes are enough.", **{schema_builder.RULED: {"minimum": 1}}
    ),
}

_EXIT_CODES: dict[str, Document] = {
    "containerName": schema_builder.text("The container; any by default."),
    "operator": schema_builder.text("In or NotIn the values.", enum=["In", "NotIn"], default="In"),
    "values": schema_builder.several(
        {"type": "integer", "format": "int32"},
        "Exit codes, 0 to 255.",
        **{"x-kubernetes-list-type": "atomic", schema_builder.RULED: {"minItems": 1}},
    ),
}

_RULE: dict[str, Document] = {
    "name": schema_builder.text("For events and messages."),
    "action": schema_builder.text("What to do with the failure.", enum=list(ACTIONS)),
    "roles": _names("Roles whose failures it is about; all by default."),
    "onReasons": _names("Reasons of the pod or of a container: OOMKilled, Evicted."),
    "onExitCodes": schema_builder.reference(f"{NAME}ExitCodes", "Exit codes of containers."),
    "onPodConditions": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}PodCondition"},
        "Conditions of the pod, any of which it has.",
        **_ATOMIC,
    ),
}

_FAILURE: dict[str, Document] = {
    "maxRestarts": schema_builder.whole(
        "Restarts by this policy before the job fails. A failure that matches no rule and that its "
        "role does not restart restarts the job where this is given, and fails it otherwise.",
        **_NOT_NEGATIVE,
    ),
    "restartStrategy": schema_builder.text(
        "BlockingRecreate creates no pod of a restarted job before all old ones are gone.",
        enum=["Recreate", "BlockingRecreate"],
        default="Recreate",
    ),
    "rules": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}FailureRule"},
        "In order: the first that matches a failure decides. Pods with restartPolicy OnFailure whose "
        "exit codes or reasons a rule looks at are replaced, unless the rule restarts them in place.",
        **_ATOMIC,
    ),
}


def _object(fields: dict[str, Document], *required: str) -> Document:
    made: Document = {"type": "object", "properties": fields}
    if required:
        made["required"] = [*required]
    return made


DEFINITIONS: dict[str, Document] = {
    **run_policy.definitions(NAME, placement=True),
    **job_schema.status_definitions(NAME),
    f"{NAME}Dependency": _object(
        {
            "role": schema_builder.text("The other role."),
            "condition": schema_builder.text(
                "Whether its pods have to be ready, or complete.",
                enum=["Ready", "Complete"],
                default="Ready",
            ),
        },
        "role",
    ),
    f"{NAME}Role": _object(_ROLE, "template"),
    f"{NAME}SuccessPolicy": _object(_SUCCESS),
    f"{NAME}ExitCodes": _object(_EXIT_CODES, "values"),
    f"{NAME}PodCondition": _object(
        {
            "type": schema_builder.text("Type of the condition."),
            "status": schema_builder.text(
                "Its status.", enum=["True", "False", "Unknown"], default="True"
            ),
        },
        "type",
    ),
    f"{NAME}FailureRule": _object(_RULE, "action"),
    f"{NAME}FailurePolicy": _object(_FAILURE),
    **schema_builder.definitions(
        NAME,
        "grange.dev",
        "v1alpha1",
        "Pods in several roles that start together and end as one job.",
        required=("replicaSpecs",),
        spec={
            "framework": schema_builder.text(
                "How the pods find each other: which variables and files they get. One of "
                f"{', '.join(job_frameworks.NAMES)}.",
                default=job_frameworks.NAMES[0],
                **{schema_builder.RULED: {"enum": list(job_frameworks.NAMES)}},
            ),
            "replicaSpecs": job_schema.roles(
                f"{NAME}Role", "The roles by name: lower-case letters, digits and '-'."
            ),
            "runPolicy": schema_builder.reference(
                f"{NAME}RunPolicy",
                "When the job begins and ends, and what remains of it.",
                default={},
            ),
            "successPolicy": schema_builder.reference(
                f"{NAME}SuccessPolicy", "When the job has succeeded."
            ),
            "failurePolicy": schema_builder.reference(
                f"{NAME}FailurePolicy", "What follows from failures of pods."
            ),
        },
        status=job_schema.status_fields(NAME),
    ),
}
