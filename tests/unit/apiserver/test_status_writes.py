"""Status writes of pods leave the spec raw and change no answer by it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.unit.apiserver.server import PODS, Server, pod

from grange.api import codec, http
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.patch import merge_patch, strategic
from grange.api.status import ApiError
from grange.apiserver.object_parts import status_part
from grange.apiserver.registry import Place
from grange.apiserver.write_options import WriteOptions
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

PATH = f"{PODS}/web"
PLACE = Place(POD, "default", "web")
READY: Document = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
RUNNING: Document = {"name": "main", "ready": True, "restartCount": 0, "image": "a", "imageID": ""}

# The choices of some fields. Some are refused, some are warned about.
STATUS: dict[str, tuple[Any, ...]] = {
    "phase": ("Running", "Failed", "", None, 7),
    "qosClass": (None, "BestEffort", "Odd"),
    "conditions": (
        [READY],
        [{**READY, "type": "Other"}, {**READY, "status": "False", "reason": None}],
        [{"$patch": "delete", "type": "Ready"}],
        [{"$patch": "replace"}, READY],
        [{"status": "True"}],
        None,
        {},
    ),
    "containerStatuses": (
        [RUNNING],
        [{**RUNNING, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "unknown": 1}],
        [{"name": "main"}],
    ),
    "podIPs": ([{"ip": "10.0.0.1"}], [{"$patch": "replace"}, {"ip": "10.0.0.2"}]),
    "$retainKeys": (["phase"], 7),
    "unknown": (1, None),
}
TOP: dict[str, tuple[Any, ...]] = {
    "apiVersion": ("v1", "v2", None),
    "kind": ("Pod", "Node"),
    "metadata": (
        {"uid": "other"},
        {"resourceVersion": "1"},
        {"labels": {"a": "b"}},
        {"finalizers": None, "name": "web"},
        {"name": "other"},
        None,
        7,
    ),
    "spec": ({"containers": [{"name": "main", "image": "b"}]}, {"$patch": "delete"}, None, 7),
    "$patch": ("delete", "replace", "merge"),
    "$retainKeys": (["metadata", "status"],),
    "unknown": (1,),
}
SPEC: dict[str, tuple[Any, ...]] = {
    "nodeName": ("node-1",),
    "hostNetwork": (True,),
    "volumes": ([{"name": "data"}],),
    "initContainers": ([{"name": "first", "image": "a", "command": ["true"]}],),
}


@st.composite
def some_of(draw: st.DrawFn, fields: dict[str, tuple[Any, ...]]) -> Document:
    names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True))
    return {name: draw(st.sampled_from(fields[name])) for name in names}


@st.composite
def changes(draw: st.DrawFn) -> Document:
    status = draw(st.one_of(some_of(STATUS), st.sampled_from(({}, None, 7))))
    return {**draw(some_of(TOP)), "status": status}


async def server_with_pod(clock: Clock, log: Logger, spec: Document) -> Server:
    server = Server(clock=clock, rng=Stream(1), log=log)
    await server.application.bootstrap()
    await server.made(PODS, pod(**spec))
    return server


async def outcome(
    server: Server, change: Callable[[Document], Document], *, keeps_spec: bool, **options: Any
) -> tuple[object, ...]:
    """Everything that a caller sees of a write, and the stored object."""
    registry = server.application.registry
    given = WriteOptions(**options)
    seen: tuple[object, ...]
    try:
        written = await registry.update(
            PLACE, change, given, part=status_part, verb="patch", keeps_spec=keeps_spec
        )
        seen = (written.value, written.warnings, written.removed)
    except ApiError as error:
        seen = (codec.encode_any(error.status().document()),)
    entry = server.store.latest(PLACE.key)
    return (*seen, entry and entry.value)


def change_of(how: str, body: Document) -> Callable[[Document], Document]:
    given = codec.clone(body)
    if how == "strategic":
        return lambda old: strategic.apply(old, given, POD.schema)
    if how == "merge":
        return lambda old: merge_patch.apply(old, given)
    return lambda _old: given


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    some_of(SPEC),
    st.lists(st.tuples(st.sampled_from(("strategic", "merge", "put")), changes()), max_size=3),
    st.sampled_from(("Strict", "Warn", "Ignore")),
    st.booleans(),
)
async def test_status_writes_are_the_same_with_a_raw_spec(
    clock: Clock,
    log: Logger,
    spec: Document,
    steps: list[tuple[str, Document]],
    validation: str,
    large: bool,
) -> None:
    fast, whole = [await server_with_pod(clock, log, spec) for _ in range(2)]
    for how, body in steps:
        options = {"field_validation": validation, "large": large}
        seen = [
            await outcome(server, change_of(how, body), keeps_spec=server is fast, **options)
            for server in (fast, whole)
        ]
        assert seen[0] == seen[1]


@pytest.mark.parametrize("how", [http.STRATEGIC_MERGE_PATCH, http.MERGE_PATCH, "put"])
async def test_status_write_of_a_pod_leaves_its_spec_raw(server: Server, how: str) -> None:
    made = await server.made(PODS, pod(nodeName="node-1"))
    work = server.work
    before = (work.decodes, work.outlines, work.encodes)
    if how == "put":
        answer = await server.update(
            f"{PATH}/status", {**made, "status": {**made["status"], "phase": "Running"}}
        )
        received = 1
    else:
        answer = await server.patch(f"{PATH}/status", {"status": {"phase": "Running"}}, media=how)
        received = 0
    assert answer.body["status"]["phase"] == "Running"
    after = (work.decodes, work.outlines, work.encodes)
    assert [now - then for now, then in zip(after, before, strict=True)] == [1 + received, 1, 1]
    made["status"]["phase"] = "Running"
    made["metadata"]["resourceVersion"] = answer.version
    assert answer.body == made


async def test_status_write_of_another_kind_of_patch_reads_the_spec(server: Server) -> None:
    made = await server.made(PODS, pod())
    operations = [
        {"op": "test", "path": "/spec/schedulerName", "value": made["spec"]["schedulerName"]},
        {"op": "copy", "from": "/spec/schedulerName", "path": "/status/message"},
    ]
    answer = await server.patch(f"{PATH}/status", operations, media=http.JSON_PATCH)
    assert answer.body["status"]["message"] == made["spec"]["schedulerName"]
    assert server.work.outlines == 0


async def test_status_without_quality_of_service_gets_it_from_the_spec(server: Server) -> None:
    requests = {"resources": {"requests": {"cpu": "1"}}}
    made = await server.made(PODS, pod(containers=[{"name": "a", "command": ["a"], **requests}]))
    answer = await server.update(f"{PATH}/status", {**made, "status": {"phase": "Running"}})
    assert answer.body["status"] == {"phase": "Running", "qosClass": "Burstable"}
