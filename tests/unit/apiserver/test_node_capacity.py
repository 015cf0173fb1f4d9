"""No binding gives a node more than it has: whichever client binds, in whatever order, whatever the disk does."""

import asyncio
from pathlib import Path

import pytest
from msgspec.json import decode
from msgspec.structs import replace
from tests.unit.apiserver.server import CONFIGMAPS, NODES, PODS, Answer, Server, configmap
from tests.unit.store.test_sqlite import FULL, Lane, failure, opened

from grange.api import bindings
from grange.api.kinds.pod import Pod, is_finished
from grange.api.meta import Document
from grange.api.pod_requests import Resources, allocatable, pod_request
from grange.apiserver.node_capacity import NodeCapacity
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, Usage, charged
from grange.sim import builders
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes

CAPACITY = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi", "pods": "3", "a.io/fpga": "1"}


async def add_node(server: Server, name: str = "n1", **capacity: str) -> None:
    await server.made(NODES, builders.node_document(name, capacity=capacity or CAPACITY))


async def add_pod(server: Server, name: str, on: str = "", **requests: str) -> Document:
    document = builders.pod_document(name, requests=requests)
    if on:
        document["spec"]["nodeName"] = on
    return await server.made(PODS, document)


async def bind_all(server: Server, *names: str, node: str = "n1", **query: str) -> list[Document]:
    items = [
        {"metadata": {"name": name, "namespace": "default"}, "target": {"name": node}}
        for name in names
    ]
    answer = await server.create(bindings.PATH, {"kind": "BindingList", "items": items}, **query)
    assert answer.code == 200, answer.text
    statuses: list[Document] = answer.body["items"]
    return statuses


def codes(statuses: list[Document]) -> list[int]:
    return [status["code"] for status in statuses]


def refused(answer: Answer) -> str:
    assert (answer.code, answer.reason) == (409, "Conflict"), answer.text
    return answer.message


@pytest.mark.parametrize(
    ("resource", "each", "reported"),
    [
        ("cpu", "1500m", "cpu: 1500m requested, 500m free"),
        ("memory", "3Gi", "memory: 3221225472 requested, 1073741824 free"),
        ("ephemeral-storage", "600Mi", "ephemeral-storage: 629145600 requested, 444596224 free"),
        ("a.io/fpga", "1", "a.io/fpga: 1 requested, 0 free"),
    ],
)
async def test_what_does_not_fit_beside_the_others_is_refused(
    server: Server, resource: str, each: str, reported: str
) -> None:
    await add_node(server)
    for name in ("a", "b"):
        await add_pod(server, name, **{resource: each})
    assert (await server.bind("a", "n1")).code == 201
    before = (await server.get(f"{PODS}/b")).body
    message = refused(await server.bind("b", "n1"))
    assert message == (
        f'Operation cannot be fulfilled on pods "b": node n1 has not enough {reported}'
    )
    assert (await server.get(f"{PODS}/b")).body == before
    await add_node(server, "n2", **CAPACITY)
    assert (await server.bind("b", "n2")).code == 201


async def test_node_takes_so_many_pods(server: Server) -> None:
    await add_node(server)
    for number in range(4):
        await add_pod(server, f"p{number}")
    assert codes(await bind_all(server, "p0", "p1", "p2")) == [201, 201, 201]
    assert refused(await server.bind("p3", "n1")).endswith("enough pods: 1 requested, 0 free")


async def test_bindings_of_one_group_see_each_other(server: Server) -> None:
    """And the same pod twice in a group counts once."""
    await add_node(server)
    for name in ("a", "b", "c", "d"):
        await add_pod(server, name, cpu="1")
    assert codes(await bind_all(server, "a", "a", "b", "c", "d")) == [201, 409, 201, 409, 409]
    assert (await bind_all(server, "c"))[0]["message"].endswith("1000m requested, 0m free")


