"""The document of one pod of a job: its template, its identity, its wiring and its gang.

Unless the framework needs it otherwise, the pods of a role have one spec but for their host names: servers and
clients then check and decode it once. So a pod reads its index from its label.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grange.api.meta import Document
from grange.api.names import DNS_LABEL_MAX
from grange.controllers.gangjob import gang_backends, in_place_rules
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import framework_of
from grange.controllers.gangjob.frameworks.framework import (
    FILES_VOLUME,
    JobMember,
    PodAdditions,
    framework_container,
)
from grange.controllers.gangjob.frameworks.generic import INDEX, identity
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_names import gen_replica_labels
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER
from grange.controllers.gangjob.job_services import files_name
from grange.controllers.gangjob.model import JobEvent, JobModel, JobRole, RestartPolicy, ServiceMode
from grange.reconcile.control import from_template
from grange.reconcile.recorder import WARNING

LEADER = "master"
COMPLETION_INDEX = "JOB_COMPLETION_INDEX"
SET_RESTART_POLICY = "SettedPodTemplateRestartPolicy"
SET_SCHEDULER_NAME = "SettedPodTemplateSchedulerName"
ENVIRONMENT_KEPT = "EnvironmentKept"
_MODE = 0o755  # some of the files are scripts


@dataclass(frozen=True, slots=True)
class JobPodDocument:
    """A pod to create, and the events about what of its template has no effect."""

    document: Document
    events: tuple[JobEvent, ...] = ()


def pod_document(context: JobContext, role_name: str, index: int, attempt: int) -> JobPodDocument:
    """The pod of a role and an index.

    Raises:
        InvalidJob: the template cannot be wired; the message names the field.
    """
    model = context.model
    role = model.role(role_name)
    if role is None:
        raise InvalidJob(f"spec.replicaSpecs: there is no role {role_name}; name one of the roles")
    container = str(framework_container(model, role).get("name"))
    framework = framework_of(model)
    member = JobMember(
        model, role, index, context.peers, attempt, files_name(model), context.encoded
    )
    name = context.peers.pod(role.name, index)
    document = from_template(
        _with_metadata(context, member), name=name, namespace=model.namespace, owner=context.owner
    )
    spec = document["spec"]
    events = [*_set_restart_policy(model, spec, role), *_set_scheduler(context, role, spec)]
    in_place_rules.set_restart_rules(model, role, spec)
    _set_names(context, name, spec)
    additions = framework.wire(member)
    if member.model.framework:
        _set_port(member, spec, container)
    events += _add(context, member, additions, spec, container)
    document = {"apiVersion": "v1", "kind": "Pod", **document}
    return JobPodDocument(document, tuple(events))


def _with_metadata(context: JobContext, member: JobMember) -> Document:
    """The template with the labels, annotations and finalizer of the pod; ours win."""
    model, role, labels = context.model, member.role, context.labels
    meta = role.template.get("metadata") or {}
    gang_labels, gang_annotations, _ = gang_backends.decoration(model, role)
    own = {
        **gen_replica_labels(labels, model.name, role.name, member.index),
        labels.attempt: str(member.attempt),
        **gang_labels,
    }
    if framework_of(model).is_leader(model, role, member.index):
        own[labels.leader] = LEADER
    annotations = dict(gang_annotations)
    if labels.index_annotation:
        annotations[labels.index_annotation] = str(member.index)
    annotations |= context.peers.annotations(role.name, member.index)
    finalizers = [item for item in meta.get("finalizers") or [] if item != TRACKING_FINALIZER]
    return {
        **role.template,
        "metadata": {
            **meta,
            "labels": {**(meta.get("labels") or {}), **{k: v for k, v in own.items() if k}},
            "annotations": {**(meta.get("annotations") or {}), **annotations},
            "finalizers": [*finalizers, TRACKING_FINALIZER],
        },
    }


def _set_restart_policy(model: JobModel, spec: Document, role: JobRole) -> Iterable[JobEvent]:
    """The role's policy; where the controller looks at how a pod failed, the agent restarts nothing."""
    policy = role.restart_policy
    value = policy.value if model.restarts_in_place(role) else RestartPolicy.NEVER.value
    given = spec.get("restartPolicy")
    spec["restartPolicy"] = value
    if given and given != value:
        yield JobEvent(
            WARNING,
            SET_RESTART_POLICY,
            f"spec.replicaSpecs[{role.name}].template.spec.restartPolicy: {given} has no effect; "
            f"the restart policy of the role is {policy.value}",
        )


