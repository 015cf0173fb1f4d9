"""Writes that something on the way holds, and delivers when their sender has given them up.

Each is refused, or does no harm: no service loses a pod that its minimum counts on. ADR 10 has the
table.
"""

from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import structs
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_rolling_update import NOW, begun, change, counts, roll, update

from grange.api.http import Request
from grange.api.kinds import (
    POD,
    PODDISRUPTIONBUDGET,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    pod as pods,
)
from grange.api.kinds.rollingupdate import Counts
from grange.api.kinds.transfer_status import PendingDeletion
from grange.api.meta import Document, controller_of
from grange.api.replication import TRANSFER_ANNOTATION
from grange.api.status import ApiError, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.rollingupdate import logic
from grange.controllers.shared.pod_identity import DELETION_COST, RC_NAME_LABEL

CREATED, CONFLICT = 201, 409


class Proxy:
    """Between controllers and server: holds the writes that a test chooses."""

    def __init__(self, there: World) -> None:
        self._there = there
        self._holds: Callable[[Request], bool] = lambda request: False
        self.held: list[Request] = []
        there.gate = self._gate

    def hold(self, method: str, part: str, word: bytes = b"") -> None:
        """From now on hold those of a method, with a part of the path and a word in the body."""
        self._holds = lambda request: (
            request.method == method and part in request.path and word in request.body
        )

    def pass_on(self) -> None:
        """Hold nothing more; what is held stays so."""
        self._holds = lambda request: False

    async def has_some(self) -> bool:
        return bool(self.held)

    async def deliver(self) -> list[int]:
        """Deliver everything now; the codes of the answers."""
        held, self.held = self.held, []
        return [(await self._there.application.handle(request)).status for request in held]

    def _gate(self, request: Request) -> ApiError | None:
        if not self._holds(request):
            return None
        self.held.append(request)
        return Timeout("no answer came")


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[World]:
    async with world(clock, rng, log) as made:
        yield made


@pytest.fixture
def proxy(there: World) -> Proxy:
    return Proxy(there)


def template(version: int) -> Document:
    return {**builders.TEMPLATE, "metadata": {"labels": {"app": "web", "version": str(version)}}}


async def nodes(there: World) -> None:
    for name in ("a", "b", "c", "d"):
        await there.add_node(name)


async def populated(there: World, replicas: int = 3) -> None:
    """Nodes, and a service of which none may be missing."""
    await nodes(there)
    await there.add_controller(
        replicas=replicas,
        placement="Packed",
        template=template(1),
        rollout={"maxUnavailable": 0, "maxSurge": 1},
    )


async def label(there: World, pod: str, value: str | None) -> None:
    change = {"metadata": {"labels": {RC_NAME_LABEL: value}}}
    await there.client.patch(POD, pod, "default", patch=change)


async def ready_pods(there: World) -> list[str]:
    live = [pod for pod in await there.pods() if not pod.metadata.deletion_timestamp]
    return [pod.metadata.name for pod in live if pods.is_ready(pod)]


async def rests(there: World, replicas: int) -> bool:
    """Whether a controller has all its pods and nothing under way."""
    status = (await there.controller()).status
    done = status.rollout is not None and status.rollout.phase == "Complete"
    return done and not status.pending_deletions and await there.ready(replicas)


