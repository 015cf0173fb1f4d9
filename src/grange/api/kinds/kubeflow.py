"""What the kinds of kubeflow.org/v1 have in common: roles, schema, defaults, columns and scale."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from grange.api import names, schema_builder, template_warnings
from grange.api.fields import lookup
from grange.api.job_status import JobStatus
from grange.api.kinds import job_schema, run_policy
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo, Scaling
from grange.api.validation import kubeflow_jobs
from grange.api.validation.kubeflow_jobs import KubeflowRules

GROUP = "kubeflow.org"
VERSION = "v1"
COLUMNS = (
    Column("State", cells.text("status.phase", "Pending"), description="How far it is."),
    Column(
        "Restarts",
        cells.integer("status.restarts"),
        type="integer",
        description="Restarts that are charged.",
        priority=1,
    ),
    Column("Queue", cells.text("status.queue"), description="Whose quota it uses.", priority=1),
)


class KubeflowRole(View, frozen=True):
    """One type of replica.

    Attributes:
        replicas: how many.
        restart_policy: what happens to a pod that fails; empty: the default of the kind.
        template: the pod to copy: metadata and spec, as a full document.
    """

    replicas: int = 1
    restart_policy: str = ""
    template: Document = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KubeflowFramework:
    """What differs between the kinds.

    Attributes:
        rules: of the roles.
        port_name: of the port that members of the job reach each other by.
        port: its number, where the template has none of that name.
        restart_policy: where a role names none.
        servers: roles that do not end by themselves.
    """

    rules: KubeflowRules
    port_name: str
    port: int
    restart_policy: str
    servers: tuple[str, ...] = ()

    def complete(self, document: Document) -> None:
        """Put the port into the framework's container where it is missing, in place."""
        for role in _roles(document, self.rules.path).values():
            container = self._container(role)
            if container is None:
                continue
            ports = container.get("ports") or []
            if all(port.get("name") != self.port_name for port in ports):
                # The list may be shared with the object as it was.
                container["ports"] = [
                    *ports,
                    {"name": self.port_name, "containerPort": self.port},
                ]

    def _container(self, role: Document) -> Document | None:
        containers: list[Document] = lookup(role, "template.spec.containers") or []
        for container in containers:
            if container.get("name") == self.rules.container:
                return container
        return containers[0] if containers else None

    def review(self, document: Document, old: Document | None, now: datetime) -> Iterable[str]:
        """Warnings about what has no effect in the templates."""
        path = self.rules.path
        before = _roles(old, path) if old else {}
        yield from template_warnings.warnings(path, _roles(document, path), before)
        if lookup(document, "spec.elasticPolicy.metrics"):
            yield (
                "spec.elasticPolicy.metrics: no effect: no HorizontalPodAutoscaler is made; make "
                "one that scales this object"
            )

    def scaling(self, role: str = "Worker") -> Scaling:
        """The scale of the workers, however the type is spelled."""
        selector = f"status.replicaStatuses.{kubeflow_jobs.WORKER}.selector"
        return Scaling(
            replicas=f"{self.rules.path}.{role}.replicas",
            current=f"status.replicaStatuses.{kubeflow_jobs.WORKER}.active",
            selector=lambda document: lookup(document, selector) or "",
            selector_path=selector,
            choose=lambda document: self.scaling(self._worker(document)),
        )

    def _worker(self, document: Document) -> str:
        roles = _roles(document, self.rules.path)
        worker = kubeflow_jobs.WORKER
        return next((name for name in roles if name.lower() == worker.lower()), worker)


def _roles(document: Document, path: str) -> dict[str, Document]:
    found = lookup(document, path)
    return found if isinstance(found, dict) else {}


def definitions(
    name: str, description: str, framework: KubeflowFramework, spec: Mapping[str, Document]
) -> dict[str, Document]:
    """The schema of a kind.

    Args:
        name: of its definition.
        description: of the kind, in a sentence.
        framework: of the kind.
        spec: the fields of ``spec`` that other kinds do not have.
    """
    field = framework.rules.field
    return {
        **run_policy.definitions(name, placement=False),
        **_status_definitions(name),
        f"{name}ReplicaSpec": {
            "type": "object",
            "required": ["template"],
            "properties": {
                "replicas": schema_builder.whole(
                    "How many pods; their indexes count from 0.",
                    default=1,
                    **{schema_builder.RULED: {"minimum": 0}},
                ),
                "restartPolicy": schema_builder.text(
                    "What happens to a pod that fails. ExitCode restarts it after a signal or exit "
                    "code 138, and fails the job otherwise.",
                    enum=list(job_schema.RESTART_POLICIES),
                    default=framework.restart_policy,
                ),
                "template": job_schema.template(),
            },
        },
        **schema_builder.definitions(
            name,
            GROUP,
            VERSION,
            description,
            required=(field,),
            spec={
                field: job_schema.roles(
                    f"{name}ReplicaSpec",
                    f"The pods by type: {', '.join(framework.rules.roles)}; case does not matter.",
                ),
                "runPolicy": schema_builder.reference(
                    f"{name}RunPolicy",
                    "When the job begins and ends, and what remains of it.",
                    default={},
                ),
                **spec,
            },
            status=job_schema.status_fields(name),
        ),
    }


def _status_definitions(name: str) -> dict[str, Document]:
    found = job_schema.status_definitions(name)
    role = found[f"{name}RoleStatus"]
    selector = schema_builder.reference(
        f"{schema_builder.META}.LabelSelector", "Written by other controllers; kept."
    )
    found[f"{name}RoleStatus"] = {
        **role,
        "properties": {**role["properties"], "labelSelector": selector},
    }
    return found


def kind_info(
    kind: str,
    plural: str,
    view: type[Any],
    schema: dict[str, Document],
    framework: KubeflowFramework,
    validate: Callable[..., Any],
) -> KindInfo[Any]:
    """A kind of kubeflow.org/v1.

    Args:
        kind: CamelCase name.
        plural: the resource in paths.
        view: the typed view.
        schema: what ``definitions`` made.
        framework: of the kind.
        validate: its rules.
    """
    name = next(key for key in schema if key.endswith(f".{kind}"))
    return KindInfo(
        group=GROUP,
        version=VERSION,
        kind=kind,
        plural=plural,
        view=view,
        schema=name,
        definitions=schema,
        categories=("all", "grange"),
        columns=COLUMNS,
        scale=framework.scaling(),
        default=framework.complete,
        validate=validate,
        review=framework.review,
        name_rule=names.check_dns_1035_label,
    )


class KubeflowJob(Resource, frozen=True):
    """A job of kubeflow.org, without its spec."""

    status: JobStatus = msgspec.field(default_factory=JobStatus)