def _set_scheduler(context: JobContext, role: JobRole, spec: Document) -> Iterable[JobEvent]:
    """The backend's scheduler, unless a template of the job names another."""
    _, _, scheduler = gang_backends.decoration(context.model, role)
    if scheduler:
        spec["schedulerName"] = scheduler
    elif gang_backends.names_other_scheduler(context.model):
        yield JobEvent(
            WARNING,
            SET_SCHEDULER_NAME,
            "spec.replicaSpecs[].template.spec.schedulerName: another scheduler is named there, "
            f"so {context.model.scheduling.backend.value} may not place the gang together; leave it out",
        )


def _set_names(context: JobContext, name: str, spec: Document) -> None:
    """The names by which the job's Service leads to the pod; per pod, the Service's name is enough."""
    if context.model.services is ServiceMode.JOB:
        spec["hostname"] = name
        spec["subdomain"] = context.model.name
    elif context.model.services is ServiceMode.NONE and len(name) <= DNS_LABEL_MAX:
        spec.setdefault("hostname", name)


def _set_port(member: JobMember, spec: Document, container: str) -> None:
    """The framework's port as this member has it."""
    framework = framework_of(member.model)
    for item in spec["containers"]:
        for port in (item.get("ports") or []) if item.get("name") == container else []:
            if framework.port_name and port.get("name") == framework.port_name:
                number = int(port["containerPort"])
                role, index = member.role.name, member.index
                port["containerPort"] = member.peers.port(role, index, number, framework.port)


def _variables(values: Mapping[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _index(variable: str, labels: JobLabels) -> Document:
    """A variable with the member's index, as batch/v1 gives it to the pods of an Indexed Job."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{labels.index}']"}
    return {"name": variable, "valueFrom": {"fieldRef": field}}


def _add(
    context: JobContext,
    member: JobMember,
    additions: PodAdditions,
    spec: Document,
    container: str,
) -> Iterable[JobEvent]:
    """Put the framework's additions and the member's identity into the spec."""
    if member.model.framework:
        plain = [_index(INDEX, context.labels), *_variables(identity(member))]
    else:
        indexed = bool(context.labels.index_annotation)
        plain = [_index(COMPLETION_INDEX, context.labels)] if indexed else []
    wired = [*plain, *_variables(additions.env)]
    for variable, key in additions.env_keys.items():
        reference = {"name": member.files, "key": key, "optional": True}
        wired.append({"name": variable, "valueFrom": {"configMapKeyRef": reference}})
    for item in [*(spec.get("initContainers") or []), *spec["containers"]]:
        own = item.get("name") == container
        yield from _add_env(item, wired if own else plain)
        if own and additions.directory:
            mount = {"name": FILES_VOLUME, "mountPath": additions.directory, "readOnly": True}
            item["volumeMounts"] = [*(item.get("volumeMounts") or []), mount]
        if own and (additions.command or additions.wrapper):
            command = item.get("command") or additions.command
            item["command"] = [*additions.wrapper, *command]
    if additions.directory:
        keys = [{"key": key, "path": key} for key in additions.files]
        source = {"name": member.files, "items": keys, "defaultMode": _MODE}
        volume = {"name": FILES_VOLUME, "configMap": source}
        spec["volumes"] = [*(spec.get("volumes") or []), volume]
    if additions.init_containers:
        first = [dict(item) for item in additions.init_containers]
        spec["initContainers"] = [*first, *(spec.get("initContainers") or [])]


def _add_env(container: Document, added: list[Document]) -> Iterable[JobEvent]:
    """Ours come first, so that those of the template may refer to them as ``$(NAME)``."""
    given = container.get("env") or []
    taken = {item.get("name") for item in given}
    container["env"] = [*(item for item in added if item["name"] not in taken), *given]
    for item in added:
        if item["name"] in taken:
            yield JobEvent(
                WARNING,
                ENVIRONMENT_KEPT,
                f"container {container.get('name')}: env {item['name']} is that of the template; "
                "remove it there to have it set for the job",
            )
