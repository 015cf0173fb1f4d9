"""The schema of TestSession."""

from grange.api import schema_builder
from grange.api.kinds.job_schema import CORE
from grange.api.meta import Document

NAME = "dev.grange.v1alpha1.TestSession"

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_POSITIVE = {schema_builder.RULED: {"minimum": 1}}
_NOT_NEGATIVE = {schema_builder.RULED: {"minimum": 0}}


def _names(description: str) -> Document:
    return schema_builder.several({"type": "string"}, description, **_ATOMIC)


def _components(description: str) -> Document:
    item = {"$ref": f"#/definitions/{NAME}Component"}
    return schema_builder.several(item, description, **_ATOMIC)


def _time(description: str) -> Document:
    return schema_builder.text(description, format="date-time")


def _number(description: str) -> Document:
    return {"type": "number", "format": "double", "description": description}


_COMPONENT: dict[str, Document] = {
    "name": schema_builder.text("Unique in the session; by default its role, with an index."),
    "count": schema_builder.whole("How many pods that are alike.", default=1, **_POSITIVE),
    "pool": schema_builder.text(
        "Pool of which each pod gets a whole machine; by default the LeasePolicy's for its role, "
        "else no machine is reserved."
    ),
    "image": schema_builder.text("Image of the container main."),
    "command": _names("Command of the container main."),
    "args": _names("Arguments of the container main."),
    "env": schema_builder.several(
        {"$ref": f"#/definitions/{CORE}.EnvVar"}, "Added to every container.", **_ATOMIC
    ),
    "resources": schema_builder.reference(
        f"{CORE}.ResourceRequirements", "Resources of the container main."
    ),
    "readinessProbe": schema_builder.reference(
        f"{CORE}.Probe", "When the container main is ready."
    ),
    "port": schema_builder.whole(
        "Port in the address that the driver gets.",
        default=10000,
        **{schema_builder.RULED: {"minimum": 1, "maximum": 65535}},
    ),
    "artifacts": _names("Glob patterns of files to keep, below GRANGE_ARTIFACTS; all by default."),
    "template": schema_builder.reference(
        f"{CORE}.PodTemplateSpec",
        "The pod in full, instead of image, command and the like.",
        **{schema_builder.OPAQUE: True},
    ),
}

_TIMEOUTS: dict[str, Document] = {
    "queueSeconds": schema_builder.whole("In the queue; no limit by default.", **_POSITIVE),
    "provisionSeconds": schema_builder.whole(
        "Until all components are ready.", default=300, **_POSITIVE
    ),
    "runSeconds": schema_builder.whole("Of the test.", default=900, **_POSITIVE),
    "collectSeconds": schema_builder.whole("Of keeping the evidence.", default=60, **_POSITIVE),
    "cleanupSeconds": schema_builder.whole(
        "Until the pods are gone; then they are deleted without grace.", default=120, **_POSITIVE
    ),
}

_METRIC: dict[str, Document] = {
    "name": schema_builder.text("In the results."),
    "jsonPath": schema_builder.text("Where it is in the driver's JSON, as {.latency.p99}."),
    "unit": schema_builder.text("For people."),
    "better": schema_builder.text("Which way is better.", enum=["", "Lower", "Higher"]),
    "threshold": {
        **_number("Change for the worse that counts as a regression, as a fraction: 0.1 is 10 %."),
        "default": 0.1,
        schema_builder.RULED: {"minimum": 0, "maximum": 1},
    },
}

_EVIDENCE: dict[str, Document] = {
    "retentionSeconds": schema_builder.whole(
        "How long logs, artifacts and reports are kept after the end.",
        default=7 * 24 * 3600,
        **_NOT_NEGATIVE,
    ),
    "maxArtifactBytes": {
        "type": "integer",
        "format": "int64",
        "description": "Of all artifacts of one pod; what is beyond is named and not kept.",
        "default": 256 * 1024 * 1024,
        **_NOT_NEGATIVE,
    },
    "result": schema_builder.text(
        "Artifact of the driver that holds its JSON; by default the last line of its log that is "
        "a JSON object."
    ),
    "metrics": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}Metric"},
        "Figures to read from the driver's JSON.",
        **_ATOMIC,
    ),
}

_SPEC: dict[str, Document] = {
    "driver": schema_builder.reference(f"{NAME}Component", "Its outcome is the verdict."),
    "servers": _components("Workers; the driver's list of addresses begins with them."),
    "clients": _components("Workers that follow the servers."),
    "roles": {
        "type": "object",
        "description": "Further workers, by role.",
        "additionalProperties": _components("Workers of this role."),
    },
    "scenario": {
        "description": "Any JSON; given to the driver as it is.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "testName": schema_builder.text(
        "By which runs of one test are known; by default the name without a generated suffix."
    ),
    "priority": schema_builder.whole("Higher ones get machines first.", default=0),
    "semaphores": _names("Limits of the LeasePolicy of which it takes one each."),
    "concurrency": schema_builder.reference(
        f"{NAME}Concurrency", "Sessions that exclude each other."
    ),
    "timeouts": schema_builder.reference(
        f"{NAME}Timeouts", "How long each phase may take.", default={}
    ),
    "retries": schema_builder.reference(
        f"{NAME}Retries", "How often an attempt is repeated.", default={}
    ),
    "evidence": schema_builder.reference(
        f"{NAME}Evidence", "What is kept, and for how long.", default={}
    ),
    "cleaning": schema_builder.text(
        "Of its machines: Automatic or Manual.", enum=["Automatic", "Manual"], default="Automatic"
    ),
    "cancel": schema_builder.text(
        "Ends the session: Collect keeps its evidence first, Now does not.",
        enum=["", "Collect", "Now"],
    ),
    "ttlSecondsAfterFinished": schema_builder.whole(
        "When the object is deleted after its end; never by default.", **_NOT_NEGATIVE
    ),
}