async def test_late_delete_of_an_undone_rollout_is_refused(there: World, proxy: Proxy) -> None:
    """The owner is the same all the time; only its plan has changed."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    proxy.hold("DELETE", "/pods/")
    await there.change(template=template(2))
    await there.until(proxy.has_some)
    await there.change(template=template(1))
    proxy.pass_on()
    await there.until(lambda: rests(there, 3))
    before = await ready_pods(there)
    assert set(await proxy.deliver()) == {CONFLICT}
    assert await ready_pods(there) == before
    assert len(before) == 3


@pytest.mark.parametrize("paused", [False, True])
async def test_late_delete_of_an_undone_scale_down_is_refused(
    paused: bool, there: World, proxy: Proxy
) -> None:
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    proxy.hold("DELETE", "/pods/")
    await there.change(replicas=2)
    await there.until(proxy.has_some)
    await there.change(replicas=3, paused=paused)
    proxy.pass_on()
    await there.settle(10.0)
    assert set(await proxy.deliver()) == {CONFLICT}
    assert len(await ready_pods(there)) == 3
    assert not (await there.controller()).status.pending_deletions


async def test_late_delete_of_a_former_owner_is_refused(there: World, proxy: Proxy) -> None:
    """Its successor takes another pod: with both of them gone the minimum would be broken."""
    await populated(there)
    async with Nursery("first owner") as first:
        first.start(ReplicationService(there.deps).run())
        await there.until(lambda: rests(there, 3))
        proxy.hold("DELETE", "/pods/")
        await there.change(replicas=2)
        await there.until(proxy.has_some)
        first.cancel()
    proxy.pass_on()
    taken = proxy.held[0].path.rsplit("/", 1)[1]
    other = next(name for name in await there.names() if name != taken)
    cheap = {"metadata": {"annotations": {DELETION_COST: "-9"}}}
    await there.client.patch(POD, other, "default", patch=cheap)
    owner = {"metadata": {"annotations": {"grange.dev/owner": "second"}}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=owner)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 2))
    assert taken in await there.names()
    assert set(await proxy.deliver()) == {CONFLICT}
    assert taken in await ready_pods(there)


async def test_late_eviction_of_an_undone_scale_down_is_refused(there: World, proxy: Proxy) -> None:
    """Where a PodDisruptionBudget covers the pods, they go by eviction; the same holds for it."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}
    await there.client.create(PODDISRUPTIONBUDGET, budget, "default")
    counts = {"currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3}
    status = {"observedGeneration": 1, "disruptionsAllowed": 2, **counts}
    await there.client.patch(
        PODDISRUPTIONBUDGET, "web", "default", patch={"status": status}, subresource="status"
    )
    proxy.hold("POST", "/eviction")
    await there.change(replicas=2)
    await there.until(proxy.has_some)
    await there.change(replicas=3)
    proxy.pass_on()
    await there.until(lambda: rests(there, 3))
    assert set(await proxy.deliver()) == {CONFLICT}
    assert len(await ready_pods(there)) == 3


async def test_marked_pod_does_not_count_for_the_minimum(there: World) -> None:
    """A deletion for a taint or a preemption may arrive as long as its mark is there."""
    await nodes(there)
    rollout = {"maxUnavailable": 1, "maxSurge": 0}
    await there.add_controller(placement="Packed", template=template(1), rollout=rollout)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    marked = (await there.names())[0]
    cost = {"metadata": {"annotations": {DELETION_COST: "9"}}}  # the last one to be chosen
    await there.client.patch(POD, marked, "default", patch=cost)
    condition = {"type": pods.DISRUPTION_TARGET, "status": "True"}
    await there.client.patch(
        POD,
        marked,
        "default",
        patch={"status": {"conditions": [condition]}},
        type="strategic",
        subresource="status",
    )
    await there.change(template=template(2))
    for _ in range(300):
        assert len({*await ready_pods(there)} - {marked}) >= 2
        await there.settle(0.1)
    await there.client.delete(POD, marked, "default")
    await there.until(lambda: rests(there, 3))


async def test_deletion_is_recorded_before_it_is_sent(there: World, proxy: Proxy) -> None:
    """What is recorded names the version that is deleted, and stays until its outcome is certain."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    proxy.hold("DELETE", "/pods/")
    await there.change(replicas=2)
    await there.until(proxy.has_some)
    (pending,) = (await there.controller()).status.pending_deletions
    parts = [text.encode() for text in (pending.uid, pending.resource_version)]
    assert any(all(part in request.body for part in parts) for request in proxy.held)
    assert proxy.held[0].path.endswith(f"/{pending.pod}")
    proxy.pass_on()
    await there.until(lambda: rests(there, 2))
    assert not (await there.controller()).status.pending_deletions


async def test_nothing_is_written_for_a_pass_that_deletes_nothing(there: World) -> None:
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    await there.settle(5.0)
    there.requests.clear()
    await there.settle(400.0)
    assert there.requests == []


async def test_scale_down_without_faults_needs_no_further_write(there: World) -> None:
    """Intent and the end of it ride on the status writes that a pass makes anyhow."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    await there.settle(5.0)
    there.requests.clear()
    await there.change(replicas=2)
    await there.until(lambda: rests(there, 2))
    await there.settle(5.0)
    sent = [(method, path.split("/")[-2]) for method, path in there.requests]
    about_pods = [item for item in sent if item[1] == "pods"]
    assert about_pods == [("DELETE", "pods")]


async def test_server_errors_on_deletions_are_retried_with_backoff(
    there: World, proxy: Proxy
) -> None:
    """Each try revokes the one before; the news of that write does not bring about the next."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    proxy.hold("DELETE", "/pods/")
    await there.change(replicas=2)
    await there.settle(60.0)
    assert 3 <= len(proxy.held) <= 30
    proxy.pass_on()
    await there.until(lambda: rests(there, 2))
    assert set(await proxy.deliver()) <= {CONFLICT, 404}
    assert len(await ready_pods(there)) == 2


async def test_late_create_is_a_pod_too_many_for_a_moment(there: World, proxy: Proxy) -> None:
    """No precondition can refuse it; the pods that serve stay."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    before = await ready_pods(there)
    proxy.hold("POST", "/pods")
    await there.change(replicas=4)
    await there.until(proxy.has_some)
    await there.change(replicas=3)
    proxy.pass_on()
    await there.until(lambda: rests(there, 3))
    codes = await proxy.deliver()
    assert codes.count(CREATED) == 1  # under one name
    while await there.names() != before:
        assert set(before) <= set(await ready_pods(there))
        await there.settle(0.1)
    await there.until(lambda: rests(there, 3))


async def test_late_create_of_deleted_controller_is_collected(there: World, proxy: Proxy) -> None:
    """It names its owner by uid: one that is made again under the name does not take it for its own."""
    await populated(there)
    there.start(ReplicationService(there.deps))
    proxy.hold("POST", "/pods")
    await there.until(proxy.has_some)
    await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
    await there.settle(5.0)
    proxy.pass_on()
    await there.add_controller(replicas=2, placement="Packed")
    await there.until(lambda: there.ready(2))
    uid = (await there.controller()).metadata.uid
    await proxy.deliver()
    await there.settle(20.0)
    assert await there.ready(2)
    ours = [pod for pod in await there.pods() if controller_of(pod.metadata).uid == uid]  # type: ignore[union-attr]  # each has one
    assert len(ours) == 2


async def test_late_repair_of_a_pod_out_of_service_is_refused(there: World, proxy: Proxy) -> None:
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    pod = (await there.names())[0]
    proxy.hold("PATCH", "/pods/", b'"labels"')
    await label(there, pod, None)
    await there.until(proxy.has_some)
    await label(there, pod, "mine")
    proxy.pass_on()
    await there.until(lambda: rests(there, 3))
    assert set(await proxy.deliver()) == {CONFLICT}
    live = await there.client.get(POD, pod, "default")
    assert live.metadata.labels[RC_NAME_LABEL] == "mine"
    assert controller_of(live.metadata) is None


async def test_late_adoption_of_a_pod_out_of_service_is_refused(there: World, proxy: Proxy) -> None:
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    proxy.hold("PATCH", "/pods/")
    labels = {"app": "web", RC_NAME_LABEL: "web"}
    orphan = {"metadata": {"name": "orphan", "labels": labels}, "spec": template(1)["spec"]}
    await there.client.create(POD, orphan, "default")
    await there.until(proxy.has_some)
    await label(there, "orphan", None)
    proxy.pass_on()
    await there.settle(10.0)
    assert set(await proxy.deliver()) == {CONFLICT}
    assert controller_of((await there.client.get(POD, "orphan", "default")).metadata) is None


async def test_late_release_of_a_pod_put_back_is_refused(there: World, proxy: Proxy) -> None:
    await populated(there)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: rests(there, 3))
    pod = (await there.names())[0]
    proxy.hold("PATCH", "/pods/")
    await label(there, pod, "mine")
    await there.until(proxy.has_some)
    await label(there, pod, "web")
    proxy.pass_on()
    await there.settle(10.0)
    assert set(await proxy.deliver()) == {CONFLICT}
    live = await there.client.get(POD, pod, "default")
    assert controller_of(live.metadata) is not None
    assert len(await ready_pods(there)) == 3


