"""The API group of what nodes and pods use."""

from collections.abc import Sequence

import pytest
from tests.unit.apiserver.server import NODES, PODS, Server, pod

from grange.api.http import User
from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

METRICS = "/apis/metrics.k8s.io/v1beta1"
POD_METRICS = f"{METRICS}/namespaces/default/pods"
BOB = User("bob", ("system:authenticated",))


class Source:
    """A sample that the test sets."""

    def __init__(self) -> None:
        self.sample: UsageSample | None = None
        self.others: list[UsageSample] = []

    def samples(self) -> Sequence[UsageSample]:
        return (*((self.sample,) if self.sample else ()), *self.others)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def server(source: Source, clock: Clock, rng: Stream, log: Logger) -> Server:
    made = Server(clock=clock, rng=rng, log=log, usage=source)
    await made.application.bootstrap()
    return made


@pytest.fixture
async def measured(server: Server, source: Source, clock: Clock) -> Server:
    """Two pods on one of two nodes."""
    for name in ("node-1", "node-2"):
        await server.made(NODES, {"metadata": {"name": name, "labels": {"name": name}}})
    used = ContainerSample(0.25, 2_097_152)
    pods = []
    for name in ("web", "other"):
        body = pod(name)
        body["metadata"]["labels"] = {"app": name}
        uid = (await server.made(PODS, body))["metadata"]["uid"]
        assert (await server.bind(name)).code == 201
        pods.append(PodSample(uid, "default", name, "node-1", 15.0, {"main": used}))
    source.sample = UsageSample(clock.now(), 15.0, ("node-1", "node-2"), tuple(pods))
    return server


async def test_pod_metrics_have_labels_and_usage(measured: Server) -> None:
    answer = await measured.get(f"{POD_METRICS}/web")
    assert answer.body == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "labels": {"app": "web"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "15.000s",
        "containers": [{"name": "main", "usage": {"cpu": "250000000n", "memory": "2048Ki"}}],
    }


async def test_node_metrics_are_the_sum_of_the_pods(measured: Server) -> None:
    answer = await measured.get(f"{METRICS}/nodes")
    assert answer.body["kind"] == "NodeMetricsList"
    assert [(item["metadata"]["name"], item["usage"]) for item in answer.body["items"]] == [
        ("node-1", {"cpu": "500000000n", "memory": "4096Ki"}),
        ("node-2", {"cpu": "0n", "memory": "0Ki"}),
    ]
    assert (await measured.get(f"{METRICS}/nodes/node-2")).body["kind"] == "NodeMetrics"


@pytest.mark.parametrize(
    ("path", "query", "names"),
    [
        (f"{METRICS}/pods", {}, ["web", "other"]),
        (POD_METRICS, {"labelSelector": "app=web"}, ["web"]),
        (POD_METRICS, {"fieldSelector": "metadata.name=other"}, ["other"]),
        (f"{METRICS}/namespaces/none/pods", {}, []),
        (f"{METRICS}/nodes", {"labelSelector": "name!=node-1"}, ["node-2"]),
    ],
)
async def test_list_is_by_namespace_and_selectors(
    measured: Server, path: str, query: dict[str, str], names: list[str]
) -> None:
    answer = await measured.get(path, **query)
    assert answer.code == 200
    assert [item["metadata"]["name"] for item in answer.body["items"]] == names


async def test_pod_of_that_name_created_later_is_not_shown(
    measured: Server, source: Source, clock: Clock
) -> None:
    used = {"main": ContainerSample(1.0, 1)}
    before = PodSample("before", "default", "web", "node-1", 15.0, used)
    source.sample = UsageSample(clock.now(), 15.0, ("node-1",), (before,))
    answer = await measured.get(f"{POD_METRICS}/web")
    assert (answer.code, answer.reason) == (404, "NotFound")


async def test_samples_of_machines_are_shown_together(
    measured: Server, source: Source, clock: Clock
) -> None:
    await measured.made(NODES, {"metadata": {"name": "far"}})
    uid = (await measured.made(PODS, pod("there")))["metadata"]["uid"]
    assert (await measured.bind("there", "far")).code == 201
    used = {"main": ContainerSample(2.0, 1 << 20)}
    theirs = PodSample(uid, "default", "there", "far", 15.0, used)
    source.others = [UsageSample(clock.now(), 15.0, ("far",), (theirs,))]
    pods = (await measured.get(POD_METRICS)).body["items"]
    assert [item["metadata"]["name"] for item in pods] == ["web", "other", "there"]
    nodes = (await measured.get(f"{METRICS}/nodes")).body["items"]
    assert nodes[-1]["usage"] == {"cpu": "2000000000n", "memory": "1024Ki"}


async def test_node_measures_its_own_pods(measured: Server, source: Source, clock: Clock) -> None:
    uid = (await measured.get(f"{PODS}/web")).body["metadata"]["uid"]
    source.sample = None
    claimed = PodSample(uid, "default", "web", "node-2", 15.0, {"main": ContainerSample(9.0, 9)})
    source.others = [UsageSample(clock.now(), 15.0, ("node-2",), (claimed,))]
    assert (await measured.get(POD_METRICS)).body["items"] == []


async def test_nothing_measured_yet_is_unavailable(server: Server) -> None:
    answer = await server.get(f"{METRICS}/nodes")
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", POD_METRICS, 405),
        ("DELETE", f"{POD_METRICS}/web", 405),
        ("GET", f"{POD_METRICS}/web/log", 404),
        ("GET", f"{METRICS}/services", 404),
        ("GET", f"{METRICS}/namespaces/default/nodes", 404),
    ],
)
async def test_group_is_only_read(measured: Server, method: str, path: str, code: int) -> None:
    assert (await measured.ask(method, path)).code == code


async def test_reading_needs_the_right(measured: Server) -> None:
    assert (await measured.ask("GET", f"{METRICS}/nodes", user=BOB)).code == 403
    binding = {
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    }
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    await measured.made(roles, binding)
    assert (await measured.ask("GET", POD_METRICS, user=BOB)).code == 200
    assert (await measured.ask("GET", f"{METRICS}/pods", user=BOB)).code == 403


async def test_discovery_lists_the_group(server: Server) -> None:
    found = (await server.get(METRICS)).body["resources"]
    assert [(item["name"], item["kind"], item["verbs"]) for item in found] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
