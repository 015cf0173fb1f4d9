"""Rules of the jobs of kubeflow.org/v1: which roles they have, and what their pods have to be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grange.api.fields import entry, lookup
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation import job_updates, role_templates, run_policies
from grange.api.validation.causes import Faults
from grange.api.validation.podspec import check_port_number

WORKER = "Worker"
_POLICY = "spec.runPolicy"
_PROCESSES = ("auto", "cpu", "gpu")

Roles = Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KubeflowRules:
    """What the rules have to know of a kind.

    Attributes:
        field: of ``spec``, where the roles are.
        roles: the types that there are, as they are spelled.
        leaders: types of which there is one pod at most, in all of them together.
        single: other types of which there is one pod at most.
        container: the name that one container of every template has.
    """

    field: str
    roles: tuple[str, ...]
    leaders: tuple[str, ...]
    single: tuple[str, ...]
    container: str

    @property
    def path(self) -> str:
        """The path of the roles."""
        return f"spec.{self.field}"

    def canonical(self, name: str) -> str | None:
        """A type as it is spelled here, whatever its case; None where there is no such type."""
        return next((role for role in self.roles if role.lower() == name.lower()), None)


def check(rules: KubeflowRules, document: Document, old: Document | None, faults: Faults) -> None:
    """The rules of all kinds; elastic roles are those of workers that may come and go."""
    spec = document.get("spec") or {}
    roles: Roles = spec.get(rules.field) or {}
    before: Roles = (lookup(old, rules.path) or {}) if old else {}
    job = (document.get("metadata") or {}).get("name") or ""
    if not roles:
        listed = ", ".join(rules.roles)
        faults.required(rules.path, f"name the pods of one type at least: {listed}")
    else:
        _check_roles(rules, job, roles, before, faults)
    pods = sum(max(role.get("replicas", 1), 0) for role in roles.values())
    run_policies.check(spec.get("runPolicy") or {}, _POLICY, pods, faults)
    if old is not None:
        elastic = _elastic_names(rules, document) & _elastic_names(rules, old)
        job_updates.check_update(document, old, rules.field, elastic, faults)


def fixed_parts(rules: KubeflowRules, document: Document) -> dict[str, Any]:
    """The parts of the spec that may not change while the job runs, by their paths."""
    elastic = _elastic_names(rules, document)
    return job_updates.fixed_parts(document["spec"], rules.field, elastic)


def _elastic_names(rules: KubeflowRules, document: Document) -> set[str]:
    """The names of roles whose pods may be more or fewer while the job runs."""
    spec = document.get("spec") or {}
    if not spec.get("enableDynamicWorker") and spec.get("elasticPolicy") is None:
        return set()
    roles: Roles = spec.get(rules.field) or {}
    return {name for name in roles if rules.canonical(name) == WORKER}


def _check_roles(
    rules: KubeflowRules, job: str, roles: Roles, before: Roles, faults: Faults
) -> None:
    total = 0
    spelled: dict[str, str] = {}
    for name, role in roles.items():
        path = entry(rules.path, name)
        kind = rules.canonical(name)
        if kind is None:
            faults.not_supported(path, name, rules.roles)
            continue
        if spelled.setdefault(kind, name) != name:
            faults.duplicate(path, kind)
        replicas = role.get("replicas", 1)
        if role_templates.check_replicas(replicas, f"{path}.replicas", faults):
            total += replicas
            role_templates.check_pod_name(job, kind, replicas, faults)
        if kind in (*rules.leaders, *rules.single) and replicas > 1:
            faults.invalid(f"{path}.replicas", replicas, "must be 1 or 0: there is one at most")
        template = role.get("template")
        if not template:
            faults.required(f"{path}.template", "specify what the pods run")
        # An unchanged template was checked when it was written.
        elif template != (before.get(name) or {}).get("template"):
            role_templates.check_template(template, f"{path}.template", faults)
            _check_containers(template, f"{path}.template.spec", rules.container, faults)
    leaders = [name for kind, name in spelled.items() if kind in rules.leaders]
    for name in leaders[1:]:
        message = f'may not be given with "{leaders[0]}": a job has one leader'
        faults.forbidden(entry(rules.path, name), message)
    role_templates.check_total(total, rules.path, faults)
    if total == 0 and not faults.causes:
        faults.invalid(rules.path, total, "must have one pod at least in all types together")


def _check_containers(template: Document, path: str, wanted: str, faults: Faults) -> None:
    spec = template.get("spec") or {}
    containers = spec.get("containers") or ()
    for index, container in enumerate(containers):
        if not container.get("image"):
            faults.required(f"{path}.containers[{index}].image", "name the image that is run")
    if containers and all(container.get("name") != wanted for container in containers):
        faults.required(f"{path}.containers", f'one container must have the name "{wanted}"')


def check_elastic(document: Document, workers_path: str, faults: Faults) -> None:
    """The rules of ``elasticPolicy`` and of ``nprocPerNode``.

    Args:
        document: a PyTorchJob.
        workers_path: of the mapping of roles.
        faults: where they are added.
    """
    spec = document.get("spec") or {}
    processes = spec.get("nprocPerNode")
    if processes is not None and not _is_process_count(processes):
        message = f"must be a number of 1 or more, or one of {', '.join(_PROCESSES)}"
        faults.invalid("spec.nprocPerNode", processes, message)
    policy = spec.get("elasticPolicy")
    if policy is None:
        return
    path = "spec.elasticPolicy"
    workers = _role(spec, workers_path, WORKER)
    if workers is None:
        faults.required(entry(workers_path, WORKER), "an elastic job has workers")
    else:
        _check_bounds(policy, workers.get("replicas", 1), path, faults)
    if (port := policy.get("rdzvPort")) is not None:
        check_port_number(port, f"{path}.rdzvPort", faults)
    run_policies.check_not_negative(policy, "maxRestarts", path, faults)
    if (number := policy.get("nProcPerNode")) is not None:
        if number < 1:
            faults.invalid(f"{path}.nProcPerNode", number, "must be greater than or equal to 1")
        if processes is not None:
            faults.forbidden(f"{path}.nProcPerNode", "may not be set with spec.nprocPerNode")
    for index, item in enumerate(policy.get("rdzvConf") or ()):
        for field in ("key", "value"):
            value = item.get(field) or ""
            at = f"{path}.rdzvConf[{index}].{field}"
            if not value:
                faults.required(at)
            elif {",", "="} & {*value}:
                faults.invalid(at, value, "must not contain ',' or '=', which separate options")


def _role(spec: Document, path: str, wanted: str) -> dict[str, Any] | None:
    roles: Roles = spec.get(path.removeprefix("spec.")) or {}
    return next((role for name, role in roles.items() if name.lower() == wanted.lower()), None)


def _check_bounds(policy: dict[str, Any], replicas: int, path: str, faults: Faults) -> None:
    least, most = policy.get("minReplicas"), policy.get("maxReplicas")
    if least is not None and not 1 <= least <= max(replicas, 1):
        message = f"must be between 1 and the replicas of Worker, {replicas}"
        faults.invalid(f"{path}.minReplicas", least, message)
    if most is not None and not max(replicas, 1) <= most <= role_templates.REPLICAS_MAX:
        message = (
            f"must be between the replicas of Worker, {replicas}, and {role_templates.REPLICAS_MAX}"
        )
        faults.invalid(f"{path}.maxReplicas", most, message)


def _is_process_count(text: str) -> bool:
    return text in _PROCESSES or (text.isascii() and text.isdigit() and int(text) >= 1)


def causes(rules: KubeflowRules, document: Document, old: Document | None) -> list[Cause]:
    """Every rule that holds for all kinds."""
    faults = Faults()
    check(rules, document, old, faults)
    return faults.causes
