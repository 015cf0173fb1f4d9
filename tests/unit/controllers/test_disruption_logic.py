"""How many pods a disruption budget lets go."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st

from grange.api import conditions, timestamps
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import DISRUPTION_ALLOWED, PodDisruptionBudget
from grange.api.meta import Document
from grange.controllers.disruption import logic

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def pod(name: str, *, ready: bool = True, leaving: bool = False) -> Pod:
    meta: Document = {"name": name}
    if leaving:
        meta["deletionTimestamp"] = timestamps.rfc3339(NOW)
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return msgspec.convert({"metadata": meta, "status": status}, Pod)


def budget(*, disrupted: dict[str, float] | None = None, **spec: object) -> PodDisruptionBudget:
    granted = {
        name: timestamps.rfc3339(NOW - timedelta(seconds=ago))
        for name, ago in (disrupted or {}).items()
    }
    document = {
        "metadata": {"name": "b", "generation": 3},
        "spec": spec,
        "status": {"disruptedPods": granted},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def judge(
    found: PodDisruptionBudget, pods: list[Pod], scales: dict[str, int] | None = None
) -> logic.BudgetStatus:
    return logic.judge(found, pods, scales, NOW, 120.0)


THREE = [pod("a"), pod("b"), pod("c")]


@pytest.mark.parametrize(
    ("spec", "scale", "wanted", "allowed"),
    [
        ({"minAvailable": 2}, None, 2, 1),
        ({"minAvailable": 3}, None, 3, 0),
        ({"minAvailable": 9}, None, 9, 0),
        ({"minAvailable": 0}, None, 0, 3),
        ({"minAvailable": "50%"}, 3, 2, 1),
        ({"minAvailable": "50%"}, 6, 3, 0),
        ({"minAvailable": "100%"}, 3, 3, 0),
        ({"maxUnavailable": 1}, 3, 2, 1),
        ({"maxUnavailable": 1}, 5, 4, 0),
        ({"maxUnavailable": "50%"}, 3, 1, 2),
        ({"maxUnavailable": 5}, 3, 0, 3),
        ({"maxUnavailable": 1}, 0, 0, 0),  # none is expected: nothing can be stated
        ({}, None, 0, 3),
    ],
)
def test_what_a_budget_lets_go(
    spec: Document, scale: int | None, wanted: int, allowed: int
) -> None:
    found = budget(**spec)
    scales = None if scale is None else {"owner": scale}
    assert logic.needs_scale(found.spec) is (scale is not None)
    status = judge(found, THREE, scales).status
    assert (status.desired_healthy, status.disruptions_allowed) == (wanted, allowed)
    assert status.observed_generation == 3
    assert conditions.is_true(status.conditions, DISRUPTION_ALLOWED) is (allowed > 0)


def test_only_ready_pods_that_stay_are_healthy() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("c", leaving=True), pod("d")]
    status = judge(budget(minAvailable=1, disrupted={"d": 5.0}), pods).status
    assert (status.current_healthy, status.expected_pods) == (1, 4)
    assert status.disruptions_allowed == 0


def test_granted_evictions_wait_until_they_are_seen() -> None:
    """Gone or going is seen; what is overdue gives its allowance back."""
    pods = [pod("new"), pod("slow"), pod("going", leaving=True)]
    disrupted = {"new": 20.0, "slow": 121.0, "going": 10.0, "gone": 10.0}
    outcome = judge(budget(minAvailable=1, disrupted=disrupted), pods)
    assert [*outcome.status.disrupted_pods] == ["new"]
    assert outcome.again_s == pytest.approx(100.0)
    assert outcome.unseen == ("slow",)
    assert outcome.status.current_healthy == 1  # the slow one counts again


def test_a_failure_allows_nothing_and_gives_the_reason() -> None:
    status = logic.failed(budget(maxUnavailable=1), "who knows", NOW)
    stated = conditions.find(status.conditions, DISRUPTION_ALLOWED)
    assert stated is not None
    assert (stated.status, stated.reason, stated.message) == ("False", "SyncFailed", "who knows")
    assert status.disruptions_allowed == 0


@given(st.integers(0, 100), st.integers(0, 50), st.integers(0, 60))
def test_percentages_round_up(percent: int, expected: int, healthy: int) -> None:
    """Of what must stay, and of what may be missing, as in Kubernetes."""
    least = logic.desired(budget(minAvailable=f"{percent}%").spec, expected)
    assert least * 100 >= percent * expected > (least - 1) * 100 or least == 0 == percent * expected
    most = logic.desired(budget(maxUnavailable=f"{percent}%").spec, expected)
    assert most == expected - least