_COMPONENT_STATUS: dict[str, Document] = {
    "name": schema_builder.text("Of the component, with an index where it has several pods."),
    "role": schema_builder.text("Driver, server, client or a further one."),
    "pod": schema_builder.text("Name of the pod."),
    "node": schema_builder.text("Where it runs."),
    "address": schema_builder.text("As the driver gets it."),
    "health": schema_builder.text("Unknown, Ready, NotReady, Succeeded or Failed."),
    "message": schema_builder.text("The reason of its health."),
    "exitCode": schema_builder.whole("Of the container main."),
    "image": schema_builder.text("What ran: the image's digest where it is known."),
    "startedTime": _time("When it started."),
    "finishedTime": _time("When it ended."),
}

_STATUS: dict[str, Document] = {
    "observedGeneration": schema_builder.observed_generation(),
    "phase": schema_builder.text("How far it is."),
    "phaseTime": _time("When it got there."),
    "verdict": schema_builder.text("Passed, Failed, Error or Cancelled."),
    "reason": schema_builder.text("Why, as one word."),
    "message": schema_builder.text("Why."),
    "attempt": schema_builder.whole("The running or last one, from 0."),
    "failureRetries": schema_builder.whole("Attempts that followed failures of the test."),
    "lease": schema_builder.text("Name of its MachineLease."),
    "position": schema_builder.whole("In the queue, from 1; 0 when it does not wait."),
    "expectedStart": _time("When it is likely to get its machines."),
    "startTime": _time("When it got its machines."),
    "runTime": _time("When all components were ready."),
    "completionTime": _time("When it ended."),
    "components": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}ComponentStatus"}, "One for each pod.", **_ATOMIC
    ),
    "events": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}Event"}, "What happened, in order.", **_ATOMIC
    ),
    "metrics": schema_builder.several(
        {"$ref": f"#/definitions/{NAME}MetricResult"}, "What the driver reported.", **_ATOMIC
    ),
    "evidence": schema_builder.reference(f"{NAME}EvidenceStatus", "Where the evidence is."),
    "conditions": schema_builder.conditions(),
}


def _object(fields: dict[str, Document], *required: str) -> Document:
    made: Document = {"type": "object", "properties": fields}
    if required:
        made["required"] = [*required]
    return made


DEFINITIONS: dict[str, Document] = {
    f"{NAME}Component": _object(_COMPONENT),
    f"{NAME}Timeouts": _object(_TIMEOUTS),
    f"{NAME}Concurrency": _object(
        {
            "group": schema_builder.text("Sessions of one group and namespace exclude each other."),
            "policy": schema_builder.text(
                "Supersede: a newer session cancels older ones. Queue: it waits for them.",
                enum=["Supersede", "Queue"],
                default="Supersede",
            ),
        },
        "group",
    ),
    f"{NAME}Retries": _object(
        {
            "infrastructure": schema_builder.whole(
                "After errors that are not the test's.", default=1, **_NOT_NEGATIVE
            ),
            "failure": schema_builder.whole(
                "After failures of the test.", default=0, **_NOT_NEGATIVE
            ),
        }
    ),
    f"{NAME}Metric": _object(_METRIC, "name", "jsonPath"),
    f"{NAME}Evidence": _object(_EVIDENCE),
    f"{NAME}ComponentStatus": _object(_COMPONENT_STATUS, "name"),
    f"{NAME}Event": _object(
        {
            "type": schema_builder.text("What happened."),
            "time": _time("When."),
            "reason": schema_builder.text("Why, as one word."),
            "message": schema_builder.text("For people."),
            "component": schema_builder.text("Whom it is about; empty for the session."),
        },
        "type",
        "time",
    ),
    f"{NAME}MetricResult": _object(
        {
            "name": schema_builder.text("Of the metric."),
            "value": _number("What was reported."),
            "unit": schema_builder.text("For people."),
            "better": schema_builder.text("Which way is better."),
        },
        "name",
        "value",
    ),
    f"{NAME}EvidenceStatus": _object(
        {
            "url": schema_builder.text("Address of the session service that has it."),
            "complete": schema_builder.flag("Whether all of it was kept."),
            "message": schema_builder.text("What was not."),
        }
    ),
    **schema_builder.definitions(
        NAME,
        "grange.dev",
        "v1alpha1",
        "A test of several components on reserved machines, with a verdict.",
        required=("driver",),
        spec=_SPEC,
        status=_STATUS,
    ),
}