async def test_concurrent_bindings_do_not_share_the_last_place(
    server: Server,
) -> None:
    await add_node(server)
    answers: list[Answer] = []
    for name in ("a", "b", "c"):
        await add_pod(server, name, cpu="1500m")

    async def bind(name: str) -> None:
        answers.append(await server.bind(name, "n1"))

    async with Nursery("binders") as nursery:
        for name in ("a", "b", "c"):
            nursery.start(bind(name))
    assert sorted(answer.code for answer in answers) == [201, 409, 409]


async def test_dry_run_is_judged_and_takes_nothing(server: Server) -> None:
    await add_node(server)
    for name in ("a", "b"):
        await add_pod(server, name, cpu="1500m")
    assert codes(await bind_all(server, "a", "b", dryRun="All")) == [201, 201]
    assert codes(await bind_all(server, "a")) == [201]
    assert codes(await bind_all(server, "b", dryRun="All")) == [409]


async def test_pod_counts_until_it_has_ended_or_is_gone(server: Server) -> None:
    """On its way out it still runs; that is how a scheduler's cache counts, too."""
    await add_node(server)
    await add_pod(server, "old", on="n1", cpu="2")
    await add_pod(server, "new", cpu="1")
    await server.delete(f"{PODS}/old")  # gracefully: it is marked
    assert (await server.get(f"{PODS}/old")).body["metadata"]["deletionTimestamp"]
    refused(await server.bind("new", "n1"))
    await server.delete(f"{PODS}/old", gracePeriodSeconds="0")
    assert (await server.bind("new", "n1")).code == 201
    await add_pod(server, "next", cpu="2")
    refused(await server.bind("next", "n1"))
    await server.patch(f"{PODS}/new/status", {"status": {"phase": "Succeeded"}})
    assert (await server.bind("next", "n1")).code == 201


async def test_pods_that_a_user_put_there_without_asking_count(server: Server) -> None:
    """Also beyond what there is, and before there is a node; they themselves are not refused."""
    for number in range(4):
        await add_pod(server, f"p{number}", on="n1", cpu="1")
    await add_node(server)
    await add_pod(server, "small", cpu="1m")
    assert refused(await server.bind("small", "n1")).endswith("pods: 1 requested, 0 free")


async def test_shrunk_node_keeps_what_it_has_and_takes_no_more(server: Server) -> None:
    await add_node(server)
    for name in ("a", "b", "c"):
        await add_pod(server, name, cpu="500m")
    await server.bind("a", "n1")
    await server.bind("b", "n1")
    less = {"status": {"allocatable": {**CAPACITY, "cpu": "600m"}}}
    await server.patch(f"{NODES}/n1/status", less)
    assert refused(await server.bind("c", "n1")).endswith("cpu: 500m requested, 0m free")
    await server.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}})
    assert (await server.get(f"{PODS}/a")).body["spec"]["nodeName"] == "n1"
    more = {"status": {"allocatable": {**CAPACITY, "cpu": "4"}}}
    await server.patch(f"{NODES}/n1/status", more)
    assert (await server.bind("c", "n1")).code == 201


async def test_what_no_node_states_sets_no_limit(server: Server) -> None:
    """A node that is not there, that offers nothing yet, or does not name the extended resource."""
    await server.made(NODES, {"metadata": {"name": "silent"}})
    await add_node(server, "n1", cpu="1", memory="1Gi", pods="10")
    for number, node in enumerate(("nowhere", "silent", "n1")):
        await add_pod(server, f"p{number}", **{"a.io/fpga": "3"})
        assert (await server.bind(f"p{number}", node)).code == 201