@pytest.mark.parametrize("part", ["/replicationcontrollers/web/status", "/replicationcontrollers/"])
async def test_late_write_of_former_owner_on_controller_is_refused(
    part: str, there: World, proxy: Proxy
) -> None:
    """Status, intent and finalizer alike: who takes over has written on the controller."""
    await nodes(there)
    async with Nursery("first owner") as first:
        proxy.hold("PATCH", part)
        first.start(ReplicationService(there.deps).run())
        await there.add_controller(replicas=2, placement="Packed")
        await there.until(proxy.has_some)
        first.cancel()
    proxy.pass_on()
    owner = {"metadata": {"annotations": {"grange.dev/owner": "second"}}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=owner)
    assert set(await proxy.deliver()) == {CONFLICT}


async def test_late_audit_record_is_the_one_that_is_there(there: World, proxy: Proxy) -> None:
    """Its name is made from its content; the second is refused."""
    await populated(there)
    proxy.hold("POST", "/auditrecords")
    there.start(ReplicationService(there.deps))
    await there.until(proxy.has_some)
    proxy.pass_on()
    await there.until(lambda: rests(there, 3))
    assert set(await proxy.deliver()) == {CONFLICT}


# --- rollouts between two controllers ---------------------------------------------------------


@pytest.mark.parametrize("wish", [{"undo": True}, {"paused": True}, None], ids=str)
async def test_late_step_of_a_rollout_that_turned_is_refused(
    wish: Document | None, there: World, proxy: Proxy
) -> None:
    """The order to move replicas is held; the rollout is undone, paused or deleted meanwhile."""
    await begun(there, 3)
    proxy.hold("PATCH", "/replicationcontrollers/one", TRANSFER_ANNOTATION.encode())
    await roll(there)
    await there.until(proxy.has_some)
    before = await counts(there)
    assert (await update(there)).status.replicas != Counts(*before)
    if wish is None:
        await there.client.delete(ROLLINGUPDATE, "roll", "default")
    else:
        await change(there, **wish)
    proxy.pass_on()
    await there.settle(10.0)
    assert set(await proxy.deliver()) == {CONFLICT}
    assert await counts(there) == before


async def test_late_count_of_a_rollout_without_old_is_refused(there: World, proxy: Proxy) -> None:
    await begun(there, 0)
    proxy.hold("PATCH", "/replicationcontrollers/two", b'"replicas"')
    await roll(there, old=None)
    await there.until(proxy.has_some)
    await change(there, paused=True)
    proxy.pass_on()
    await there.settle(10.0)
    assert set(await proxy.deliver()) == {CONFLICT}
    assert await counts(there) == (0, 0)


def test_pod_with_a_pending_deletion_is_not_healthy() -> None:
    """It may go at any time, so a rollout that counts on it would take one too many."""
    owner = builders.controller(replicas=2)
    up = [builders.pod(owner, node=node) for node in "ab"]
    one = PendingDeletion(up[0].metadata.name, up[0].metadata.uid, "1")
    status = structs.replace(owner.status, pending_deletions=(one,))
    found = logic.count_pods(structs.replace(owner, status=status), up, frozenset(), NOW)
    assert (found.current, found.healthy, found.unknown) == (2, 1, 1)
