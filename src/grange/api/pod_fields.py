"""Which fields of a pod are honoured, which are warned about, and which are refused.

The one table behind the warnings of the API server, the pod condition ``grange.dev/UnsupportedFields``
and ``docs/reference/compatibility.md``. An entry covers the field and all that is below it, unless a longer path
has an entry; a test walks the schema of the pod and fails for a field that no entry covers.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from grange.api.meta import Document

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path, and no secret
"""Where the volume with the service account's token is mounted."""

PROBE_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc")
"""The fields of a probe of which one is set: what it does."""

_NATIVE = ("cpu", "memory", "ephemeral-storage")


class Support(Enum):
    """What becomes of a field that is set."""

    HONOURED = "honoured"
    BY_NODE = "by node"
    WARNED = "warned"
    REFUSED = "refused"


ISOLATION_LABEL = "grange.dev/isolation"
"""Label of a Node: what separates its pods from each other and from the machine."""
ISOLATED = "grange.dev/PodsIsolated"
"""Type of the condition of a Node that states what that means."""
NETWORK_LABEL = "grange.dev/network"
"""Label of a Node: what a program gets that listens on all addresses."""
AGENT_USER_LABEL = "grange.dev/agent-user"
"""Label of a Node: ``root``, or ``other``."""
LIMITS_LABEL = "grange.dev/limits"
"""Label of a Node: ``cgroup`` where limits are enforced, or ``none``."""
IMAGES_LABEL = "grange.dev/images"
"""Label of a Node: ``true`` where containers can be made from images, or ``false``."""


class Feature(Enum):
    """What a node may have that fields need: the label by which Nodes show it, and its value."""

    NAMESPACES = (ISOLATION_LABEL, "namespaces")
    ROOT = (AGENT_USER_LABEL, "root")
    LIMITS = (LIMITS_LABEL, "cgroup")
    IMAGES = (IMAGES_LABEL, "true")

    @property
    def selector(self) -> str:
        """The label and its value as a selector."""
        return "=".join(self.value)


_NEEDS = "needs a node with"


def needed_feature(warning: str) -> Feature | None:
    """The feature without which a field has no effect, from the text of a warning about it."""
    return next((item for item in Feature if f"{_NEEDS} {item.selector};" in warning), None)


@dataclass(frozen=True, slots=True)
class Field:
    """One entry.

    Attributes:
        path: below ``spec``; ``[]`` follows the name of a list.
        support: what becomes of it.
        note: why, or how it differs from Kubernetes; the text of the warning.
        needs: what a node must have that honours it; None where that does not matter.
        quiet: whether a value, given with the object that holds it, needs no warning: defaults, and
            values that ask for what happens anyway.
        covered_by: the field that is warned about in its place; empty for none.
    """

    path: str
    support: Support
    note: str = ""
    quiet: Callable[[Any, Document], bool] | None = None
    covered_by: str = ""
    needs: Feature | None = None

    @property
    def warning(self) -> str:
        """The text of the warning."""
        return f"{_NEEDS} {self.needs.selector}; {self.note}" if self.needs else self.note


def _honoured(*paths: str, note: str = "") -> Iterator[Field]:
    return (Field(path, Support.HONOURED, note) for path in paths)


def _warned(*paths: str, note: str, quiet: Collection[object] = ()) -> Iterator[Field]:
    test = (lambda value, _: value in quiet) if quiet else None
    return (Field(path, Support.WARNED, note, test) for path in paths)


def _by_node(
    *paths: str, needs: Feature, note: str, quiet: Collection[object] = ()
) -> Iterator[Field]:
    test = (lambda value, _: value in quiet) if quiet else None
    return (Field(path, Support.BY_NODE, note, test, needs=needs) for path in paths)


def _only_extended(value: Any, _: Document) -> bool:
    return isinstance(value, dict) and not any(
        name in _NATIVE or name.startswith("hugepages-") for name in value
    )


def _only_storage_or_extended(value: Any, container: Document) -> bool:
    return isinstance(value, dict) and _only_extended(
        {name: amount for name, amount in value.items() if name != "ephemeral-storage"}, container
    )


def _of_token(value: Any, mount: Document) -> bool:
    return value is False or mount.get("mountPath") == TOKEN_MOUNT


def _without_command(value: Any, container: Document) -> bool:
    return not container.get("command")  # the agent reports it on the pod: ImageRuntimeUnavailable


_NOT_APPLIED = "agents do not apply it, to processes of the node or to containers from images"
_NO_DNS = "else names are resolved as the machine resolves them"
_NO_VOLUME = "no agent can mount it: the pod waits with CreateContainerConfigError"
_RUN_ONCE = "ephemeral containers run once"
_NO_CLAIMS = "devices of claims are not allocated"
_OTHER_VOLUMES = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)

