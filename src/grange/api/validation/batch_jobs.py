"""Rules of the Job and CronJob of batch/v1, as Kubernetes has them."""

from collections.abc import Sequence
from typing import Any

from grange.api import index_ranges, names, timestamps
from grange.api.cron import InvalidSchedule, parse_schedule, time_zone
from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation import role_templates, run_policies
from grange.api.validation.causes import Faults
from grange.api.validation.gangjob_policies import RULES_MAX, check_exit_codes, container_names
from grange.api.validation.selectors import check_label_selector

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
LEGACY_UID_LABEL = "controller-uid"
LEGACY_NAME_LABEL = "job-name"

INDEXED = "Indexed"
COMPLETION_MODES = ("NonIndexed", INDEXED)
REPLACEMENTS = ("TerminatingOrFailed", "Failed")
FAILURE_ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")
CONCURRENCY = ("Allow", "Forbid", "Replace")
POD_RESTARTS = ("OnFailure", "Never")
CRONJOB_NAME_MAX = names.DNS_LABEL_MAX - 11  # a hyphen and the minute come after it

_IMMUTABLE = "field is immutable"
_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_FIXED = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
    "selector",
    "manualSelector",
    "podReplacementPolicy",
)
_SCHEDULING = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
_CONTAINER_LISTS = ("containers", "initContainers")


def check_job_name(name: str) -> str | None:
    """The name of a Job, which is the value of a label, too: a message, or None."""
    if len(name) > names.DNS_LABEL_MAX:
        return f"must be no more than {names.DNS_LABEL_MAX} characters: pods have it as a label"
    return names.check_dns_subdomain(name)


def check_cronjob_name(name: str) -> str | None:
    """The name of a CronJob, which leaves room for those of its Jobs: a message, or None."""
    if len(name) > CRONJOB_NAME_MAX:
        return f"must be no more than {CRONJOB_NAME_MAX} characters: names of Jobs are made of it"
    return names.check_dns_subdomain(name)


def check_job(document: Document, old: Document | None) -> list[Cause]:
    """Every rule of a Job, for create (old is None) and update."""
    faults = Faults()
    spec = document.get("spec")
    if spec is None:
        faults.required("spec.template", "specify what the pods run")
        return faults.causes
    before = (old.get("spec") or {}) if old else {}
    check_spec(spec, "spec", faults, known_template=before.get("template"))
    _check_pod_names(document, spec, faults)
    if old is not None:
        _check_update(document, old, faults)
    else:
        _check_selector(document, spec, faults)
    return faults.causes


def check_spec(
    spec: dict[str, Any], path: str, faults: Faults, *, known_template: Document | None = None
) -> None:
    """The rules of a Job's spec, also within a CronJob.

    Args:
        spec: has passed its schema; defaults may be missing.
        path: of the spec.
        faults: where they are added.
        known_template: one that was checked before.
    """
    for field in _NUMBERS:
        run_policies.check_not_negative(spec, field, path, faults)
    for field in ("parallelism", "completions"):
        if (spec.get(field) or 0) > role_templates.REPLICAS_MAX:
            message = f"must be less than or equal to {role_templates.REPLICAS_MAX}"
            faults.invalid(f"{path}.{field}", spec[field], message)
    run_policies.check_manager(spec.get("managedBy"), f"{path}.managedBy", faults)
    for field, choices in (
        ("completionMode", COMPLETION_MODES),
        ("podReplacementPolicy", REPLACEMENTS),
    ):
        if spec.get(field) is not None and spec[field] not in choices:
            faults.not_supported(f"{path}.{field}", spec[field], choices)
    _check_indexes(spec, path, faults)
    _check_template(spec.get("template") or {}, path, faults, known_template)
    if (selector := spec.get("selector")) is not None:
        check_label_selector(selector, f"{path}.selector", faults)
    if (policy := spec.get("podFailurePolicy")) is not None:
        _check_failure_policy(policy, spec, path, faults)
    if (success := spec.get("successPolicy")) is not None:
        _check_success_policy(success, spec, f"{path}.successPolicy", faults)


def _check_template(template: Document, path: str, faults: Faults, known: Document | None) -> None:
    if not template:
        faults.required(f"{path}.template", "specify what the pods run")
    elif template != known:
        role_templates.check_template(template, f"{path}.template", faults)
        restart = (template.get("spec") or {}).get("restartPolicy")
        at = f"{path}.template.spec.restartPolicy"
        if restart is None:
            faults.required(at, 'valid values: "OnFailure", "Never"')
        elif restart not in POD_RESTARTS:
            faults.not_supported(at, restart, POD_RESTARTS)


def _is_indexed(spec: dict[str, Any]) -> bool:
    return spec.get("completionMode") == INDEXED


