"""Which deletions are evictions: one PodDisruptionBudget covers an available pod and can be held."""

from dataclasses import replace

import msgspec
import pytest
from tests.unit.controllers import builders

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.plan import Addition, Inputs, Plan, Removal
from grange.reconcile.informer import InformerFactory

WEB = builders.controller(replicas=3)
PODS = [builders.pod(WEB, node=name, name=name) for name in "abc"]
PLAN = Plan(
    create=(Addition("x"), Addition("y")),
    delete=tuple(Removal(pod, "ScaledDown") for pod in PODS),
)
SITUATION = Inputs(
    WEB, PODS, {"a", "b", "c"}, available=frozenset(pod.metadata.uid for pod in PODS)
)


async def unused(request: Request) -> Response:
    raise AssertionError(f"{request} although the caches are given")


@pytest.fixture
def caches(clock: Clock, rng: Stream, log: Logger) -> Listers:
    """What the controller knows: its pods, itself, and no budget yet."""
    client = Client(InProcess(unused, ADMIN), clock=clock)
    caches = Listers(InformerFactory(client, clock=clock, rng=rng, log=log))
    caches.controllers.store.put(WEB.key, WEB, None)
    for pod in PODS:
        caches.pods.store.put(pod.key, pod, None)
    return caches


def add_budget(
    caches: Listers,
    name: str = "few",
    *,
    allowed: int = 1,
    desired: int = 2,
    observed: int = 1,
    **labels: str,
) -> None:
    document = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": labels or {"app": "web"}}},
        "status": {
            "observedGeneration": observed,
            "disruptionsAllowed": allowed,
            "desiredHealthy": desired,
        },
    }
    budget = msgspec.convert(document, PodDisruptionBudget)
    caches.disruption_budgets.store.put(budget.key, budget, None)


def removed(plan: Plan) -> dict[str, bool]:
    """The names of the pods to delete, and whether each is evicted."""
    return {item.pod.metadata.name: item.evict for item in plan.delete}


def charged(caches: Listers, inputs: Inputs = SITUATION) -> Plan:
    """The plan after the budgets that the listers know have been charged."""
    return deletion_budgets.charged(PLAN, inputs, caches)


def test_budget_allows_as_many_evictions_as_it_has_left(caches: Listers) -> None:
    add_budget(caches, allowed=2)
    plan = charged(caches)
    assert removed(plan) == {"a": True, "b": True}
    assert (plan.kept, plan.budget) == (1, "few")
    assert [item.name for item in plan.create] == ["x"], "the successor waits, too"


def test_budget_with_enough_left_keeps_nothing(caches: Listers) -> None:
    add_budget(caches, allowed=3)
    plan = charged(caches)
    assert removed(plan) == {"a": True, "b": True, "c": True}
    assert (plan.kept, plan.budget, plan.create) == (0, "", PLAN.create)


def test_budget_that_is_out_of_date_allows_nothing(caches: Listers) -> None:
    add_budget(caches, allowed=2, observed=0)
    plan = charged(caches)
    assert (removed(plan), plan.kept) == ({}, 3)


def test_unavailable_pod_is_deleted_without_charge(caches: Listers) -> None:
    add_budget(caches, allowed=0)
    situation = replace(SITUATION, available=frozenset({PODS[0].metadata.uid}))
    plan = charged(caches, situation)
    assert (removed(plan), plan.kept) == ({"b": False, "c": False}, 1)


def test_pod_of_no_budget_is_deleted(caches: Listers) -> None:
    add_budget(caches, allowed=0, app="other")
    assert charged(caches) == PLAN


def test_each_of_several_budgets_has_to_allow_it(caches: Listers) -> None:
    add_budget(caches, "one", allowed=3)
    add_budget(caches, "two", allowed=1)
    plan = charged(caches)
    assert removed(plan) == {"a": False}
    assert plan.delete[0].budgets == ("one", "two")
    assert (plan.kept, plan.budget) == (2, "two")


def test_of_several_budgets_those_that_can_hold_count(caches: Listers) -> None:
    """No server evicts the pod, so the one that is left is charged by the controller as well."""
    add_budget(caches, "one", allowed=2)
    add_budget(caches, "two", allowed=0, desired=4)
    plan = charged(caches)
    assert [item.budgets for item in plan.delete] == [("one",), ("one",)]
    assert (plan.kept, plan.budget) == (1, "one")


@pytest.mark.parametrize(
    ("desired", "extra", "kept"),
    [
        (3, None, 3),
        (4, None, 0),  # more than the controllers ask for: nothing could keep it
        (4, "orphan", 3),  # pods of no controller count one by one
        (4, "stranger", 0),  # its controller is gone
    ],
)
def test_budget_that_wants_too_many_pods_keeps_none(
    caches: Listers, desired: int, extra: str | None, kept: int
) -> None:
    add_budget(caches, allowed=0, desired=desired)
    if extra is not None:
        another: Pod = builders.pod(
            builders.controller("gone", uid="gone-uid", replicas=9),
            name=extra,
            node="d",
            orphan=extra == "orphan",
        )
        caches.pods.store.put(another.key, another, None)
    assert charged(caches).kept == kept


def test_successor_controller_of_the_same_name_is_not_counted(caches: Listers) -> None:
    """A pod of an earlier controller of that name is nothing that the present one keeps up."""
    later = builders.controller(uid="later-uid", replicas=9)
    caches.controllers.store.put(later.key, later, WEB)
    add_budget(caches, allowed=0, desired=3)
    assert charged(caches).kept == 0
