"""The cache of pod specs saves work and changes no answer."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.unit.apiserver.server import NAMESPACES, PODS, Answer, Server, pod

from grange.api import codec
from grange.api.meta import Document
from grange.api.template_texts import HOSTNAME
from grange.api.validation.podspec import PROGRAMS
from grange.apiserver import pod_spec_cache
from grange.apiserver.pod_spec_cache import PodSpecCache
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
ACCOUNTS = f"{NAMESPACES}/default/serviceaccounts"
CONTAINER: Document = {"name": "main", "image": "web:1", "command": ["serve"]}

# The choices of some fields; None leaves the field out. Some are refused, some are warned about.
CONTAINERS: dict[str, tuple[Any, ...]] = {
    "image": ("web", "web:1", " web"),
    "ports": ([{"containerPort": 80}], [{"containerPort": 80_000}]),
    "resources": (
        {"limits": {"cpu": 1, "memory": "1Gi"}},
        {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
        {"requests": {"cpu": "x"}},
    ),
    "livenessProbe": ({"grpc": {"port": 1}}, {"httpGet": {"port": "web", "path": ""}}, {}),
    "volumeMounts": ([{"name": "data", "mountPath": "/d"}], [{"name": "none", "mountPath": "/n"}]),
    "env": ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],),
    "securityContext": ({"privileged": True}, {}),
    "imagePullPolicy": (None, "Never"),
}
SPEC: dict[str, tuple[Any, ...]] = {
    "volumes": ([{"name": "data"}], [{"name": "data", "secret": {"secretName": "s"}}]),
    "initContainers": ([{**CONTAINER, "name": "first"}], [CONTAINER], None),
    "tolerations": ([{"key": "a", "operator": "Exists"}], [{"operator": "Equal"}]),
    "nodeSelector": ({"a": "b"}, {"a": "-"}),
    "nodeName": ("node-1",),
    "priorityClassName": ("", "high", "none"),
    "priority": (0, 7),
    "serviceAccountName": ("default", "builder", "none", 7),
    "automountServiceAccountToken": (True, False),
    "hostNetwork": (True,),
    "hostname": ("a", "A", ""),
    "subdomain": ("x",),
    "resources": ({"limits": {"cpu": "1"}},),
    "unknown": (1,),
    "terminationGracePeriodSeconds": (0, -1, "x"),
}
METADATA: dict[str, tuple[Any, ...]] = {
    "labels": ({"a": "b"}, {"a": "-"}, {"a": 1}, None),
    "annotations": ({"a/b": "c"}, {"a/b/c": "d"}),
    "creationTimestamp": (None,),
    "finalizers": (["example.com/a"], ["a"]),
    "ownerReferences": ([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}], [{}]),
    "namespace": ("default", "other"),
    "resourceVersion": ("", "1"),
    "unknown": (1,),
}
REST: dict[str, tuple[Any, ...]] = {
    "apiVersion": ("v1", "v2", 1),
    "kind": ("Pod", "Node"),
    "status": ({}, None, {"phase": "Running"}, 7),
    "unknown": (1,),
}


@st.composite
def some_of(draw: st.DrawFn, fields: dict[str, tuple[Any, ...]]) -> Document:
    names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True))
    return {name: draw(st.sampled_from(fields[name])) for name in names}


@st.composite
def specs(draw: st.DrawFn) -> Document:
    return {"containers": [{**CONTAINER, **draw(some_of(CONTAINERS))}], **draw(some_of(SPEC))}


def body_of(rest: Document, metadata: Document, spec: bytes, duplicate: str = "") -> bytes:
    """A pod with exactly these bytes of its spec, and perhaps with a field twice."""
    pieces = [f'"metadata":{json.dumps(metadata)}', f'"spec":{spec.decode()}']
    pieces += [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in rest.items()]
    if duplicate:
        pieces.append(duplicate)
    return ("{" + ",".join(pieces) + "}").encode()


def shown(answer: Answer) -> tuple[int, bytes, str]:
    return answer.code, answer.response.body, answer.headers.get("Warning", "")


async def server_with_objects(clock: Clock, log: Logger) -> Server:
    server = Server(clock=clock, rng=Stream(1), log=log, ca_pem="PEM")
    await server.application.bootstrap()
    await server.made(CLASSES, {"metadata": {"name": "high"}, "value": 9})
    secrets = {"imagePullSecrets": [{"name": "key"}], "automountServiceAccountToken": False}
    await server.made(ACCOUNTS, {"metadata": {"name": "builder"}, **secrets})
    return server


def cache_of(server: Server) -> PodSpecCache:
    return server.application.registry.pod_specs


def assert_unchanged(cache: PodSpecCache) -> None:
    """No pod changed what pods with its spec share."""
    for key, accepted in cache._entries._entries.items():
        if accepted is not None:
            name = accepted.sent.get("hostname", "").encode()
            whole = accepted.with_hostname(name) if name else accepted
            assert whole.sent == json.loads(HOSTNAME.fill(key, name) if name else key)
            assert codec.encode(whole.spec) == bytes(whole.encoded)


class Pair:
    """Two servers that are sent the same pods.

    The second one gets each spec with other white space, so its cache never has one.
    """

    def __init__(self, fast: Server, whole: Server) -> None:
        self.fast, self.whole = fast, whole
        self._sent = 0

    @classmethod
    async def start(cls, clock: Clock, log: Logger) -> "Pair":
        return cls(*[await server_with_objects(clock, log) for _ in range(2)])

    async def create(
        self, spec: Document, rest: Document, duplicate: str = "", **query: str
    ) -> bool:
        """Send both a pod and compare the answers; returns whether it was accepted."""
        self._sent += 1
        compact = codec.encode(spec)
        spaced = compact[:-1] + b" " * self._sent + b"}"
        metadata = {**rest.get("metadata", {}), "name": f"web-{self._sent}"}
        others = {name: value for name, value in rest.items() if name != "metadata"}
        first = await self.fast.create(PODS, body_of(others, metadata, compact, duplicate), **query)
        second = await self.whole.create(
            PODS, body_of(others, metadata, spaced, duplicate), **query
        )
        assert shown(first) == shown(second)
        return first.code == 201

    def check(self) -> None:
        assert cache_of(self.whole).reused == 0
        assert_unchanged(cache_of(self.fast))


CHOICES = [
    *(
        {"containers": [{**CONTAINER, name: each}]}
        for name in CONTAINERS
        for each in CONTAINERS[name]
    ),
    *({"containers": [CONTAINER], name: each} for name in SPEC for each in SPEC[name]),
]
RESTS = [
    *({"metadata": {name: each}} for name in METADATA for each in METADATA[name]),
    *({name: each} for name in REST for each in REST[name]),
]
TWICE = ['"metadata":{}', '"spec":{}', '"spec":{"containers":[]}', '"kind":"Pod"', '"status":{}']


async def test_cached_spec_of_each_kind_gives_the_same_answers(clock: Clock, log: Logger) -> None:
    pair = await Pair.start(clock, log)
    for spec in CHOICES:
        before = cache_of(pair.fast).reused
        accepted = [await pair.create(spec, {}) for _ in range(3)]
        assert accepted == [accepted[0]] * 3
        assert cache_of(pair.fast).reused - before == (accepted[0] and "unknown" not in spec)
    pair.check()


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
async def test_cached_spec_does_not_hide_faults_of_the_rest(
    clock: Clock, log: Logger, validation: str
) -> None:
    pair = await Pair.start(clock, log)
    spec = {"containers": [CONTAINER], "subdomain": "x"}
    for _ in range(2):
        await pair.create(spec, {})
    for rest in RESTS:
        await pair.create(spec, rest, fieldValidation=validation)
    for twice in TWICE:
        await pair.create(spec, {"kind": "Pod", "status": {}}, twice, fieldValidation=validation)
    assert cache_of(pair.fast).reused > len(RESTS) // 2
    pair.check()


@given(data=st.data(), spec=specs(), rests=st.lists(some_of(METADATA), max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_cached_spec_gives_the_same_answers(
    clock: Clock, log: Logger, data: st.DataObject, spec: Document, rests: list[Document]
) -> None:
    pair = await Pair.start(clock, log)
    for _ in range(2):
        await pair.create(spec, {}, dryRun=data.draw(st.sampled_from(["", "All"])))
    for metadata in rests:
        rest = {**data.draw(some_of(REST)), "metadata": metadata}
        validation = data.draw(st.sampled_from(["Strict", "Warn", "Ignore"]))
        twice = data.draw(st.sampled_from(["", *TWICE]))
        await pair.create(spec, rest, twice, fieldValidation=validation)
    pair.check()


async def test_pods_of_a_template_are_checked_twice(server: Server) -> None:
    """Each is decoded once and encoded once; the second pod fills the cache."""
    spec = {"containers": [{**CONTAINER, "args": ["checked twice"]}], "subdomain": "x"}
    looks, before = PROGRAMS.looks, (server.work.decodes, server.work.encodes)
    made = [await server.made(PODS, pod(f"web-{number}", **spec)) for number in range(10)]
    assert (server.work.decodes - before[0], server.work.encodes - before[1]) == (10, 10)
    assert (cache_of(server).reused, PROGRAMS.looks - looks) == (8, 1)
    assert len({json.dumps([item["spec"], item["status"]]) for item in made}) == 1
    assert len({item["metadata"]["uid"] for item in made}) == 10
    await server.made(PODS, pod("other", **spec, nodeName="node-1"))
    assert cache_of(server).reused == 8


async def test_pods_of_a_template_may_differ_in_host_name(clock: Clock, log: Logger) -> None:
    """Also where other members have that name, or the host name is in an unusual place or invalid."""
    pair = await Pair.start(clock, log)
    specs: list[Document] = [
        {"hostname": "NAME", "containers": [CONTAINER], "subdomain": "x"},
        {"containers": [CONTAINER], "hostname": "NAME"},
        {"nodeSelector": {"hostname": "NAME"}, "containers": [CONTAINER], "hostname": "NAME"},
        {"hostname": "NAME", "containers": [CONTAINER], "nodeSelector": {"hostname": "NAME"}},
        {"hostname": "web", "containers": [CONTAINER], "nodeSelector": {"hostname": "NAME"}},
        {"containers": [CONTAINER], "nodeSelector": {"hostname": "NAME"}},
    ]
    reused = []
    for spec in specs:
        before = cache_of(pair.fast).reused
        for name in ("a", "b", "a-1", "", "A", "-a", "a" * 63, "a" * 64, 'a"b', "é", "a", "b"):
            await pair.create(
                json.loads(json.dumps(spec).replace("NAME", json.dumps(name)[1:-1])), {}
            )
        reused.append(cache_of(pair.fast).reused - before)
    assert reused == [4, 4, 0, 0, 0, 0]
    pair.check()


async def test_members_of_a_job_are_checked_twice(server: Server) -> None:
    spec = {"containers": [{**CONTAINER, "args": ["a member"]}], "subdomain": "x"}
    looks, made = PROGRAMS.looks, []
    for number in range(10):
        name = f"web-{number}"
        sent = body_of({}, {"name": name}, codec.encode({**spec, "hostname": name}))
        made.append((await server.create(PODS, sent)).body["spec"])
    assert (cache_of(server).reused, PROGRAMS.looks - looks) == (8, 1)
    assert [item.pop("hostname") for item in made] == [f"web-{number}" for number in range(10)]
    assert made == [made[0]] * 10


async def test_condition_of_a_cached_spec_has_its_own_time(server: Server, clock: Clock) -> None:
    times = []
    for number in range(4):
        made = await server.made(PODS, pod(f"web-{number}", hostUsers=False))
        [condition] = made["status"]["conditions"]
        assert condition["lastTransitionTime"] == made["metadata"]["creationTimestamp"]
        times.append(condition["lastTransitionTime"])
        await clock.sleep(5)
    assert len(set(times)) == 4


async def test_cached_spec_gets_the_class_and_account_of_now(server: Server) -> None:
    async def made(name: str) -> Document:
        found: Document = (await server.made(PODS, pod(name)))["spec"]
        return found

    before = [await made(f"before-{number}") for number in range(3)]
    assert (before[2]["priority"], len(before[2]["volumes"])) == (0, 1)
    await server.made(CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    between = [await made(f"between-{number}") for number in range(2)]
    assert [spec["priority"] for spec in between] == [5, 5]
    await server.patch(f"{ACCOUNTS}/default", {"automountServiceAccountToken": False})
    after = [await made(f"after-{number}") for number in range(2)]
    assert ["volumes" in spec for spec in after] == [False, False]
    assert cache_of(server).reused == 3


async def test_cached_spec_is_refused_in_a_namespace_that_ends(server: Server) -> None:
    await server.made(NAMESPACES, {"metadata": {"name": "team", "finalizers": ["example.com/a"]}})
    path = f"{NAMESPACES}/team/pods"
    for number in range(3):
        await server.made(path, pod(f"web-{number}"))
    await server.delete(f"{NAMESPACES}/team")
    refused = await server.create(path, pod("late"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert (await server.create(f"{NAMESPACES}/none/pods", pod("late"))).code == 404


async def test_cached_spec_counts_on_its_node(server: Server) -> None:
    for number in range(3):
        await server.made(PODS, pod(f"web-{number}", nodeName="node-1"))
    [(node, pods, _)] = server.application.registry.node_capacity.sums()
    assert (node, pods) == ("node-1", 3)


async def test_refused_and_lenient_pods_leave_nothing(server: Server) -> None:
    for _ in range(3):
        assert (await server.create(PODS, pod(hostname="Not_A_Name"))).code == 422
    for number in range(3):
        lenient = pod(f"web-{number}", misspelt=1)
        assert (await server.create(PODS, lenient, fieldValidation="Ignore")).code == 201
    assert (len(cache_of(server)), cache_of(server).size_bytes) == (0, 0)


async def test_cache_of_specs_is_bounded(server: Server) -> None:
    cache = cache_of(server)
    large = {**CONTAINER, "args": ["x" * pod_spec_cache.SPEC_MAX_BYTES]}
    await server.made(PODS, pod("large", containers=[large]))
    assert len(cache) == 0
    usual = {**CONTAINER, "args": ["x" * (pod_spec_cache.SPEC_MAX_BYTES - 300)]}
    count = pod_spec_cache.SPECS_MAX_BYTES // pod_spec_cache.SPEC_MAX_BYTES + 20
    for number in range(count):
        spec = {"containers": [usual], "hostname": f"h{number}"}
        await server.made(PODS, pod(f"web-{number}", **spec))
    assert 0 < len(cache) < count
    assert pod_spec_cache.SPECS_MAX_BYTES - cache.size_bytes < pod_spec_cache.SPEC_MAX_BYTES
    assert cache.size_bytes <= pod_spec_cache.SPECS_MAX_BYTES


async def test_body_that_nests_too_deep_is_refused(server: Server) -> None:
    for number in range(3):
        await server.made(PODS, pod(f"web-{number}"))
    spec = json.dumps(pod()["spec"]).encode()
    deep = json.loads('{"a":' * 70 + "1" + "}" * 70)
    refused = await server.create(PODS, body_of({"status": deep}, {"name": "deep"}, spec))
    assert (refused.code, "nests deeper" in refused.message) == (400, True)
