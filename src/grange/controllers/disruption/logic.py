"""What a disruption budget's status should be: pure.

The rules are Kubernetes' (policy/v1). Healthy is a pod that is ready, not on its way out, and whose
eviction was not granted. Expected are as many pods as their owners want, where the budget speaks of
a share or of what may be missing; otherwise those that there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from grange.api import conditions, timestamps
from grange.api.kinds.pod import Pod, is_ready
from grange.api.kinds.poddisruptionbudget import (
    DISRUPTION_ALLOWED,
    INSUFFICIENT_PODS,
    SUFFICIENT_PODS,
    SYNC_FAILED,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from grange.api.meta import Condition
from grange.base.errors import GrangeError


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """What a look at a budget gave.

    Attributes:
        status: as it should be.
        again_s: look again after so many seconds, even if nothing happens; None for never.
        unseen: names of pods whose granted eviction did not happen in time.
    """

    status: PodDisruptionBudgetStatus
    again_s: float | None = None
    unseen: tuple[str, ...] = ()


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether the owners have to be asked how many pods they want."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


class InvalidAmount(GrangeError):
    """Neither a number nor a percentage: correct the budget."""


def share(amount: int | str, of: int) -> int:
    """A number as it is, a percentage of so many rounded up.

    Raises:
        InvalidAmount: it is neither.
    """
    if isinstance(amount, int):
        return amount
    try:
        return -(-int(amount.removesuffix("%")) * of // 100)
    except ValueError:
        raise InvalidAmount(f"{amount!r} is not a percentage like 25%") from None


def desired(spec: PodDisruptionBudgetSpec, expected: int) -> int:
    """How many pods have to be healthy."""
    if spec.max_unavailable is not None:
        return max(0, expected - share(spec.max_unavailable, expected))
    if spec.min_available is not None:
        return share(spec.min_available, expected)
    return 0


def judge(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    scales: Mapping[str, int] | None,
    now: datetime,
    unseen_s: float,
) -> BudgetStatus:
    """The status of a budget.

    Args:
        budget: as it is.
        pods: those that it covers.
        scales: how many pods each of their owners wants, by the owner's UID; None where no owner
            had to be asked.
        now: the time.
        unseen_s: how long a granted eviction may stay unseen.
    """
    disrupted, again_s, unseen = _pending(budget, pods, now, unseen_s)
    expected = len(pods) if scales is None else sum(scales.values())
    wanted = desired(budget.spec, expected)
    healthy = sum(1 for pod in pods if pod.metadata.name not in disrupted and is_ready(pod))
    allowed = max(0, healthy - wanted) if expected > 0 else 0
    condition = Condition(
        type=DISRUPTION_ALLOWED,
        status="True" if allowed else "False",
        reason=SUFFICIENT_PODS if allowed else INSUFFICIENT_PODS,
        observed_generation=budget.metadata.generation,
    )
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=wanted,
        expected_pods=expected,
        disrupted_pods=disrupted,
        conditions=conditions.set_condition(
            budget.status.conditions, condition, timestamps.rfc3339(now)
        ),
    )
    return BudgetStatus(status, again_s, unseen)


def failed(budget: PodDisruptionBudget, why: str, now: datetime) -> PodDisruptionBudgetStatus:
    """The status when it is unknown how many pods there should be: nothing is allowed."""
    condition = Condition(
        type=DISRUPTION_ALLOWED,
        status="False",
        reason=SYNC_FAILED,
        message=why,
        observed_generation=budget.metadata.generation,
    )
    updated = conditions.set_condition(budget.status.conditions, condition, timestamps.rfc3339(now))
    before = budget.status
    return PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disruptions_allowed=0,
        current_healthy=before.current_healthy,
        desired_healthy=before.desired_healthy,
        expected_pods=before.expected_pods,
        disrupted_pods=before.disrupted_pods,
        conditions=updated,
    )


def _pending(
    budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime, unseen_s: float
) -> tuple[dict[str, str], float | None, tuple[str, ...]]:
    """Evictions that were granted and are still to be seen; when to look again; those overdue."""
    granted = budget.status.disrupted_pods
    kept: dict[str, str] = {}
    unseen: list[str] = []
    again: float | None = None
    for pod in pods if granted else ():
        name = pod.metadata.name
        since = granted.get(name)
        if since is None or pod.metadata.deletion_timestamp:
            continue
        left = unseen_s - (now - _instant(since, now)).total_seconds()
        if left <= 0:
            unseen.append(name)
            continue
        kept[name] = since
        again = left if again is None else min(again, left)
    return kept, again, tuple(unseen)


def _instant(text: str, now: datetime) -> datetime:
    try:
        return timestamps.parse(text)
    except timestamps.TimestampError:
        return now
