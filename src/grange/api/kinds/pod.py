"""Pod: the unit that is placed on a node and run there."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from grange.api import codec, meta, unsupported
from grange.api.defaults.podspec import default_pod
from grange.api.fields import readers
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells, pods
from grange.api.runtime_classes import allow_images
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.ephemeral_containers import check_ephemeral_containers
from grange.api.validation.podspec import check_pod_spec, check_pod_update
from grange.api.validation.resize_rules import check_resize

Scalar = str | int | float  # a quantity on the wire
FINISHED = frozenset({"Succeeded", "Failed"})  # phases that a pod never leaves
QUOTA_LABELS = (QUEUE_LABEL, GROUP_LABEL)
"""Labels that a pod was admitted by when it got its node; from then on they may not change."""
DISRUPTION_TARGET = "DisruptionTarget"
"""Condition of a pod that is about to be deleted by an eviction, a preemption or a taint."""

SelectorRequirement = meta.SelectorRequirement
LabelSelector = meta.LabelSelector


class EnvVarSource(View, frozen=True):
    """Where an environment variable's value comes from; exactly one is set."""

    config_map_key_ref: dict[str, Any] | None = None
    secret_key_ref: dict[str, Any] | None = None
    field_ref: dict[str, Any] | None = None
    resource_field_ref: dict[str, Any] | None = None
    file_key_ref: dict[str, Any] | None = None


class EnvVar(View, frozen=True):
    """One environment variable."""

    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvFromSource(View, frozen=True):
    """A whole ConfigMap or Secret as environment."""

    prefix: str = ""
    config_map_ref: dict[str, Any] | None = None
    secret_ref: dict[str, Any] | None = None


class ContainerPort(View, frozen=True):
    """A port that the container listens on."""

    container_port: int
    name: str = ""
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class HTTPGetAction(View, frozen=True):
    """An HTTP probe."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[dict[str, str], ...] = ()


class TCPSocketAction(View, frozen=True):
    """A TCP probe."""

    port: int | str
    host: str = ""


class GRPCAction(View, frozen=True):
    """A probe of gRPC's health service."""

    port: int
    service: str = ""


class ExecAction(View, frozen=True):
    """A command probe."""

    command: tuple[str, ...] = ()


class Probe(View, frozen=True):
    """How to find out whether a container is started, ready or alive."""

    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    exec: ExecAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class SleepAction(View, frozen=True):
    """A hook that waits."""

    seconds: int = 0


class LifecycleHandler(View, frozen=True):
    """What a hook does; exactly one is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(View, frozen=True):
    """What to do after a container has started and before it is stopped."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str = ""


class VolumeMount(View, frozen=True):
    """Where a volume shows up in the container."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class ResourceRequirements(View, frozen=True):
    """What a container asks for and may use at most."""

    requests: dict[str, Scalar] = msgspec.field(default_factory=dict)
    limits: dict[str, Scalar] = msgspec.field(default_factory=dict)


class Container(View, frozen=True):
    """One program of a pod."""

    name: str
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: dict[str, Any] | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    restart_policy: str = ""
    restart_policy_rules: tuple[dict[str, Any], ...] = ()
    resize_policy: tuple[dict[str, str], ...] = ()


class EphemeralContainer(Container, frozen=True):
    """A program that was added to a pod that runs.

    Attributes:
        target_container_name: container whose processes it shares; empty for its own.
    """

    target_container_name: str = ""


class Toleration(View, frozen=True):
    """A taint that the pod can live with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(View, frozen=True):
    """All of the expressions; an empty term matches nothing."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(View, frozen=True):
    """Any of the terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(View, frozen=True):
    """A term worth a weight of 1 to 100."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(View, frozen=True):
    """Which nodes, must and should."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(View, frozen=True):
    """Pods to be near or far from, by topology domain."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(View, frozen=True):
    """A pod affinity term worth a weight of 1 to 100."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(View, frozen=True):
    """Terms that must and should hold; for anti-affinity, must not and should not."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(View, frozen=True):
    """Everything that draws a pod to places or keeps it from them."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View, frozen=True):
    """How evenly pods spread over domains."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Volume(View, frozen=True):
    """A directory for the pod's containers; exactly one source is set."""

    name: str
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    config_map: dict[str, Any] | None = None
    secret: dict[str, Any] | None = None
    downward_api: dict[str, Any] | None = msgspec.field(name="downwardAPI", default=None)
    projected: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None


class HostAlias(View, frozen=True):
    """Names of an address."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodSpec(View, frozen=True):
    """What to run and where it may run."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduler_name: str = ""
    runtime_class_name: str = ""
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    scheduling_gates: tuple[dict[str, str], ...] = ()
    readiness_gates: tuple[dict[str, str], ...] = ()
    security_context: dict[str, Any] | None = None
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    overhead: dict[str, Scalar] = msgspec.field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = msgspec.field(name="setHostnameAsFQDN", default=None)
    hostname_override: str | None = None
    dns_policy: str = ""
    dns_config: dict[str, Any] | None = None
    host_aliases: tuple[HostAlias, ...] = ()
    enable_service_links: bool | None = None
    service_account_name: str = ""
    resources: ResourceRequirements | None = None
    resource_claims: tuple[dict[str, Any], ...] = ()
    host_network: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    share_process_namespace: bool | None = None
    host_users: bool | None = None