async def test_node_has_none_of_a_resource_it_does_not_name(server: Server) -> None:
    """Once it names any; as for schedulers, which send such a pod elsewhere."""
    await add_node(server, "bare", cpu="2")
    await add_node(server, "n1", pods="5")
    await add_pod(server, "idle")
    assert refused(await server.bind("idle", "bare")).endswith("enough pods: 1 requested, 0 free")
    for resource, each, reported in (
        ("cpu", "1m", "cpu: 1m requested, 0m free"),
        ("memory", "1", "memory: 1 requested, 0 free"),
        ("ephemeral-storage", "1", "ephemeral-storage: 1 requested, 0 free"),
    ):
        await add_pod(server, f"asks-{resource}", **{resource: each})
        assert refused(await server.bind(f"asks-{resource}", "n1")).endswith(f"enough {reported}")
    assert (await server.bind("idle", "n1")).code == 201


async def test_pods_of_a_node_that_went_and_came_back_still_count(server: Server) -> None:
    await add_node(server)
    await add_pod(server, "a", on="n1", cpu="2")
    await add_pod(server, "b", cpu="1")
    await server.delete(f"{NODES}/n1")
    await add_node(server)
    refused(await server.bind("b", "n1"))


async def test_pod_of_the_same_name_is_another_one(server: Server) -> None:
    await add_node(server)
    await add_pod(server, "a", on="n1", cpu="2")
    await server.delete(f"{PODS}/a", gracePeriodSeconds="0")
    await add_pod(server, "a", cpu="1")
    await add_pod(server, "b", cpu="1")
    assert codes(await bind_all(server, "a", "b")) == [201, 201]


async def test_init_containers_and_overhead_count_as_for_schedulers(server: Server) -> None:
    await add_node(server)
    document = builders.pod_document("a", requests={"cpu": "100m"})
    big = {"name": "init", "command": ["x"], "resources": {"requests": {"cpu": "1900m"}}}
    document["spec"]["initContainers"] = [big]
    await server.made(PODS, document)
    await add_pod(server, "b", cpu="200m")
    assert codes(await bind_all(server, "a", "b")) == [201, 409]


async def test_device_is_promised_once(server: Server) -> None:
    """Two shares may fit a node's sum and still be too much for one of its devices."""
    await add_node(
        server, "n1", cpu="8", memory="8Gi", pods="9", **{"grange.dev/gpu-milli": "2000"}
    )

    async def bind(name: str, devices: str) -> Answer:
        meta = {"annotations": {"grange.dev/gpu-devices": devices}}
        return await server.create(
            f"{PODS}/{name}/binding", {"metadata": meta, "target": {"name": "n1"}}
        )

    for number in range(4):
        await add_pod(server, f"p{number}", **{"grange.dev/gpu-milli": "600"})
    assert (await bind("p0", "0")).code == 201
    message = refused(await bind("p1", "0"))
    assert message.endswith("grange.dev/gpu-milli of device 0: 600 requested, 400 free")
    assert (await bind("p1", "1")).code == 201
    await server.patch(f"{PODS}/p0/status", {"status": {"phase": "Succeeded"}})
    assert (await bind("p2", "0")).code == 201


