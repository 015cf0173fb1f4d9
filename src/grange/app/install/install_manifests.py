"""The manifests of ``grange install``: a pure function from what was asked for to documents."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from grange import __version__
from grange.api import crds, names, user_roles
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.app.install import rbac
from grange.base.errors import GrangeError
from grange.machines.bootstrap.agent_package import AgentPackage

NAMESPACE = "grange-system"
"""Where the controllers run unless another namespace is named; made along with them."""

GROUPS = {"kubeflow": "kubeflow.org"}
"""What may be left out: groups of kinds that a cluster may have from others, with a controller."""

SCHEDULER_NAME = "grange"
"""Pods with this ``schedulerName`` are ours in a cluster that has its own scheduler."""

_NAME = "grange-controllers"
_LABELS = {"app.kubernetes.io/name": "grange", "app.kubernetes.io/managed-by": "grange-install"}
_SELECTED = {"app.kubernetes.io/name": "grange", "app.kubernetes.io/component": "controllers"}
_RBAC = "rbac.authorization.k8s.io"
_USER = 65532  # an unprivileged user; images that name none would run as root
_GRACE_S = 30
_METRICS_PORT = 10258
_NEWEST = AgentPackage()


class InvalidInstallPlan(GrangeError):
    """What was asked for cannot be installed; the message names the option and the remedy."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What is to be installed.

    Attributes:
        namespace: where the controllers run.
        image: of a container that has ``grange`` on its path; empty where none is started.
        replicas: how many processes share the work.
        controllers: which of ``rbac.CONTROLLERS`` they run.
        without: which of ``GROUPS`` are left to others: neither kinds nor controllers of them.
        package: what the machines of node pools install.
    """

    namespace: str = NAMESPACE
    image: str = ""
    replicas: int = 2
    controllers: tuple[str, ...] = rbac.CONTROLLERS
    without: tuple[str, ...] = ()
    package: AgentPackage = _NEWEST

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        problem = names.check_dns_label(self.namespace)
        if problem is not None:
            raise InvalidInstallPlan(f"--namespace {self.namespace}: {problem}")
        if self.image != self.image.strip() or any(map(str.isspace, self.image)):
            raise InvalidInstallPlan(
                f"--image {self.image!r}: a reference to an image has no blanks"
            )
        known = ", ".join(rbac.CONTROLLERS)
        for name in self.controllers:
            if name not in rbac.CONTROLLERS:
                raise InvalidInstallPlan(
                    f"--controllers {name}: of our controllers a cluster of Kubernetes can use "
                    f"{known}; what else there is to do it does itself"
                )
        for name in self.without:
            if name not in GROUPS:
                raise InvalidInstallPlan(f"--without {name}: use one of {', '.join(GROUPS)}")
        if not self.running:
            raise InvalidInstallPlan(f"--controllers: name one at least of {known}")
        if self.package != _NEWEST and "machines" not in self.running:
            raise InvalidInstallPlan(
                "--agent-version, --agent-url: no machine is installed without the controller machines"
            )

    @property
    def running(self) -> tuple[str, ...]:
        """The controllers, but for those of kinds that are left to others."""
        return tuple(
            name
            for name in self.controllers
            if not any(self._is_left_out(item.kind) for item in rbac.PERMISSIONS[name])
        )

    def _is_left_out(self, info: AnyKind) -> bool:
        return info.group in {GROUPS[name] for name in self.without}

    @property
    def kinds(self) -> list[AnyKind]:
        """Our kinds, but for those that only controllers which are left out would look at."""
        wanted = {permission.kind for permission in self.permissions}
        left_out = {permission.kind for permission in rbac.of(rbac.CONTROLLERS)} - wanted
        return [
            info
            for info in crds.installable(BUILT_IN)
            if info not in left_out and not self._is_left_out(info)
        ]

    @property
    def permissions(self) -> list[rbac.Permission]:
        """What the controllers may do."""
        return [*rbac.of(self.running)]


def documents(plan: InstallPlan, part: str = "") -> list[Document]:
    """What to apply, in the order in which it is needed.

    Args:
        plan: what is to be installed.
        part: one of ``PARTS``; empty for everything.

    Raises:
        InvalidInstallPlan: the Deployment is asked for, and no image.
    """
    makers = [PARTS[part]] if part else PARTS.values()
    return [document for make in makers for document in make(plan)]


def _crds(plan: InstallPlan) -> Iterator[Document]:
    """Our kinds."""
    for info in plan.kinds:
        document = crds.definition(info)
        document["metadata"]["labels"] = dict(_LABELS)
        yield document


def _rbac(plan: InstallPlan) -> Iterator[Document]:
    """Who the controllers are, and what they and the cluster's people may do."""
    if (
        plan.namespace == NAMESPACE
    ):  # other namespaces exist already, and deleting our manifests must not delete them
        yield _object("v1", "Namespace", NAMESPACE)
    account = _object("v1", "ServiceAccount", _NAME, plan.namespace)
    yield {**account, "automountServiceAccountToken": False}
    for where in rbac.namespaces(plan.permissions):
        kind = "Role" if where else "ClusterRole"
        granted = [permission for permission in plan.permissions if permission.namespace == where]
        yield {**_object(f"{_RBAC}/v1", kind, _NAME, where), "rules": rbac.rules(granted)}
        yield {
            **_object(f"{_RBAC}/v1", f"{kind}Binding", _NAME, where),
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": _NAME},
            "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": plan.namespace}],
        }
    yield from user_roles.roles(plan.kinds, _LABELS)


