"""An operator through refused writes, lost answers, late watches, strays and deletions."""

from collections import Counter

from tests.support.render_operator import LABELS, RENDERJOB, RenderWorld, render_world

from grange.api.http import Request
from grange.api.kinds import POD, SERVICE
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, InternalError, NotFound, TooManyRequests
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

WATCHES = ("/api/v1/pods", "/api/v1/services", "/apis/example.com/v1/renderjobs")
KINDS: tuple[AnyKind, ...] = (POD, SERVICE)


async def disturb(world: RenderWorld, rng: Stream, step: int) -> None:
    """One thing that a user, a node or the network may do."""
    action = rng.integer(0, 6)
    kind = rng.choice(KINDS)
    if action == 0:
        world.held_watches.add(rng.choice(WATCHES))
    elif action == 1:
        world.held_watches.clear()
    elif action == 2:
        await world.add(kind, f"stray-{step}", index=str(rng.integer(0, 6)))
    elif action == 3:
        patch = {"spec": {"frames": rng.integer(0, 5), "servers": rng.integer(0, 2)}}
        await world.client.patch(RENDERJOB, "film", "default", patch=patch)
    else:
        found = (await world.client.list(kind, "default", labels="example.com/job=film")).items
        if found:
            name = rng.choice(found).metadata.name
            if action == 4:
                await world.client.delete(kind, name, "default", grace_period_s=0)
            else:
                labels = {LABELS.index: str(rng.integer(0, 9))}
                marked = {"metadata": {"labels": labels}}
                await world.client.patch(kind, name, "default", patch=marked)


async def test_each_index_has_one_pod_and_one_service_in_the_end(
    clock: Clock, log: Logger, seed: int
) -> None:
    rng = Stream(seed)
    async with render_world(clock, rng.fork("world"), log) as world:
        faults = rng.fork("faults")

        def refuse(request: Request) -> ApiError | None:
            if request.query.get("watch") or faults.uniform(0.0, 1.0) > 0.15:
                return None
            return faults.choice([InternalError("no"), TooManyRequests("later"), NotFound("gone")])

        def lose(request: Request) -> ApiError | None:
            lost = request.method != "GET" and faults.uniform(0.0, 1.0) < 0.15
            return InternalError("no answer") if lost else None

        await world.add_job(frames=3, servers=1)
        world.gate, world.answer_gate = refuse, lose
        for step in range(40):
            await disturb(world, rng, step)
            await world.settle(rng.uniform(0.0, 2.0))
        world.gate = world.answer_gate = lambda _: None
        world.held_watches.clear()
        patch = {"spec": {"frames": 4, "servers": 2}}
        await world.client.patch(RENDERJOB, "film", "default", patch=patch)
        await world.settle(60)
        wanted = {("frame", str(index)) for index in range(4)}
        wanted |= {("server", str(index)) for index in range(2)}
        for kind in KINDS:
            found = (await world.client.list(kind, "default", labels="example.com/job=film")).items
            counts = Counter(
                (obj.metadata.labels[LABELS.role], obj.metadata.labels[LABELS.index])
                for obj in found
            )
            assert counts == dict.fromkeys(wanted, 1), kind.plural
        assert len(world.jobs.expectations) == 0
        assert world.jobs.expectations.expired == 0
