"""What the pods of a session look like, and the files of an attempt. Pure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from grange.api import names
from grange.api.kinds import TESTSESSION
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    ATTEMPT_LABEL,
    COMPONENT_LABEL,
    ROLE_LABEL,
    SESSION_LABEL,
    SESSION_UID_LABEL,
    SessionComponent,
    TestSession,
)
from grange.api.meta import Document
from grange.api.session_components import template_of
from grange.controllers.testsession.component_pods import (
    CLIENT,
    SERVER,
    ComponentPod,
    WorkerAddress,
)
from grange.reconcile.control import from_template
from grange.reconcile.owners import owner_reference

FILES_VOLUME, FILES_PATH = "grange-session", "/var/run/grange-session"
ARTIFACTS_VOLUME, ARTIFACTS_PATH = "grange-artifacts", "/var/run/grange-artifacts"
SCENARIO_FILE, METADATA_FILE = "scenario.json", "metadata.json"
WORKERS_FILE, MACHINES_FILE = "workers", "node_info.json"
ATTEMPT_KEY = "attempt"
ATTEMPT_VARIABLE = "GRANGE_SESSION_ATTEMPT"

_VARIABLE = re.compile(r"[^A-Z0-9_]")

VALUE_MAX = 96 * 1024
"""Bytes of a variable; Linux takes 128 KiB. What is longer is in the file alone."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What all pods of one attempt have in common.

    Attributes:
        session: whose.
        attempt: from 0.
        lease_uid: of the machine lease; empty where no machines are reserved.
        nodes: the machine of each pod that has one, by the pod's name.
        link_mounts: whether mounts are links below the container's root, as where pods are processes.
        environment: further variables of every container.
    """

    session: TestSession
    attempt: int
    lease_uid: str = ""
    nodes: Mapping[str, str] = field(default_factory=dict)
    link_mounts: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, path: str) -> str:
        """A path of a mount as a container's environment has to have it."""
        return f"$(GRANGE_ROOT){path}" if self.link_mounts else path

    @property
    def files(self) -> str:
        """The name of the attempt's ConfigMap."""
        meta = self.session.metadata
        return file_names(meta.name, meta.uid, str(self.attempt))[-1]

    @property
    def driver_files(self) -> str:
        """The name of the ConfigMap with what only the driver gets."""
        meta = self.session.metadata
        return file_names(meta.name, meta.uid, str(self.attempt))[0]


def file_names(session: str, uid: str, attempt: str) -> tuple[str, str]:
    """Names of the ConfigMaps of an attempt: of the driver's, and of the one that all pods refer to."""
    common = f"{session}-{attempt}-{names.digest(uid)}"
    return f"{common}-driver", common


def files_of_pod(pod: Pod) -> tuple[str, ...]:
    """Names of the ConfigMaps of a pod's attempt; none where its labels do not have it."""
    labels = pod.metadata.labels
    found = [labels.get(one, "") for one in (SESSION_LABEL, SESSION_UID_LABEL, ATTEMPT_LABEL)]
    return file_names(*found) if all(found) else ()


def pod_document(
    context: SessionContext, pod: ComponentPod, workers: Sequence[WorkerAddress] = ()
) -> Document:
    """The document of a pod.

    Args:
        context: of the attempt.
        pod: which one.
        workers: for the driver: all of them, in the session's order.
    """
    session = context.session
    document = from_template(
        _labelled(context, pod),
        name=pod.name,
        namespace=session.metadata.namespace,
        owner=owner_reference(TESTSESSION, session),
    )
    spec: Document = document["spec"]
    spec.setdefault("restartPolicy", "Never")
    _pin(context, pod, spec)
    _add_volumes(context, pod, spec)
    added = _environment(context, pod, workers)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        _add_environment(container, added, pod.spec.env)
        _add_mounts(container)
    return {"apiVersion": "v1", "kind": "Pod", **document}


def attempt_files(context: SessionContext) -> Document:
    """The ConfigMap of an attempt: what every pod may read.

    Every container refers to it, so none starts when it is deleted: it ends the attempt for pods that
    are created late, by a request that was under way for long.
    """
    session = context.session
    meta = session.metadata
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "creationTimestamp": meta.creation_timestamp,
        "labels": meta.labels,
        "annotations": meta.annotations,
        "testName": session.spec.test_name,
        "attempt": context.attempt,
    }
    data = {ATTEMPT_KEY: str(context.attempt), METADATA_FILE: _json(metadata)}
    if session.spec.scenario is not None:
        data[SCENARIO_FILE] = _json(session.spec.scenario)
    return _files(context, context.files, data)


def driver_files(context: SessionContext, workers: Sequence[WorkerAddress]) -> Document:
    """The ConfigMap that only the driver reads: where the workers are."""
    listed: dict[str, list[Document]] = {"servers": [], "clients": []}
    for worker in workers:
        fact = {"name": worker.pod.name, "ip": worker.address, "node": worker.node}
        listed.setdefault(f"{worker.pod.role}s", []).append(fact)
    data = {WORKERS_FILE: _addresses(workers), MACHINES_FILE: _json(listed)}
    return _files(context, context.driver_files, data)


def _files(context: SessionContext, name: str, data: dict[str, str]) -> Document:
    session = context.session
    document = from_template(
        {"metadata": {"labels": _session_labels(context)}},
        name=name,
        namespace=session.metadata.namespace,
        owner=owner_reference(TESTSESSION, session),
    )
    return {"apiVersion": "v1", "kind": "ConfigMap", **document, "data": data, "immutable": True}


def _session_labels(context: SessionContext) -> dict[str, str]:
    meta = context.session.metadata
    return {
        SESSION_LABEL: meta.name,
        SESSION_UID_LABEL: meta.uid,
        ATTEMPT_LABEL: str(context.attempt),
    }


