"""PodDisruptionBudget: how many pods of a set must stay when some are evicted on purpose."""

import re
from collections.abc import Callable

import msgspec

from grange.api.fields import lookup
from grange.api.meta import Condition, Document, LabelSelector, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.selectors import check_label_selector

DISRUPTION_ALLOWED = "DisruptionAllowed"
SUFFICIENT_PODS, INSUFFICIENT_PODS, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"
IF_HEALTHY_BUDGET, ALWAYS_ALLOW = "IfHealthyBudget", "AlwaysAllow"
UNHEALTHY_POLICIES = (IF_HEALTHY_BUDGET, ALWAYS_ALLOW)
_PERCENT = re.compile(r"(?:100|[1-9]?[0-9])%", re.ASCII)
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class PodDisruptionBudgetSpec(View, frozen=True):
    """What must stay; one of the first two is set.

    Attributes:
        min_available: so many pods, or a percentage of those that are expected, must be healthy.
        max_unavailable: so many, or a percentage, may be missing.
        selector: of the pods; None covers none, the empty one all of the namespace.
        unhealthy_pod_eviction_policy: ``AlwaysAllow`` lets go of pods that are not ready whatever
            the budget allows; by default they are kept while the budget is broken.
    """

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(View, frozen=True):
    """What is, and how many may go now.

    Attributes:
        disrupted_pods: pods whose eviction was granted and that were not seen to go yet, with the
            time of it.
    """

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Resource, frozen=True):
    """How many of the selected pods must stay, or may go, in evictions."""

    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


def _default(document: Document) -> None:
    status = document["status"] = document.get("status") or {}
    for field in _COUNTS:
        status.setdefault(field, 0)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    for field in ("minAvailable", "maxUnavailable"):
        value, at = spec.get(field), f"spec.{field}"
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            faults.invalid(at, value, "must be a number of pods, or a percentage like 25%")
        elif isinstance(value, int) and value < 0:
            faults.invalid(at, value, "must be greater than or equal to 0")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        message = "may not be set together with minAvailable; set one of the two"
        faults.forbidden("spec.maxUnavailable", message)
    if selector := spec.get("selector"):
        check_label_selector(selector, "spec.selector", faults)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in UNHEALTHY_POLICIES:
        faults.not_supported("spec.unhealthyPodEvictionPolicy", policy, UNHEALTHY_POLICIES)
    status = document.get("status") or {}
    for field in _COUNTS:
        if status.get(field, 0) < 0:
            message = "must be greater than or equal to 0"
            faults.invalid(f"status.{field}", status[field], message)
    return faults.causes


def _given(path: str) -> Callable[[Document, float], cells.Cell]:
    def cell(document: Document, now: float) -> cells.Cell:
        value = lookup(document, path)
        return "N/A" if value is None else str(value)

    return cell


PODDISRUPTIONBUDGET = KindInfo(
    group="policy",
    version="v1",
    kind="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    view=PodDisruptionBudget,
    schema="io.k8s.api.policy.v1.PodDisruptionBudget",
    short_names=("pdb",),
    columns=(
        Column("Min Available", _given("spec.minAvailable"), description="Pods that must stay."),
        Column(
            "Max Unavailable",
            _given("spec.maxUnavailable"),
            description="Pods that may be missing.",
        ),
        Column(
            "Allowed Disruptions",
            cells.integer("status.disruptionsAllowed"),
            "integer",
            "Pods that may be evicted now.",
        ),
    ),
    default=_default,
    validate=_validate,
)
