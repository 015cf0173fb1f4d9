"""Rules of NodePools beyond their schema."""

import re
from decimal import Decimal, InvalidOperation

from grange.api import names, quantity, selectors
from grange.api.cron import CronSchedule, InvalidSchedule
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels
from grange.api.validation.resources import check_amounts
from grange.api.validation.scheduling import check_taint
from grange.api.validation.selectors import check_requirement
from grange.base.plurals import counted

USER_DATA_MAX = 16_000
"""Bytes of user data; the least that a provider takes."""

COUNT_MAX = 10_000
_BUDGET = re.compile(r"[0-9]{1,5}|(100|[1-9]?[0-9])%", re.ASCII)
_LEAST = {
    "maxBootPerIteration": 1,
    "limits.machines": 0,
    "timeouts.bootSeconds": 1,
    "timeouts.healthySeconds": 1,
    "timeouts.healthcheckPauseSeconds": 1,
    "timeouts.idleSeconds": 0,
    "disruption.consolidateAfterSeconds": 0,
    "disruption.expireAfterSeconds": 0,
    "disruption.terminationGracePeriodSeconds": 0,
    "disruption.minSavingsPercent": 0,
}


def check(document: Document, old: Document | None) -> list[Cause]:
    """What is wrong with a pool, on creation (``old`` is None) and on update."""
    faults = Faults()
    spec = document.get("spec") or {}
    # Labels and pods name a pool by this.
    name = (document.get("metadata") or {}).get("name") or ""
    faults.named("metadata.name", name, names.check_label_value(name))
    provider = spec.get("provider") or ""
    faults.named("spec.provider", provider, names.check_dns_label(provider))
    before = ((old or {}).get("spec") or {}).get("provider")
    if before and provider != before:
        faults.forbidden("spec.provider", "field is immutable: create another pool")
    _check_numbers(spec, faults)
    for index, item in enumerate(spec.get("requirements") or []):
        check_requirement(item, f"spec.requirements[{index}]", selectors.NODE_OPERATORS, faults)
    for index, entry in enumerate(spec.get("standby") or []):
        _check_standby(entry, f"spec.standby[{index}]", faults)
    _check_limits(spec, faults)
    _check_volume(spec.get("volume") or {}, faults)
    _check_template(spec.get("template") or {}, faults)
    _check_disruption(spec.get("disruption") or {}, faults)
    _check_user_data(spec, faults)
    return faults.causes


def _check_numbers(spec: Document, faults: Faults) -> None:
    for path, least in _LEAST.items():
        part, _, field = path.rpartition(".")
        value = ((spec.get(part) or {}) if part else spec).get(field)
        if isinstance(value, int) and value < least:
            faults.invalid(f"spec.{path}", value, f"must be greater than or equal to {least}")
    weight = spec.get("weight", 1)
    if not 1 <= weight <= 100:
        faults.invalid("spec.weight", weight, "must be between 1 and 100, inclusive")
    timeouts = spec.get("timeouts") or {}
    for kind, seconds in (timeouts.get("bootSecondsByType") or {}).items():
        if seconds < 1:
            at = f"spec.timeouts.bootSecondsByType[{kind}]"
            faults.invalid(at, seconds, "must be greater than or equal to 1")
    pause, healthy = timeouts.get("healthcheckPauseSeconds"), timeouts.get("healthySeconds")
    if pause is not None and healthy is not None and pause >= healthy:
        message = f"must be less than healthySeconds ({healthy}), or no machine stays healthy"
        faults.invalid("spec.timeouts.healthcheckPauseSeconds", pause, message)


def _check_standby(entry: Document, path: str, faults: Faults) -> None:
    if not entry.get("instanceType"):
        faults.required(f"{path}.instanceType", "a type of the provider")
    count = entry.get("count", 0)
    if not 0 <= count <= COUNT_MAX:
        faults.invalid(f"{path}.count", count, f"must be between 0 and {COUNT_MAX}, inclusive")
    _check_window(entry, path, faults)


def _check_window(entry: Document, path: str, faults: Faults) -> None:
    schedule, seconds = entry.get("schedule"), entry.get("durationSeconds")
    if schedule:
        try:
            CronSchedule(schedule)
        except InvalidSchedule as error:
            faults.invalid(f"{path}.schedule", schedule, str(error))
        if seconds is None:
            faults.required(f"{path}.durationSeconds", "how long each window is")
    elif seconds is not None:
        faults.forbidden(f"{path}.durationSeconds", "has no meaning without schedule")
    if seconds is not None and seconds < 1:
        faults.invalid(f"{path}.durationSeconds", seconds, "must be greater than or equal to 1")


def _check_limits(spec: Document, faults: Faults) -> None:
    limits = spec.get("limits") or {}
    check_amounts(limits.get("resources") or {}, "spec.limits.resources", faults)
    if price := limits.get("pricePerHour"):
        try:
            valid = Decimal(price) >= 0
        except InvalidOperation:
            valid = False
        if not valid or len(price) > 32:
            at = "spec.limits.pricePerHour"
            faults.invalid(at, price, 'must be a decimal number of at least 0, e.g. "1.50"')
    machines = limits.get("machines")
    kept = sum(
        max(0, entry.get("count", 0))
        for entry in spec.get("standby") or []
        if not entry.get("schedule")
    )
    if machines is not None and kept > machines:
        message = f"must not be less than the {counted(kept, 'machine')} of standby"
        faults.invalid("spec.limits.machines", machines, message)


def _check_volume(volume: Document, faults: Faults) -> None:
    if (size := volume.get("defaultSize")) is None:
        return
    try:
        valid = quantity.value(size) > 0
    except quantity.QuantityError:
        valid = False
    if not valid:
        faults.invalid("spec.volume.defaultSize", size, 'must be a quantity above 0, e.g. "5Gi"')


def _check_template(template: Document, faults: Faults) -> None:
    check_labels(template.get("labels") or {}, "spec.template.labels", faults)
    for field in ("taints", "startupTaints"):
        for index, taint in enumerate(template.get(field) or []):
            check_taint(taint, f"spec.template.{field}[{index}]", faults)


def _check_disruption(disruption: Document, faults: Faults) -> None:
    savings = disruption.get("minSavingsPercent", 0)
    if savings > 100:
        at = "spec.disruption.minSavingsPercent"
        faults.invalid(at, savings, "must be less than or equal to 100")
    for index, budget in enumerate(disruption.get("budgets") or []):
        path = f"spec.disruption.budgets[{index}]"
        nodes = budget.get("nodes", "10%")
        if not _BUDGET.fullmatch(nodes):
            faults.invalid(f"{path}.nodes", nodes, 'must be a count or a percentage, e.g. "10%"')
        _check_window(budget, path, faults)


def _check_user_data(spec: Document, faults: Faults) -> None:
    text = spec.get("userData") or ""
    if len(text.encode(errors="replace")) > USER_DATA_MAX:
        faults.too_long("spec.userData", f"must have at most {USER_DATA_MAX} bytes")
    if spec.get("bootstrap") == "UserData" and not text:
        faults.required("spec.userData", "bootstrap is UserData: it has to make the machine join")
