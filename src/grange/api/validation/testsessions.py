"""Rules of TestSessions beyond their schema."""

from grange.api import names
from grange.api.meta import Document
from grange.api.session_components import component_lists, template_of
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.role_templates import check_template

PODS_MAX = 10_000
"""Pods that a session may have."""

_SHORT = ("image", "command", "args", "resources", "readinessProbe")
_AT_LEAST_ONE = (
    "timeouts.queueSeconds",
    "timeouts.provisionSeconds",
    "timeouts.runSeconds",
    "timeouts.collectSeconds",
    "timeouts.cleanupSeconds",
)
_NOT_NEGATIVE = (
    "retries.infrastructure",
    "retries.failure",
    "evidence.retentionSeconds",
    "evidence.maxArtifactBytes",
    "ttlSecondsAfterFinished",
)
_CHANGEABLE = frozenset({"cancel", "priority", "ttlSecondsAfterFinished", "timeouts", "evidence"})


def check(document: Document, old: Document | None) -> list[Cause]:
    """What is wrong with a session, on creation (``old`` is None) and on update."""
    faults = Faults()
    spec = document.get("spec") or {}
    _check_components(document, spec, faults)
    _check_numbers(spec, faults)
    for index, name in enumerate(spec.get("semaphores") or []):
        faults.named(f"spec.semaphores[{index}]", name, names.check_dns_label(name))
    if name := spec.get("testName"):
        faults.named("spec.testName", name, names.check_label_value(name))
    if group := (spec.get("concurrency") or {}).get("group"):
        faults.named("spec.concurrency.group", group, names.check_label_value(group))
    if old is not None:
        _check_changes(spec, old.get("spec") or {}, faults)
    return faults.causes


def _check_components(document: Document, spec: Document, faults: Faults) -> None:
    session = (document.get("metadata") or {}).get("name") or ""
    if not isinstance(spec.get("driver"), dict):
        faults.required("spec.driver", "its outcome is the verdict; a session has exactly one")
    for role in spec.get("roles") or {}:
        faults.named(f"spec.roles[{role}]", role, names.check_dns_label(role))
        if role in ("driver", "server", "client"):
            faults.forbidden(f"spec.roles[{role}]", "use the field of this role")
    seen: dict[str, str] = {}
    total = 0
    for path, component in component_lists(spec):
        count = component.get("count", 1)
        total += max(count, 0)
        if path == "spec.driver" and count != 1:
            faults.invalid(f"{path}.count", count, "must be 1: a session has exactly one driver")
        elif count < 1:
            faults.invalid(f"{path}.count", count, "must be greater than or equal to 1")
        name = component.get("name") or _usual_name(path, spec)
        if name in seen:
            faults.duplicate(f"{path}.name", name)
        seen[name] = path
        _check_pod_name(session, name, count, path, faults)
        _check_component(component, path, faults)
    if total > PODS_MAX:
        faults.invalid("spec", total, f"a session may have {PODS_MAX} pods in all")


def _usual_name(path: str, spec: Document) -> str:
    field, _, index = path.removeprefix("spec.").partition("[")
    if field == "driver":
        return field
    if field == "roles":
        role, _, index = index.partition("][")
        listed = (spec.get("roles") or {}).get(role) or []
    else:
        role, listed = field.removesuffix("s"), spec.get(field) or []
    return role if len(listed) == 1 else f"{role}-{index.removesuffix(']')}"


def _check_pod_name(session: str, name: str, count: int, path: str, faults: Faults) -> None:
    last = f"{session}-{name}" + (f"-{count - 1}" if count > 1 else "")
    fault = names.check_dns_label(name)
    if fault is None and session and len(last) > names.DNS_LABEL_MAX:
        fault = (
            f'the pod "{last}" would have a name of {len(last)} characters, and a name of a host '
            f"has {names.DNS_LABEL_MAX} at most; shorten the name by {len(last) - names.DNS_LABEL_MAX}"
        )
    if fault is not None:
        faults.invalid(f"{path}.name", name, fault)


def _check_component(component: Document, path: str, faults: Faults) -> None:
    if pool := component.get("pool"):
        faults.named(f"{path}.pool", pool, names.check_label_value(pool))
    port = component.get("port", 1)
    if not 1 <= port <= 65535:
        faults.invalid(f"{path}.port", port, "must be between 1 and 65535, inclusive")
    for index, pattern in enumerate(component.get("artifacts") or []):
        if pattern.startswith("/") or ".." in pattern.split("/"):
            message = "must be relative to the directory of artifacts and stay within it"
            faults.invalid(f"{path}.artifacts[{index}]", pattern, message)
    if component.get("template") is not None:
        for field in _SHORT:
            if component.get(field):
                faults.forbidden(f"{path}.{field}", "the pod is given in full by template")
        check_template(component["template"], f"{path}.template", faults)
    elif not component.get("image") and not component.get("command"):
        faults.required(f"{path}.command", "name a command, an image or a template")
    else:
        check_template(template_of(component), path, faults)


def _check_numbers(spec: Document, faults: Faults) -> None:
    for fields, least in ((_AT_LEAST_ONE, 1), (_NOT_NEGATIVE, 0)):
        for field in fields:
            holder, _, leaf = field.rpartition(".")
            value = (spec.get(holder) or {} if holder else spec).get(leaf)
            if isinstance(value, int) and value < least:
                faults.invalid(f"spec.{field}", value, f"must be greater than or equal to {least}")
    metrics = (spec.get("evidence") or {}).get("metrics") or []
    seen: set[str] = set()
    for index, metric in enumerate(metrics):
        if metric.get("name") in seen:
            faults.duplicate(f"spec.evidence.metrics[{index}].name", metric.get("name"))
        seen.add(metric.get("name"))
        threshold = metric.get("threshold", 0.0)
        if not 0 <= threshold <= 1:
            message = "must be between 0 and 1: a fraction, where 0.1 is 10 %"
            faults.invalid(f"spec.evidence.metrics[{index}].threshold", threshold, message)


def _check_changes(spec: Document, before: Document, faults: Faults) -> None:
    for field in sorted({*spec, *before} - _CHANGEABLE):
        if spec.get(field) != before.get(field):
            faults.forbidden(f"spec.{field}", "field is immutable: create another session")
    if before.get("cancel") == "Now" and spec.get("cancel") != "Now":
        faults.forbidden("spec.cancel", "a cancelled session cannot go on")
