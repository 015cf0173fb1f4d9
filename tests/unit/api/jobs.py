"""Documents of jobs for tests, and what is wrong with them."""

import copy
from typing import Any

from grange.api import schema
from grange.api.kinds import GANGJOB
from grange.api.scheme import AnyKind
from grange.api.validation import validate

Document = dict[str, Any]


def template(container: str = "main", **spec: Any) -> Document:
    run = {"name": container, "image": "trainer:1", "command": ["train"]}
    return {"spec": {"containers": [run], **spec}}


def role(replicas: int = 1, **fields: Any) -> Document:
    return {"replicas": replicas, "template": template(), **fields}


def job(info: AnyKind, name: str = "train", **spec: Any) -> Document:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": meta, "spec": spec}


def gangjob(name: str = "train", roles: Document | None = None, **spec: Any) -> Document:
    return job(GANGJOB, name, replicaSpecs={"worker": role(4)} if roles is None else roles, **spec)


def complete(info: AnyKind, document: Document) -> Document:
    """A copy with its defaults."""
    document = copy.deepcopy(document)
    assert schema.check(document, info) == []
    schema.apply_defaults(document, info)
    return document


def faults(info: AnyKind, document: Document, old: Document | None = None) -> list[tuple[str, str]]:
    """Field and message of everything that is wrong, by the schema or else by the rules."""
    document = copy.deepcopy(document)
    found = schema.check(document, info)
    if not found:
        schema.apply_defaults(document, info)
        found = validate(document, old, info)
    return [(cause.field, cause.message) for cause in found]


def fields(info: AnyKind, document: Document, old: Document | None = None) -> list[str]:
    return [field for field, _ in faults(info, document, old)]


GANGJOB_FIELDS: Document = {
    "framework": "PyTorch",
    "replicaSpecs": {
        "launcher": role(1, leader=True),
        "worker": role(
            4,
            minReplicas=2,
            maxReplicas=8,
            minAvailable=2,
            restartPolicy="ExitCode",
            dependsOn=[{"role": "launcher", "condition": "Ready"}],
            backoffLimitPerIndex=2,
            maxFailedIndexes=1,
        ),
        "server": role(2, completes=False),
    },
    "runPolicy": {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 600,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 3,
        "managedBy": "grange.dev/gangjob-controller",
        "schedulingPolicy": {
            "backend": "Volcano",
            "minAvailable": 4,
            "minResources": {"cpu": "4"},
            "queue": "team-a",
            "priorityClass": "high",
            "scheduleTimeoutSeconds": 60,
            "topology": {"key": "topology.kubernetes.io/zone", "mode": "Preferred"},
        },
    },
    "successPolicy": {"operator": "All", "roles": ["worker"], "indexes": "0-3", "count": 2},
    "failurePolicy": {
        "maxRestarts": 3,
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "oom",
                "action": "FailJob",
                "roles": ["worker"],
                "onReasons": ["OOMKilled"],
            },
            {
                "action": "RestartJob",
                "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]},
            },
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailIndex", "roles": ["worker"]},
        ],
    },
}