class ContainerStateWaiting(View, frozen=True):
    """Not running yet, or between two runs."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(View, frozen=True):
    """Running."""

    started_at: str | None = None


class ContainerStateTerminated(View, frozen=True):
    """Ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(View, frozen=True):
    """Exactly one of the three."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(View, frozen=True):
    """What became of one container.

    Attributes:
        allocated_resources: requests that the node has set aside for it, also during a resize.
        resources: what its cgroup has now.
    """

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    allocated_resources: dict[str, Scalar] | None = None
    resources: ResourceRequirements | None = None
    stop_signal: str = ""


class PodStatus(View, frozen=True):
    """What is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: str | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    allocated_resources: dict[str, Scalar] | None = None
    resources: ResourceRequirements | None = None


class Pod(Resource, frozen=True):
    """Containers that run together on one node."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def condition(pod: Pod, kind: str) -> Condition | None:
    """The pod's condition of this type."""
    for item in pod.status.conditions:
        if item.type == kind:
            return item
    return None


def is_ready(pod: Pod) -> bool:
    """Whether the Ready condition is True and the pod is not on its way out."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.status == "True" and not pod.metadata.deletion_timestamp


def is_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler has tried the pod and found no node for it."""
    found = condition(pod, "PodScheduled")
    refused = found is not None and (found.status, found.reason) == ("False", "Unschedulable")
    return refused and not pod.spec.node_name


def is_disruption_target(pod: Pod) -> bool:
    """Whether the pod is marked as about to be deleted: it may go at any time."""
    mark = condition(pod, DISRUPTION_TARGET)
    return mark is not None and mark.status == "True"


def is_finished(pod: Pod) -> bool:
    """Whether the pod's programs have all ended for good."""
    return pod.status.phase in FINISHED


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    if old is None:
        check_pod_spec(spec, "spec", faults)
    elif spec != (before := old.get("spec") or {}):
        known = {field: value for field, value in spec.items() if field != "ephemeralContainers"}
        check_pod_spec(known, "spec", faults)
        check_ephemeral_containers(spec, before, "spec.ephemeralContainers", faults)
        now, earlier = _completed(spec), _completed(before)
        check_pod_update(now, earlier, "spec", faults)
        check_resize(now, earlier, old.get("status") or {}, "spec", faults)
    if old is not None and spec.get("nodeName"):
        _check_same_quota(document, old, faults)
    return faults.causes


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return ()
    found = unsupported.PODS.review(spec)
    if found.message and old is None:
        document["status"]["conditions"] = [found.condition(now)]
    return found.warnings


def _completed(spec: Document) -> Document:
    """The spec with its defaults: it may have been stored when there were fewer of them."""
    pod: Document = {"spec": codec.clone(spec)}
    default_pod(pod)
    completed: Document = pod["spec"]
    return completed


def _check_same_quota(document: Document, old: Document, faults: Faults) -> None:
    """A pod was admitted to a queue when it got its node; there it counts until it has ended."""
    labels, before = ((item.get("metadata") or {}).get("labels") or {} for item in (document, old))
    if (old.get("spec") or {}).get("nodeName") and labels != before:
        for label in QUOTA_LABELS:
            if labels.get(label) != before.get(label):
                faults.forbidden(
                    f"metadata.labels[{label}]",
                    "may not change once the pod has a node: its quota counts there",
                )


def _at_work(document: Document) -> bool:
    """Whether an agent has the pod, so that deletion waits for its programs to end."""
    node = (document.get("spec") or {}).get("nodeName")
    phase = (document.get("status") or {}).get("phase")
    return bool(node) and phase not in ("Succeeded", "Failed")


POD = KindInfo(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    view=Pod,
    schema="io.k8s.api.core.v1.Pod",
    short_names=("po",),
    categories=("all",),
    subresources=(
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "log",
        "portforward",
        "resize",
        "tunnel",
        "why",
    ),
    columns=(
        Column("Ready", pods.ready, description="Containers that are ready, of all."),
        Column("Status", pods.status, description="What the pod is doing."),
        Column("Restarts", pods.restarts, description="How often its containers restarted."),
        Column("IP", cells.text("status.podIP"), description="Its address.", priority=1),
        Column("Node", cells.text("spec.nodeName"), description="Where it runs.", priority=1),
        Column(
            "Nominated Node",
            cells.text("status.nominatedNodeName"),
            description="Where room is being made for it.",
            priority=1,
        ),
        Column(
            "Readiness Gates",
            pods.readiness_gates,
            description="Gates that are open, of all.",
            priority=1,
        ),
    ),
    fields=readers(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    default=default_pod,
    validate=_validate,
    review=_review,
    graceful=_at_work,
    returns_deleted=True,
)


def uses_images(pod: Pod) -> bool:
    """Whether a node that has images makes the pod's containers from them."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return allow_images((item.image for item in containers), pod.spec.runtime_class_name)


def is_active(pod: Pod) -> bool:
    """Whether the pod counts as a replica: neither on its way out nor finished."""
    return not pod.metadata.deletion_timestamp and not is_finished(pod)
