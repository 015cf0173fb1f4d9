"""Services that are run whole: by one member at a time, fenced, and handed over."""

from collections.abc import Callable

import msgspec

from grange.alerts.alerts import Alert
from grange.api.farm_protocol import REPORT_ANNOTATION
from grange.api.kinds import CONFIGMAP, LEASE
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leader_election import LeaderElectedServices
from grange.reconcile.farm.member import Member
from grange.sim.world import World


class Worker:
    """Reports once a second that it works, with the fenced client that it was given."""

    def __init__(
        self, deps: Deps, name: str, member: str, log: list[tuple[float, str, str]]
    ) -> None:
        self._deps = deps
        self._name = name
        self._member = member
        self._log = log
        self.refused = 0

    async def run(self) -> None:
        while True:
            patch = {"data": {"by": self._member}}
            try:
                await self._deps.client.patch(CONFIGMAP, self._name, "default", patch=patch)
                self._log.append((self._deps.clock.monotonic(), self._name, self._member))
            except ApiError:
                self.refused += 1
            await self._deps.clock.sleep(1.0)


class Process:
    """A member with services, as a process is made."""

    def __init__(
        self, deps: Deps, name: str, services: tuple[str, ...], log: list[tuple[float, str, str]]
    ) -> None:
        config = FarmConfig(member=name)
        self.member = Member(deps, config)

        def maker(service: str) -> Callable[[Deps], Worker]:
            return lambda tools: Worker(tools, service, name, log)

        made = {service: maker(service) for service in services}
        self.leader_elected = LeaderElectedServices(self.member, config, lambda _: deps, made)

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            nursery.start(self.leader_elected.run())
            nursery.start(self.member.run())


async def start(
    world: World, names: tuple[str, ...], services: tuple[str, ...] = ("one", "two")
) -> list[tuple[float, str, str]]:
    log: list[tuple[float, str, str]] = []
    for service in services:
        document = {"metadata": {"name": service, "namespace": "default"}}
        await world.client.create(CONFIGMAP, document)

    def process(name: str) -> Callable[[Deps], Process]:
        return lambda deps: Process(deps, name, services, log)

    for name in names:
        world.add(name, process(name))
    return log


def workers(log: list[tuple[float, str, str]], since: float, until: float) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for at, service, member in log:
        if since <= at < until:
            found.setdefault(service, set()).add(member)
    return found


async def test_one_member_at_a_time_and_all_have_something_to_do(
    world: World, clock: Clock
) -> None:
    log = await start(world, ("a", "b"))
    await clock.sleep(20)
    found = workers(log, 10, 20)
    assert sorted(found) == ["one", "two"]
    assert all(len(members) == 1 for members in found.values())
    assert found["one"] != found["two"], "two services, two members: one each"


async def test_a_member_that_dies_is_replaced_within_a_term_and_a_bit(
    world: World, clock: Clock
) -> None:
    log = await start(world, ("a", "b"))
    await clock.sleep(20)
    world.crash("a")
    await clock.sleep(20)
    assert workers(log, 38, 41) == {"one": {"b"}, "two": {"b"}}
    world.restart("a")
    await clock.sleep(20)
    found = workers(log, 55, 60)
    assert {member for members in found.values() for member in members} == {"a", "b"}


async def test_services_whose_objects_are_deleted_come_back(world: World, clock: Clock) -> None:
    log = await start(world, ("a",))
    await clock.sleep(5)
    for service in ("one", "two"):
        await world.client.delete(LEASE, f"grange-service-{service}", "kube-system")
    await clock.sleep(40)
    assert workers(log, 40, 46) == {"one": {"a"}, "two": {"a"}}


async def test_services_go_on_where_they_were_after_a_lost_session(
    world: World, clock: Clock
) -> None:
    log = await start(world, ("a",))
    await clock.sleep(5)
    await world.client.delete(LEASE, "grange-a", "kube-system")
    await clock.sleep(40)
    assert workers(log, 40, 46) == {"one": {"a"}, "two": {"a"}}


async def test_member_lists_its_objects_and_alerts_on_its_lease(world: World, clock: Clock) -> None:
    made: list[Process] = []

    def factory(deps: Deps) -> Process:
        made.append(Process(deps, "a", ("one",), []))
        return made[-1]

    world.add("a", factory)
    await clock.sleep(10)
    alerts = made[0].member.alerts
    started = clock.monotonic()
    alerts.fire(Alert("farm/x", "no_objects_found", "all is gone; look"))
    await clock.sleep(1.5)
    lease = await world.client.get(LEASE, "grange-a", "kube-system")
    report = msgspec.json.decode(lease.metadata.annotations[REPORT_ANNOTATION])
    assert report["owns"] == {"services": 1}
    assert [alert["reason"] for alert in report["alerts"]] == ["no_objects_found"]
    before = int(lease.metadata.resource_version)
    for number in range(100):
        alerts.fire(Alert("farm/x", f"r{number}", "many"))
        await clock.sleep(0.05)
    writes = [
        path
        for revision, path, _ in world.history.since(before)
        if "/leases/" in path and revision > before
    ]
    assert 2 <= len(writes) <= clock.monotonic() - started + 1, "one Lease write a second at most"