def _check_indexes(spec: dict[str, Any], path: str, faults: Faults) -> None:
    indexed = _is_indexed(spec)
    if indexed and spec.get("completions") is None:
        faults.required(f"{path}.completions", "when completion mode is Indexed")
    if spec.get("backoffLimitPerIndex") is not None and not indexed:
        value = spec["backoffLimitPerIndex"]
        faults.invalid(f"{path}.backoffLimitPerIndex", value, "requires indexed completion mode")
    failed = spec.get("maxFailedIndexes")
    if failed is None:
        return
    if spec.get("backoffLimitPerIndex") is None:
        faults.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if failed > (spec.get("completions") or 0):
        message = "must be less than or equal to completions"
        faults.invalid(f"{path}.maxFailedIndexes", failed, message)


def _check_failure_policy(
    policy: dict[str, Any], spec: dict[str, Any], path: str, faults: Faults
) -> None:
    template = spec.get("template") or {}
    if lookup(template, "spec.restartPolicy") == "OnFailure":
        message = 'only "Never" is supported when podFailurePolicy is specified'
        faults.invalid(f"{path}.template.spec.restartPolicy", "OnFailure", message)
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None and replacement != "Failed":
        message = 'only "Failed" is supported when podFailurePolicy is specified'
        faults.invalid(f"{path}.podReplacementPolicy", replacement, message)
    rules = policy.get("rules") or ()
    at = f"{path}.podFailurePolicy.rules"
    if len(rules) > RULES_MAX:
        faults.too_long(at, f"must have at most {RULES_MAX} items")
    containers = [container_names({"template": template})]
    for index, rule in enumerate(rules[:RULES_MAX]):
        _check_failure_rule(rule, spec, f"{at}[{index}]", containers, faults)