def _deployment(plan: InstallPlan) -> Iterator[Document]:
    """The controllers."""
    if not plan.image:
        raise InvalidInstallPlan(
            "--image: name the image to run. Grange publishes none: build one of this version "
            f"({__version__}) as docs/how-to/kubernetes.md describes, push it where your nodes can fetch it, and "
            "name it here; --only crds and --only rbac need none"
        )
    yield {
        **_object("policy/v1", "PodDisruptionBudget", _NAME, plan.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTED)}},
    }
    yield {
        **_object("apps/v1", "Deployment", _NAME, plan.namespace),
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": dict(_SELECTED)},
            # Another member may come before one goes: the farm redistributes the work each time.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {
                "metadata": {"labels": {**_LABELS, **_SELECTED}},
                "spec": _pod(plan),
            },
        },
    }


PARTS: Mapping[str, Callable[[InstallPlan], Iterator[Document]]] = {
    "crds": _crds,
    "rbac": _rbac,
    "deployment": _deployment,
}


def _object(version: str, kind: str, name: str, namespace: str = "") -> Document:
    meta: Document = {"name": name, "labels": dict(_LABELS)}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _pod(plan: InstallPlan) -> Document:
    """One member of the farm."""
    return {
        "serviceAccountName": _NAME,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": dict(_SELECTED)},
                        },
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(_SELECTED)},
            }
        ],
        "containers": [_container(plan)],
    }


def _container(plan: InstallPlan) -> Document:
    arguments = ["controllers", f"--only={','.join(plan.running)}"]
    if "scheduler" in plan.running:
        arguments.append(f"--scheduler-name={SCHEDULER_NAME}")
    arguments += [f"--metrics-listen=0.0.0.0:{_METRICS_PORT}"]
    if plan.package.version:
        arguments.append(f"--agent-version={plan.package.version}")
    if plan.package.url:
        arguments.append(f"--agent-url={plan.package.url}")
    arguments += ["--member=$(POD_NAME)", "--log-level=info", "--log-json"]
    webhook = {"name": "grange-alerts", "key": "webhook-url", "optional": True}
    return {
        "name": "controllers",
        "image": plan.image,
        "command": ["grange"],
        "args": arguments,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOME", "value": "/"},  # no kubeconfig of the image's is looked for
            {"name": "GRANGE_ALERT_WEBHOOK", "valueFrom": {"secretKeyRef": webhook}},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": _METRICS_PORT},
            "initialDelaySeconds": 15,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": _METRICS_PORT},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