_SECURITY = (
    *_honoured(
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        note="an agent that is not root cannot run programs as others: such a container waits",
    ),
    *_warned("seLinuxOptions", "appArmorProfile", note=_NOT_APPLIED),
    *_by_node(
        "seccompProfile",
        needs=Feature.IMAGES,
        note="processes of a node have no profile",
        quiet=({"type": "Unconfined"},),
    ),
    *_warned("windowsOptions", note="nodes run Linux"),
)
_PROBE = (
    *_honoured(
        *PROBE_ACTIONS,
        "initialDelaySeconds",
        "periodSeconds",
        "timeoutSeconds",
        "successThreshold",
        "failureThreshold",
        "terminationGracePeriodSeconds",
    ),
)


def _below(path: str, fields: Collection[Field]) -> Iterator[Field]:
    return (replace(field, path=f"{path}.{field.path}") for field in fields)


_CONTAINER = (
    *_honoured("name", "command", "args"),
    Field(
        "image",
        Support.BY_NODE,
        "else the command is looked up on the machine, and the image is not used; without a command "
        "the pod waits with ImageRuntimeUnavailable",
        _without_command,
        needs=Feature.IMAGES,
    ),
    Field(
        "imagePullPolicy", Support.BY_NODE, "with images", covered_by="image", needs=Feature.IMAGES
    ),
    *_honoured("workingDir", note="absolute: a directory of the machine"),
    *_honoured("env", "envFrom"),
    *_honoured("ports"),
    *_warned(
        "ports[].hostPort",
        "ports[].hostIP",
        note="kept free of other pods that ask for it; connections are not forwarded from it",
        quiet=(0, ""),
    ),
    *_honoured("resources.requests", note="places pods, and refuses those that do not fit"),
    Field(
        "resources.limits",
        Support.BY_NODE,
        "CPU, memory and processes are limited where the agent has control groups, ephemeral-storage "
        "everywhere",
        _only_storage_or_extended,
        needs=Feature.LIMITS,
    ),
    *_warned("resources.claims", note=_NO_CLAIMS),
    *_honoured("resizePolicy", note="of the subresource `resize`"),
    *_honoured("restartPolicyRules"),
    *_below("startupProbe", _PROBE),
    *_below("readinessProbe", _PROBE),
    *_below("livenessProbe", _PROBE),
    *_honoured(
        "lifecycle.postStart",
        "lifecycle.preStop",
    ),
    *_warned(
        "lifecycle.postStart.tcpSocket",
        "lifecycle.preStop.tcpSocket",
        note="fails, as in Kubernetes, which takes it for compatibility only",
    ),
    *_honoured("lifecycle.stopSignal"),
    *_below("securityContext", _SECURITY),
    *_honoured("securityContext.capabilities.drop"),
    *_by_node(
        "securityContext.capabilities.add",
        needs=Feature.ROOT,
        note="programs of an agent that is not root have no capabilities",
    ),
    *_by_node(
        "securityContext.privileged",
        needs=Feature.IMAGES,
        note="processes of a node get no further rights by it",
        quiet=(False,),
    ),
    *_by_node(
        "securityContext.readOnlyRootFilesystem",
        needs=Feature.NAMESPACES,
        note="else the root is writable; `/tmp` is the pod's own and stays writable",
        quiet=(False,),
    ),
    *_honoured("securityContext.allowPrivilegeEscalation"),
    *_warned("securityContext.procMount", note=_NOT_APPLIED, quiet=("Default",)),
    *_honoured("stdin", "stdinOnce", "tty", note="for `attach`; `exec` needs none of them"),
    *_honoured(
        "terminationMessagePath",
        note="below the container's root, `$GRANGE_ROOT`; with namespaces at the path itself, too",
    ),
    *_honoured("terminationMessagePolicy"),
    *_honoured(
        "volumeMounts[].name",
        "volumeMounts[].mountPath",
        "volumeMounts[].subPath",
        "volumeMounts[].subPathExpr",
        note="below the container's root, `$GRANGE_ROOT`; with namespaces at the path itself",
    ),
    Field(
        "volumeMounts[].readOnly",
        Support.BY_NODE,
        "else files can be written to",
        _of_token,
        needs=Feature.NAMESPACES,
    ),
    *_warned(
        "volumeMounts[].mountPropagation",
        "volumeMounts[].recursiveReadOnly",
        note="mounts below a volume are neither propagated nor made read-only",
        quiet=("None", "Disabled"),
    ),
    *_warned("volumeDevices", note=_NO_VOLUME),
)

