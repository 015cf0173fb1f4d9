"""What the adapters of kubeflow.org/v1 have in common."""

from collections.abc import Mapping

from grange.api.kinds.kubeflow import KubeflowFramework, KubeflowRole
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.model import JobRole, RestartPolicy

MANAGERS = ("kubeflow.org/training-operator",)
"""Values of ``managedBy`` of published manifests: we stand in for that operator."""

_PREFIX = "training.kubeflow.org"


def labels(operator: str) -> JobLabels:
    """The labels that the training operator gives to pods.

    Args:
        operator: its name for the controller of the kind.
    """
    return JobLabels(
        operator=(f"{_PREFIX}/operator-name", operator),
        job=f"{_PREFIX}/job-name",
        role=f"{_PREFIX}/replica-type",
        index=f"{_PREFIX}/replica-index",
        leader=f"{_PREFIX}/job-role",
    )


def spelled(
    framework: KubeflowFramework, specs: Mapping[str, KubeflowRole]
) -> dict[str, KubeflowRole]:
    """The roles under their canonical names, in the order of the kind."""
    found = {framework.rules.canonical(name): role for name, role in specs.items()}
    return {name: found[name] for name in framework.rules.roles if name in found}


def role(
    framework: KubeflowFramework,
    name: str,
    spec: KubeflowRole,
    *,
    least: int | None = None,
    most: int | None = None,
) -> JobRole:
    """A type of replica as a role.

    Args:
        framework: of the kind.
        name: canonical.
        spec: of the type.
        least: the fewest pods, of an elastic role.
        most: the most pods, of an elastic role.
    """
    return JobRole(
        name=name,
        replicas=spec.replicas,
        template=spec.template,
        restart_policy=RestartPolicy(spec.restart_policy or framework.restart_policy),
        min_replicas=least,
        max_replicas=most,
        leader=name in framework.rules.leaders,
        container=framework.rules.container,
        completes=name not in framework.servers,
    )
