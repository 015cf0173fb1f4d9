"""Charging several disruption budgets for one pod: each of them, or none."""

from collections.abc import Callable

import pytest
from tests.support.controller_world import World, world

from grange.api.http import Request
from grange.api.kinds import POD, PODDISRUPTIONBUDGET
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.status import ApiError, Conflict, Forbidden, TooManyRequests
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.pod_control import is_over_budget
from grange.sim import builders as objects

BOTH = ("one", "two")


async def covered(there: World, **allowed: int) -> Pod:
    """A pod, and budgets that allow so many disruptions each; none counts again."""
    await there.client.create(POD, objects.pod_document("web"), "default")
    for name, count in allowed.items():
        spec: Document = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        document = {"metadata": {"name": name}, "spec": spec}
        await there.client.create(PODDISRUPTIONBUDGET, document, "default")
        counts = {"currentHealthy": 1 + count, "desiredHealthy": 1, "expectedPods": 1 + count}
        status = {"observedGeneration": 1, "disruptionsAllowed": count, **counts}
        await there.client.patch(
            PODDISRUPTIONBUDGET, name, "default", patch={"status": status}, subresource="status"
        )
    return await there.client.get(POD, "web", "default")


async def accounts(there: World) -> dict[str, tuple[int, list[str]]]:
    """What each budget allows now, and the pods whose end it waits for."""
    found = (await there.client.list(PODDISRUPTIONBUDGET)).items
    return {
        one.metadata.name: (one.status.disruptions_allowed, [*one.status.disrupted_pods])
        for one in found
    }


def first(
    fails: Callable[[Request], bool], error: ApiError
) -> Callable[[Request], ApiError | None]:
    """A gate that refuses the first of such requests."""
    left = [error]
    return lambda request: left.pop() if left and fails(request) else None


async def test_charge_takes_one_from_each(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2, two=1)
        await deletion_budgets.charge(there.deps.client, pod, BOTH, clock.now())
        assert await accounts(there) == {"one": (1, ["web"]), "two": (0, ["web"])}


async def test_charge_that_one_refuses_is_given_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2, two=0)
        with pytest.raises(TooManyRequests, match="budget two") as refused:
            await deletion_budgets.charge(there.deps.client, pod, BOTH, clock.now())
        assert is_over_budget(refused.value)
        waiting = {name: names for name, (_, names) in (await accounts(there)).items()}
        assert waiting == {"one": [], "two": []}


async def test_charge_after_a_lost_race_counts_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2, two=2)
        there.gate = first(lambda request: request.method == "PATCH", Conflict("changed"))
        await deletion_budgets.charge(there.deps.client, pod, BOTH, clock.now())
        assert await accounts(there) == {"one": (1, ["web"]), "two": (1, ["web"])}


async def test_charge_is_made_once(clock: Clock, rng: Stream, log: Logger) -> None:
    """An earlier try whose answer was lost has paid; a budget that is gone costs nothing."""
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2)
        for _ in range(2):
            await deletion_budgets.charge(there.deps.client, pod, BOTH, clock.now())
        assert await accounts(there) == {"one": (1, ["web"])}


async def test_charge_without_the_right_charges_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2, two=2)
        there.gate = lambda request: Forbidden("no") if "/two" in request.path else None
        with pytest.raises(Forbidden):
            await deletion_budgets.charge(there.deps.client, pod, BOTH, clock.now())
        assert (await accounts(there))["one"][1] == []


async def test_budget_that_is_not_up_to_date_refuses(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        pod = await covered(there, one=2)
        change: Document = {"spec": {"minAvailable": 2}}
        await there.client.patch(PODDISRUPTIONBUDGET, "one", "default", patch=change)
        with pytest.raises(TooManyRequests):
            await deletion_budgets.charge(there.deps.client, pod, ("one",), clock.now())