async def test_new_server_on_the_store_knows_what_is_there(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    await add_node(server)
    for name in ("a", "b", "c"):
        await add_pod(server, name, cpu="1")
    await bind_all(server, "a", "b")
    await server.patch(f"{PODS}/b/status", {"status": {"phase": "Failed"}})
    second = Server(clock=clock, rng=rng.fork("second"), log=log, store=server.store)
    await second.application.bootstrap()
    assert books(second) == books(server)
    await add_pod(second, "d", cpu="1")
    assert codes(await bind_all(second, "c", "d")) == [201, 409]


Books = dict[str, tuple[int, Resources]]


def sums(node_capacity: NodeCapacity) -> Books:
    return {node: (pods, total) for node, pods, total in node_capacity.sums()}


def books(server: Server) -> Books:
    return sums(server.application.registry.node_capacity)


async def read_again(server: Server) -> Books:
    """What a server that starts now would find."""
    node_capacity = NodeCapacity(server.store)
    await node_capacity.load(lambda *_: None)
    return sums(node_capacity)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_the_disk_refuses_never_happened(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger, cancelled: bool
) -> None:
    """A place that an undone deletion seemed to free is not given away; an undone binding frees its own.

    Also when no client waits for the answers any more.
    """
    lane = Lane()
    lanes = Lanes(writer=lane, reader=Inline())
    store = await SQLiteStore.open(tmp_path, log=log, lanes=lanes)
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    await add_node(server)
    await add_node(server, "n2")
    await add_pod(server, "old", on="n1", cpu="2")
    for name in ("a", "b"):
        await add_pod(server, name, cpu="2")
    before = books(server)
    async with Nursery("callers") as nursery:
        lane.gate.clear()
        tasks = [
            nursery.start(server.delete(f"{PODS}/old", gracePeriodSeconds="0")),
            nursery.start(server.bind("a", "n2")),
            # Made and gone again: after the refusal it looks as if this had been done.
            nursery.start(server.create(PODS, builders.pod_document("x", nodeName="n2"))),
            nursery.start(server.delete(f"{PODS}/x", gracePeriodSeconds="0")),
        ]
        await asyncio.sleep(0)
        assert "n1" in books(server)
        assert books(server)["n1"][0] == 0  # accepted, so it counts already
        if cancelled:
            for task in tasks:
                task.cancel()
        lane.failures.append(failure(FULL))
        lane.gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert books(server) == before
        refused(await server.bind("b", "n1"))
        assert (await server.bind("b", "n2")).code == 201
        refused(await server.bind("a", "n2"))
    assert server.application.registry.node_capacity.rereads == 1
    await store.close()


async def test_refusal_finds_a_name_that_moved_on_its_last_node(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger
) -> None:
    """What is noted of the node that it had before is of another pod, which is long gone."""
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        server = Server(clock=clock, rng=rng, log=log, store=store)
        await server.application.bootstrap()
        for node in ("n1", "n2"):
            await add_node(server, node)
        await add_pod(server, "a", on="n1", cpu="1")
        await server.delete(f"{PODS}/a", gracePeriodSeconds="0")
        await add_pod(server, "a", cpu="1")
        assert (await server.bind("a", "n2")).code == 201
        before = books(server)
        assert [(node, pods) for node, (pods, _) in before.items()] == [("n1", 0), ("n2", 1)]
        lane.failures.append(failure(FULL))
        assert (await server.create(CONFIGMAPS, configmap())).code == 507
        assert books(server) == before
        assert server.application.registry.node_capacity.rereads == 1


class Life:
    """Whatever may happen to pods and nodes, drawn, and what must be true of it, worked out naively."""

    def __init__(self, server: Server, rng: Stream, *, names: int = 30) -> None:
        self.server, self.rng, self.names = server, rng, names
        self.judged = True
        self.refused = 0

    async def pods(self) -> list[Pod]:
        entries = (await self.server.store.list("/core/pods/")).entries
        return [decode(entry.value, type=Pod) for entry in entries]

    async def usage(self, node: str) -> Usage:
        usage = IDLE
        for pod in await self.pods():
            if pod.spec.node_name == node and not is_finished(pod):
                usage = charged(usage, pod_request(pod.spec), ())
        return usage

    def draw(self, *words: str) -> str:
        return self.rng.choice(words)

    async def step(self) -> None:
        server, rng = self.server, self.rng
        name, node = f"p{rng.integer(0, self.names - 1)}", f"n{rng.integer(0, 2)}"
        match rng.integer(0, 9):
            case 0 | 1 | 2:
                asked = {"cpu": self.draw("0", "100m", "1", "1500m")}
                if rng.integer(0, 2) == 0:
                    asked |= {"a.io/fpga": self.draw("0", "1"), "memory": self.draw("1Gi", "3Gi")}
                document = builders.pod_document(name, requests=asked)
                if rng.integer(0, 4) == 0:
                    document["spec"]["nodeName"] = node
                await server.create(PODS, document)
            case 3 | 4 | 5:
                await self.bind(name, node)
            case 6:
                phase = {"status": {"phase": self.draw("Running", "Failed", "Succeeded")}}
                await server.patch(f"{PODS}/{name}/status", phase)
            case 7:
                await server.delete(f"{PODS}/{name}", gracePeriodSeconds=self.draw("0", "30"))
            case 8:
                offer = {"cpu": self.draw("1", "2", "3"), "memory": "4Gi", "pods": "3"}
                if rng.integer(0, 1):
                    offer["a.io/fpga"] = "1"
                await server.create(NODES, {"metadata": {"name": node}})
                await server.patch(f"{NODES}/{node}/status", {"status": {"allocatable": offer}})
            case _:
                if rng.integer(0, 4) == 0:
                    await server.delete(f"{NODES}/{node}")

    async def bind(self, name: str, node: str) -> None:
        """Refused for want of room exactly when the rule of every scheduler refuses it."""
        if not self.judged:
            await self.server.bind(name, node)
            return
        found = [pod for pod in await self.pods() if pod.metadata.name == name]
        there = await self.server.get(f"{NODES}/{node}")
        offered = there.body["status"].get("allocatable", {}) if there.code == 200 else {}
        usage = await self.usage(node)
        answer = await self.server.bind(name, node)
        if not found or found[0].spec.node_name or found[0].metadata.deletion_timestamp:
            assert answer.code in {404, 409}
            return
        request = pod_request(found[0].spec)
        offer = allocatable(offered)
        unnamed = dict.fromkeys(request.resources.scalars, 10) | dict(offer.scalars)
        room = resource_fit.fits(request, replace(offer, scalars=unnamed), usage)
        free = room or not offered or is_finished(found[0])
        assert answer.code == (201 if free else 409), answer.text
        self.refused += not free

    async def lose(self, lane: Lane) -> None:
        """Some steps at the same time, of which the disk takes none or only the later ones."""
        lane.gate.clear()
        self.judged = False
        async with Nursery("callers") as nursery:
            for _ in range(self.rng.integer(1, 6)):
                nursery.start(self.step())
            lost = nursery.start(self.server.create(CONFIGMAPS, configmap()))
            for _ in range(self.rng.integer(1, 6)):
                await asyncio.sleep(0)
            lane.failures.append(failure(FULL))
            lane.gate.set()
        self.judged = True
        assert not lane.failures
        if lost.result().code == 201:
            await self.server.delete(f"{CONFIGMAPS}/settings")


@pytest.mark.parametrize("number", range(6))
async def test_bindings_are_refused_exactly_as_the_rule_requires(
    server: Server, number: int
) -> None:
    life = Life(server, Stream(number))
    for _ in range(400):
        await life.step()
    assert life.refused > 5
    for node, (pods, total) in books(server).items():
        usage = await life.usage(node)
        assert (pods, total.cpu_milli, total.memory_bytes) == (
            *(usage.pods, usage.cpu_milli),
            usage.memory_bytes,
        )
        assert {**total.scalars} == {name: n for name, n in usage.scalars.items() if n}


@pytest.mark.parametrize("number", range(4))
async def test_books_are_right_whatever_the_disk_refuses(
    tmp_path: Path, clock: Clock, log: Logger, number: int
) -> None:
    """While the same few names come, go and come back on other nodes."""
    lane, rng = Lane(), Stream(number)
    async with opened(tmp_path, log, lane) as store:
        server = Server(clock=clock, rng=rng.fork("server"), log=log, store=store)
        await server.application.bootstrap()
        life = Life(server, rng, names=4)
        for _ in range(20):
            for _ in range(rng.integer(0, 60)):
                await life.step()
            await life.lose(lane)
            assert books(server) == await read_again(server)
        assert server.application.registry.node_capacity.rereads == 20