def _check_failure_rule(
    rule: dict[str, Any],
    spec: dict[str, Any],
    path: str,
    containers: Sequence[set[str]],
    faults: Faults,
) -> None:
    action = rule.get("action")
    if action not in FAILURE_ACTIONS:
        faults.not_supported(f"{path}.action", action, FAILURE_ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        message = "requires the backoffLimitPerIndex to be set"
        faults.invalid(f"{path}.action", action, message)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is None and not conditions:
        faults.invalid(
            path, action, "specifying one of onExitCodes and onPodConditions is required"
        )
    if codes is not None and conditions:
        message = "specifying both onExitCodes and onPodConditions is not supported"
        faults.invalid(path, action, message)
    if codes is not None:
        if codes.get("operator") not in ("In", "NotIn"):
            faults.not_supported(
                f"{path}.onExitCodes.operator", codes.get("operator"), ("In", "NotIn")
            )
        check_exit_codes(codes, f"{path}.onExitCodes", containers, faults)
        values = codes.get("values") or []
        if values != sorted(values):
            faults.invalid(f"{path}.onExitCodes.values", values, "must be ordered")
    for index, item in enumerate(conditions or ()):
        at = f"{path}.onPodConditions[{index}]"
        kind, status = item.get("type", ""), item.get("status", "True")
        faults.named(f"{at}.type", kind, names.check_qualified_name(kind))
        if status not in ("True", "False", "Unknown"):
            faults.not_supported(f"{at}.status", status, ("False", "True", "Unknown"))


def _check_success_policy(
    policy: dict[str, Any], spec: dict[str, Any], path: str, faults: Faults
) -> None:
    if not _is_indexed(spec):
        faults.invalid(path, sorted(policy), "requires indexed completion mode")
        return
    rules = policy.get("rules") or ()
    if not rules:
        faults.required(f"{path}.rules", "at least one rule must be specified")
    if len(rules) > RULES_MAX:
        faults.too_long(f"{path}.rules", f"must have at most {RULES_MAX} items")
    completions = spec.get("completions") or 0
    for index, rule in enumerate(rules[:RULES_MAX]):
        at = f"{path}.rules[{index}]"
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if not text and count is None:
            faults.required(at, "at least one of succeededCount or succeededIndexes is needed")
        available = completions
        if text:
            try:
                wanted = index_ranges.parse(text)
            except index_ranges.InvalidIndexRanges as error:
                faults.invalid(f"{at}.succeededIndexes", text, str(error))
                continue
            if max(wanted) >= completions:
                message = f"must be below completions, {completions}"
                faults.invalid(f"{at}.succeededIndexes", text, message)
                continue
            available = len(wanted)
        if count is not None and not 1 <= count <= available:
            message = f"must be between 1 and the number of indexes, {available}"
            faults.invalid(f"{at}.succeededCount", count, message)


def _check_pod_names(document: Document, spec: dict[str, Any], faults: Faults) -> None:
    """The name of the pod with the largest index is a host name, for Jobs with indexes."""
    name = (document.get("metadata") or {}).get("name") or ""
    if not name or not _is_indexed(spec) or check_job_name(name) is not None:
        return
    largest = names.job_pod_name(name, "", max((spec.get("completions") or 1) - 1, 0))
    fault = names.check_dns_label(largest)
    if fault is not None:
        message = f'the pod "{largest}" would have this host name, which {fault}'
        faults.invalid("metadata.name", name, message)


def _check_selector(document: Document, spec: dict[str, Any], faults: Faults) -> None:
    """The selector finds the Job's own pods and no others: ours is by its uid."""
    uid = (document.get("metadata") or {}).get("uid")
    labels = lookup(spec, "template.metadata.labels") or {}
    selector = spec.get("selector")
    if spec.get("manualSelector"):
        if selector is None:
            faults.required("spec.selector", "needed where manualSelector is true")
        wanted = (selector or {}).get("matchLabels") or {}
        if any(labels.get(key) != value for key, value in wanted.items()):
            message = "`selector` does not match template `labels`"
            faults.invalid("spec.template.metadata.labels", labels, message)
    elif uid and selector != {"matchLabels": {UID_LABEL: uid}}:
        message = "`selector` not auto-generated: leave it out, or set manualSelector"
        faults.invalid("spec.selector", selector, message)


def _check_update(document: Document, old: Document, faults: Faults) -> None:
    spec, was = document["spec"], old.get("spec") or {}
    for field in _FIXED:
        if spec.get(field) != was.get(field):
            faults.invalid(f"spec.{field}", spec.get(field), _IMMUTABLE)
    if spec.get("completions") != was.get("completions"):
        elastic = _is_indexed(spec) and all(
            item.get("completions") == item.get("parallelism") for item in (spec, was)
        )
        if is_finished(old) or not elastic:
            message = (
                f"{_IMMUTABLE}; only Indexed Jobs that run are scaled, with completions equal to "
                "parallelism before and after"
            )
            faults.invalid("spec.completions", spec.get("completions"), message)
    if spec.get("template") != was.get("template"):
        _check_template_update(spec, was, old, faults)


def is_finished(document: Document) -> bool:
    """Whether the Job is complete or has failed."""
    conditions = lookup(document, "status.conditions") or ()
    return any(
        item.get("type") in ("Complete", "Failed") and item.get("status") == "True"
        for item in conditions
    )


def _check_template_update(
    spec: dict[str, Any], was: dict[str, Any], old: Document, faults: Faults
) -> None:
    """While a Job is suspended and has no pods, where they run and what they request may change."""
    new, before = spec.get("template") or {}, was.get("template") or {}
    stopped = was.get("suspend") and not (lookup(old, "status.active") or 0)
    if not stopped or is_finished(old):
        faults.invalid("spec.template", _digest(new), f"{_IMMUTABLE} unless the Job is suspended")
    elif _placeless(new) != _placeless(before):
        message = (
            f"{_IMMUTABLE}, but for labels, annotations, {', '.join(_SCHEDULING)} and the resources "
            "of containers"
        )
        faults.invalid("spec.template", _digest(new), message)


def _digest(template: Document) -> list[str]:
    containers = lookup(template, "spec.containers") or ()
    return [str(item.get("name", "")) for item in containers]


def _placeless(template: Document) -> Document:
    """The template without what may change while the Job is suspended."""
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    for field in ("labels", "annotations"):
        meta.pop(field, None)
    for field in _SCHEDULING:
        spec.pop(field, None)
    for field in _CONTAINER_LISTS:
        spec[field] = [
            {key: value for key, value in item.items() if key != "resources"}
            for item in spec.get(field) or ()
        ]
    return {"metadata": meta, "spec": spec}


def check_cronjob(document: Document, old: Document | None) -> list[Cause]:
    """Every rule of a CronJob."""
    faults = Faults()
    spec = document.get("spec") or {}
    _check_schedule(spec, faults)
    policy = spec.get("concurrencyPolicy")
    if policy is not None and policy not in CONCURRENCY:
        faults.not_supported("spec.concurrencyPolicy", policy, CONCURRENCY)
    for field in (
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ):
        run_policies.check_not_negative(spec, field, "spec", faults)
    path = "spec.jobTemplate"
    template = spec.get("jobTemplate") or {}
    job = template.get("spec")
    if job is None:
        faults.required(f"{path}.spec", "specify what the Jobs run")
        return faults.causes
    known = lookup(old, f"{path}.spec.template") if old else None
    check_spec(job, f"{path}.spec", faults, known_template=known)
    for field in ("manualSelector", "selector"):
        if job.get(field):
            message = "may not be set: each Job selects its own pods"
            faults.forbidden(f"{path}.spec.{field}", message)
    return faults.causes


def _check_schedule(spec: dict[str, Any], faults: Faults) -> None:
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        faults.required("spec.schedule", "specify when Jobs are created, like 0 * * * *")
    elif schedule.startswith(("TZ=", "CRON_TZ=")):
        message = "must not name a time zone; use timeZone instead"
        faults.invalid("spec.schedule", schedule, message)
    else:
        try:
            parse_schedule(schedule, since=timestamps.EPOCH)
        except InvalidSchedule as error:
            faults.invalid("spec.schedule", schedule, str(error))
    if zone is None:
        return
    if not zone:
        faults.invalid("spec.timeZone", zone, "must be nil or non-empty string")
        return
    try:
        time_zone(zone)
    except InvalidSchedule as error:
        faults.invalid("spec.timeZone", zone, str(error))
