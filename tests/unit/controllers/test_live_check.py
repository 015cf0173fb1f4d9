"""Who is asked before an available pod is taken, and how often."""

from datetime import timedelta

from tests.support.controller_world import world
from tests.unit.controllers import builders

from grange.api import timestamps
from grange.api.http import Request
from grange.api.kinds import LEASE
from grange.api.kinds.lease import NODE_LEASES, STATUS_SYNCED_UNTIL
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.plan import Inputs, Plan, Removal
from grange.controllers.shared import availability
from grange.controllers.shared.availability import Readiness


async def test_each_lease_is_read_once_and_many_in_one_list(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A pod that was heard of is believed until it breaks; only what is new is asked about."""
    async with world(clock, rng, log) as there:
        asked: list[str] = []

        def note(request: Request) -> ApiError | None:
            if request.path.startswith(LEASE.path(NODE_LEASES)):
                asked.append(request.path.removeprefix(LEASE.path(NODE_LEASES)))
            return None

        there.gate = note
        owner = builders.controller(rollout={"minReadySeconds": 10})
        stamp = timestamps.rfc3339(clock.now())
        names = [f"n{number}" for number in range(30)]
        readiness = Readiness(clock)
        pods = [builders.pod(owner, node=name, uid=name, ready_since=stamp) for name in names]
        for pod in pods:
            readiness.appeared(pod)
            await there.beat(pod.spec.node_name)
        few = pods[:2]
        assert (
            await availability.reported_ready(there.deps.client, owner, few, readiness)
            == frozenset()
        )
        assert asked == ["/n0", "/n1"], "too early"
        await clock.sleep(11.0)
        for name in names:
            await there.beat(name)
        asked.clear()
        assert await availability.reported_ready(there.deps.client, owner, few, readiness) == {
            "n0",
            "n1",
        }
        assert await availability.reported_ready(there.deps.client, owner, few, readiness) == {
            "n0",
            "n1",
        }
        assert asked == ["/n0", "/n1"]
        asked.clear()
        assert await availability.reported_ready(there.deps.client, owner, pods, readiness) == set(
            names
        )
        assert await availability.reported_ready(there.deps.client, owner, pods, readiness) == set(
            names
        )
        assert asked == [""]
        synced = {"metadata": {"annotations": {STATUS_SYNCED_UNTIL: stamp}}}
        await there.client.patch(LEASE, "n2", NODE_LEASES, patch=synced)
        later = timestamps.rfc3339(clock.now() + timedelta(seconds=1))
        again = builders.pod(owner, node="n0", uid="n0", ready_since=later)
        assert (
            await availability.reported_ready(there.deps.client, owner, [again], readiness)
            == frozenset()
        )
        fresh = Readiness(clock)
        fresh.appeared(pods[2])
        fresh.appeared(pods[3])
        assert await availability.reported_ready(there.deps.client, owner, pods[2:4], fresh) == {
            "n3"
        }


async def test_plan_that_takes_no_available_pod_reads_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        requests: list[str] = []

        def note(request: Request) -> ApiError | None:
            requests.append(request.path)
            return None

        owner = builders.controller(replicas=2)
        pods = [builders.pod(owner, node=name, name=name) for name in "ab"]
        available = frozenset({pods[0].metadata.uid})
        situation = Inputs(owner, pods, {"a", "b"}, available=available)
        there.gate = note
        for taken in ([], pods[1:]):
            plan = Plan(delete=tuple(Removal(pod, "Surplus") for pod in taken))
            assert await deletion_budgets.confirm(
                there.deps.client, situation, plan, Readiness(clock)
            )
        assert requests == []