_FIELDS = (
    *_honoured("activeDeadlineSeconds", "restartPolicy", "terminationGracePeriodSeconds"),
    *_honoured(
        "affinity",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "schedulerName",
        "schedulingGates",
        "tolerations",
        "topologySpreadConstraints",
        note="by the scheduler",
    ),
    *_below("containers[]", _CONTAINER),
    *_honoured("containers[].restartPolicy"),
    *_below("initContainers[]", _CONTAINER),
    *_honoured("initContainers[].restartPolicy", note="Always makes it a sidecar"),
    *_honoured(
        "ephemeralContainers",
        note="added to a pod that runs (`kubectl debug`); refused when a pod is created",
    ),
    Field("ephemeralContainers[].restartPolicy", Support.REFUSED, _RUN_ONCE),
    Field("ephemeralContainers[].restartPolicyRules", Support.REFUSED, _RUN_ONCE),
    *_honoured(
        "automountServiceAccountToken",
        "serviceAccountName",
        "serviceAccount",
        note="the directory with the token is in the variable GRANGE_SERVICE_ACCOUNT",
    ),
    *_honoured(
        "hostNetwork",
        note="pods have the machine's network anyway where the node has grange.dev/network=shared, or replicas "
        "where no ReplicationController owns them; containers from images never have a network to themselves",
    ),
    *_by_node(
        "hostIPC",
        "hostPID",
        "shareProcessNamespace",
        needs=Feature.IMAGES,
        note="else each container has its own processes and IPC where the node has "
        "grange.dev/isolation=namespaces, and those of the machine where it has not",
        quiet=(False,),
    ),
    *_warned("hostUsers", note="users are those of the machine, and not mapped", quiet=(True,)),
    *_by_node(
        "hostname",
        "hostnameOverride",
        "setHostnameAsFQDN",
        needs=Feature.NAMESPACES,
        note="else only the variable HOSTNAME has it",
        quiet=(False,),
    ),
    *_honoured("subdomain", note="the pod's name below a headless Service"),
    *_by_node(
        "dnsPolicy", needs=Feature.NAMESPACES, note=_NO_DNS, quiet=("ClusterFirst", "Default")
    ),
    *_by_node("dnsConfig", "hostAliases", needs=Feature.NAMESPACES, note=_NO_DNS),
    *_honoured("enableServiceLinks"),
    Field(
        "imagePullSecrets", Support.BY_NODE, "with images", covered_by="image", needs=Feature.IMAGES
    ),
    *_warned("os", note="nodes run Linux", quiet=({"name": "linux"},)),
    *_honoured("readinessGates"),
    *_warned("resourceClaims", note=_NO_CLAIMS),
    *_warned("resources.claims", note=_NO_CLAIMS),
    *_honoured("resources.requests", note="by the scheduler"),
    Field(
        "resources.limits",
        Support.WARNED,
        "CPU, memory and storage are not limited",
        _only_extended,
    ),
    *_honoured(
        "runtimeClassName",
        note="`process`: the pod's programs are the machine's, images or not; `cri`: containers from "
        "images, or it waits; a pod with another name waits",
    ),
    *_warned(
        "schedulingGroup",
        note="gangs are named by the label scheduling.x-k8s.io/pod-group",
    ),
    *_below("securityContext", _SECURITY),
    *_by_node(
        "securityContext.fsGroup",
        "securityContext.supplementalGroups",
        needs=Feature.ROOT,
        note="else programs have the groups of the user who runs the agent",
    ),
    *_honoured("securityContext.fsGroupChangePolicy", note="volumes are changed at each start"),
    *_honoured(
        "securityContext.supplementalGroupsPolicy",
        note="Strict for processes; containers from images have the groups of the image's user as well",
    ),
    *_warned(
        "securityContext.seLinuxChangePolicy",
        "securityContext.sysctls",
        note=_NOT_APPLIED,
    ),
    *_honoured(
        "volumes[].name",
        "volumes[].configMap",
        "volumes[].downwardAPI",
        "volumes[].emptyDir",
        "volumes[].hostPath",
        "volumes[].projected",
        "volumes[].secret",
    ),
    *_warned(
        "volumes[].emptyDir.medium",
        note="Memory is honoured; volumes of huge pages are on disk",
        quiet=("", "Memory"),
    ),
    *_warned(
        "volumes[].projected.sources[].clusterTrustBundle",
        "volumes[].projected.sources[].podCertificate",
        note=_NO_VOLUME,
    ),
    *_warned(*(f"volumes[].{name}" for name in _OTHER_VOLUMES), note=_NO_VOLUME),
)

FIELDS: dict[str, Field] = {field.path: field for field in _FIELDS}
"""Path to entry."""