def _labelled(context: SessionContext, pod: ComponentPod) -> Document:
    """The component's template with the labels of the pod; ours win."""
    template = template_of(_component_document(pod.spec))
    meta = template.get("metadata") or {}
    labels = {
        **(meta.get("labels") or {}),
        **_session_labels(context),
        COMPONENT_LABEL: pod.component,
        ROLE_LABEL: pod.role,
    }
    if pod.name in context.nodes:
        labels[MACHINE_LEASE] = context.lease_uid
    return {**template, "metadata": {**meta, "labels": labels}}


def _component_document(spec: SessionComponent) -> Document:
    document: Document = msgspec.to_builtins(spec)
    return document


def _pin(context: SessionContext, pod: ComponentPod, spec: Document) -> None:
    """Let the pod land on its machine only, and only as long as the lease has it."""
    node = context.nodes.get(pod.name)
    if node is None:
        return
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), MACHINE_LEASE: context.lease_uid}
    toleration = {
        "key": MACHINE_LEASE,
        "operator": "Equal",
        "value": context.lease_uid,
        "effect": "NoSchedule",
    }
    spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]
    affinity = {**(spec.get("affinity") or {})}
    by_node = {**(affinity.get("nodeAffinity") or {})}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    # By the node's name, as DaemonSets do: the label kubernetes.io/hostname need not be the name.
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = (by_node.get(required) or {}).get("nodeSelectorTerms") or [{}]
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or []), field]} for term in terms]
    by_node[required] = {"nodeSelectorTerms": pinned}
    spec["affinity"] = {**affinity, "nodeAffinity": by_node}


def _add_volumes(context: SessionContext, pod: ComponentPod, spec: Document) -> None:
    sources: list[Document] = [{"configMap": {"name": context.files}}]
    if pod.is_driver:
        sources.append({"configMap": {"name": context.driver_files}})
    ours = [
        {"name": FILES_VOLUME, "projected": {"sources": sources}},
        {"name": ARTIFACTS_VOLUME, "emptyDir": {}},
    ]
    taken = {FILES_VOLUME, ARTIFACTS_VOLUME}
    given = [item for item in spec.get("volumes") or [] if item.get("name") not in taken]
    spec["volumes"] = [*given, *ours]


def _add_mounts(container: Document) -> None:
    ours: list[Document] = [
        {"name": FILES_VOLUME, "mountPath": FILES_PATH, "readOnly": True},
        {"name": ARTIFACTS_VOLUME, "mountPath": ARTIFACTS_PATH},
    ]
    paths = {item.get("mountPath") for item in container.get("volumeMounts") or []}
    added = [item for item in ours if item["mountPath"] not in paths]
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), *added]


def _environment(
    context: SessionContext, pod: ComponentPod, workers: Sequence[WorkerAddress]
) -> list[Document]:
    """The variables of a pod; the attempt's is read from its ConfigMap, so that it must be there."""
    session = context.session
    values = {
        "GRANGE_SESSION": session.metadata.name,
        "GRANGE_SESSION_COMPONENT": pod.member,
        "GRANGE_SESSION_ROLE": pod.role,
        "GRANGE_ARTIFACTS": context.path(ARTIFACTS_PATH),
        **context.environment,
    }
    if pod.is_driver:
        values |= _driver_environment(context, workers)
    else:
        values |= {"WORKER_KIND": pod.role, "DRIVER_PORT": str(pod.spec.port)}
    attempt = {"configMapKeyRef": {"name": context.files, "key": ATTEMPT_KEY}}
    return [
        {"name": ATTEMPT_VARIABLE, "valueFrom": attempt},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def _driver_environment(
    context: SessionContext, workers: Sequence[WorkerAddress]
) -> dict[str, str]:
    lists = {
        "QPS_WORKERS": _addresses(workers),
        "GRANGE_SESSION_WORKERS": _addresses(workers),
        "GRANGE_SESSION_SERVERS": _addresses(workers, SERVER),
        "GRANGE_SESSION_CLIENTS": _addresses(workers, CLIENT),
    }
    for role in context.session.spec.roles:
        lists[f"GRANGE_SESSION_HOSTS_{_VARIABLE.sub('_', role.upper())}"] = _addresses(
            workers, role
        )
    scenario = context.session.spec.scenario
    if scenario is not None:
        lists["SCENARIO_JSON"] = _json(scenario).replace("$", "$$")  # as it is: no $(NAME) in it
    directory = context.path(FILES_PATH)
    values = {name: text for name, text in lists.items() if len(text) <= VALUE_MAX}
    values["QPS_WORKERS_FILE"] = f"{directory}/{WORKERS_FILE}"
    values["METADATA_OUTPUT_FILE"] = f"{directory}/{METADATA_FILE}"
    values["NODE_INFO_OUTPUT_FILE"] = f"{directory}/{MACHINES_FILE}"
    if scenario is not None:
        values["SCENARIOS_FILE"] = f"{directory}/{SCENARIO_FILE}"
    return values


def _add_environment(
    container: Document, added: Sequence[Document], given: Sequence[Document]
) -> None:
    """Ours come first, so that others may refer to them as ``$(NAME)``; later definitions win."""
    own = container.get("env") or []
    listed = [*added, *given, *own]
    last = {item.get("name"): item for item in listed} | {ATTEMPT_VARIABLE: added[0]}
    container["env"] = [dict(item) for item in last.values()]


def _addresses(workers: Iterable[WorkerAddress], role: str = "") -> str:
    return ",".join(item.text for item in workers if role in ("", item.pod.role))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
