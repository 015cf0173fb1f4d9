"""Views of pods with shared specs are the views that decoding in full gives."""

import json
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod, PodSpec
from grange.client import pod_views, requests
from grange.client.pod_views import PodViews
from grange.client.watcher import UNDECODABLE, Frames

CONTAINER = {"name": "main", "image": "web:1", "command": ["serve"]}
NAMES = (
    "n1",
    "n2",
    "node-3.example.com",
    "",
    'a"b',
    "a\\b",
    "é",
    "a\n",
    ' ,"nodeName":"n1',
    None,
    7,
)
# The choices of some fields; some do not fit the view.
SPEC: dict[str, tuple[Any, ...]] = {
    "nodeName": NAMES,
    "nodeSelector": (
        {"nodeName": "n1"},
        {"nodeName": "n2", "hostname": "h1"},
        {"a": '"nodeName":"n1"'},
        {"hostname": "h2"},
        {},
        7,
    ),
    "securityContext": ({"nodeName": "n1"}, {"nodeName": "", "runAsUser": 1}, {}),
    "unknown": ({"nodeName": "n1"}, {"nodeName": "n2"}, [{"nodeName": ""}], '"nodeName":"n1"'),
    "tolerations": ([{"key": "a", "tolerationSeconds": 300}], [{"tolerationSeconds": "x"}]),
    "hostname": ("h1", "h2", "H", "", 'a"b', 7),
    "hostNetwork": (True,),
    "containers": ([CONTAINER], [{**CONTAINER, "image": "web:2"}], [], [{}], None),
}


@st.composite
def specs(draw: st.DrawFn) -> bytes:
    """Bytes of a spec: any order of fields, perhaps one twice."""
    names = draw(st.lists(st.sampled_from(sorted(SPEC)), max_size=5))
    members = [(name, draw(st.sampled_from(SPEC[name]))) for name in names]
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "))))
    texts = [
        f"{json.dumps(name)}{separators[1]}"
        f"{json.dumps(value, separators=separators, ensure_ascii=draw(st.booleans()))}"
        for name, value in members
    ]
    return ("{" + separators[0].join(texts) + "}").encode()


_versions = count(1)


def pod_of(spec: bytes) -> bytes:
    """A version of a pod that no other test has: only its spec may be cached."""
    meta = b'{"name":"p","namespace":"ns","resourceVersion":"%d"}' % next(_versions)
    return b'{"metadata":%b,"spec":%b,"status":{"phase":"Running"}}' % (meta, spec)


def seen(decode: Any, body: bytes) -> object:
    try:
        pod: Pod = decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return str(error)
    return pod, msgspec.json.encode(pod)  # 1 and true are equal


FULL = msgspec.json.Decoder(Pod).decode


@settings(max_examples=200, deadline=None)
@given(st.lists(specs(), min_size=1, max_size=6))
def test_views_are_those_of_decoding_in_full(given_specs: list[bytes]) -> None:
    views = PodViews()
    for spec in given_specs * 3:
        body = pod_of(spec)
        for _ in range(2):  # the second view is the cached one
            assert seen(views.decode, body) == seen(FULL, body)


@settings(max_examples=100, deadline=None)
@given(specs(), st.lists(st.sampled_from(NAMES), min_size=3, max_size=6))
def test_views_differ_in_the_node_alone(spec: bytes, nodes: list[Any]) -> None:
    """Also where the name of the node is a member of something else."""
    views = PodViews()
    for place in (b'"nodeName":"n1"', b'"nodeName":""', b"}"):
        for node in nodes:
            text = b'"nodeName":' + json.dumps(node).encode()
            body = pod_of(spec.replace(place, text if place != b"}" else b"," + text + b"}", 1))
            assert seen(views.decode, body) == seen(FULL, body)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"spec":null}', b'{"spec":7}', pod_of(b'{"priority":"x"}')]
)
def test_bodies_that_are_no_pods_are_errors_as_ever(body: bytes) -> None:
    assert seen(PodViews().decode, body) == seen(FULL, body)


def spec_of(node: str = "", image: str = "web:1") -> bytes:
    spec = {"containers": [{**CONTAINER, "image": image}], "hostname": "h"}
    return msgspec.json.encode({**spec, "nodeName": node} if node else spec)


def test_specs_of_a_template_are_decoded_twice() -> None:
    views = PodViews()
    waiting = [views.decode(pod_of(spec_of())) for _ in range(10)]
    assert views.decodes == 2
    assert len({id(pod.spec) for pod in waiting[1:]}) == 1
    bound = [views.decode(pod_of(spec_of(f"node-{number}"))) for number in range(10)]
    assert views.decodes == 4
    assert len({id(pod.spec.containers) for pod in bound[2:]}) == 1
    assert [pod.spec.node_name for pod in bound] == [f"node-{number}" for number in range(10)]


def test_specs_of_a_jobs_members_are_decoded_twice() -> None:
    views = PodViews()

    def member(number: int, node: str) -> bytes:
        return pod_of(spec_of(node).replace(b'"hostname":"h"', b'"hostname":"h-%d"' % number))

    waiting = [views.decode(member(number, "")) for number in range(10)]
    assert views.decodes == 2
    bound = [views.decode(member(number, f"node-{number}")) for number in range(10)]
    assert views.decodes == 4
    assert len({id(pod.spec.containers) for pod in [*waiting[2:], *bound[2:]]}) == 2
    assert [pod.spec.hostname for pod in waiting] == [f"h-{number}" for number in range(10)]
    names = [(pod.spec.hostname, pod.spec.node_name) for pod in bound]
    assert names == [(f"h-{number}", f"node-{number}") for number in range(10)]


def test_one_version_of_a_pod_is_decoded_once() -> None:
    """Its write is answered with it, and each watch of the process shows it."""
    body = pod_of(spec_of(image="once:1"))
    answer = requests.decode_object(Pod, body, "pod")
    before = pod_views.PODS.decodes, pod_views.PODS.reused
    line = b'{"type":"MODIFIED","object":%b}\n' % body
    events = [*Frames(POD).feed(line), *Frames(POD).feed(line + b"\n")]
    assert [event.object is answer for event in events] == [True, True]
    assert (pod_views.PODS.decodes, pod_views.PODS.reused - 2) == before


def test_views_of_whole_pods_take_bounded_memory() -> None:
    views = PodViews()
    large = [pod_of(spec_of(image="x" * 300_000)) for _ in range(3)]
    for body in large:
        assert views.decode(body) is views.decode(body)
    known = views.reused
    views.decode(large[0])
    assert views.reused == known
    small = [pod_of(b"{}") for _ in range(2_000)]
    for body in small:
        views.decode(body)
    views.decode(small[-513])
    assert views.reused == known


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ADDED","object":%b,"more":1}',
        b'{"object":%b,"type":"ADDED"}',
        b'{ "type": "ADDED", "object": %b }',
    ],
)
def test_events_of_other_forms_are_read_as_well(line: bytes) -> None:
    body = pod_of(spec_of())
    (event,) = Frames(POD).feed(line % body + b"\n")
    assert (event.type, event.object) == ("ADDED", FULL(body))


def test_making_an_entry_decodes_no_spec_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        decoded = 0

        def decode(self, body: bytes) -> PodSpec:
            self.decoded += 1
            return FULL(pod_of(body)).spec

    counting = Counting()
    monkeypatch.setattr(pod_views, "_specs", counting)
    views = PodViews()
    for number in range(10):
        views.decode(pod_of(spec_of(f"node-{number}")))
    assert counting.decoded == views.decodes == 2


def test_specs_that_come_once_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_views, "SPECS_MAX_BYTES", 2_000)
    views = PodViews()
    for number in range(100):
        body = pod_of(spec_of(f"node-{number}", f"web:{number}"))
        assert views.decode(body) == FULL(body)
        assert views.size_bytes <= 2_000
    assert 0 < len(views) < 30
    large = pod_of(spec_of(image="x" * pod_views.SPEC_MAX_BYTES))
    known = len(views)
    for _ in range(3):
        assert views.decode(large) == FULL(large)
    assert len(views) == known


def test_lists_and_watches_of_pods_share_specs() -> None:
    bodies = [pod_of(spec_of(f"node-{number}", "shared:1")) for number in range(10)]
    listed = b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % b",".join(bodies)
    requests.decode_list(POD, listed)
    before = pod_views.PODS.decodes
    page = requests.decode_list(POD, listed)
    lines = b"".join(b'{"type":"MODIFIED","object":%b}\n' % body for body in bodies)
    events = Frames(POD).feed(lines)
    answer = requests.decode_object(Pod, bodies[0], "pod")
    assert pod_views.PODS.decodes == before
    pods = [*page.items, *[event.object for event in events], answer]
    assert pods == [FULL(body) for body in (*bodies, *bodies, bodies[0])]
    assert len({id(pod.spec.containers) for pod in pods}) == 1


def test_pods_that_do_not_fit_the_view_are_left_out_one_by_one() -> None:
    good, bad = pod_of(spec_of()), pod_of(b'{"containers":7}')
    page = requests.decode_list(POD, b'{"items":[%b,%b]}' % (bad, good))
    assert page.items == [FULL(good)]
    assert "$.spec.containers" in page.undecodable[0]
    lines = b'{"type":"ADDED","object":%b}\n{"type":"ADDED","object":%b}\n' % (bad, good)
    events = Frames(POD).feed(lines)
    assert [event.type for event in events] == [UNDECODABLE, "ADDED"]
    assert events[0].object.key == events[1].object.key


@pytest.mark.parametrize(
    "spec",
    [
        b'{"nodeSelector":{"nodeName":"%b"}}',
        b'{"nodeName":"x","nodeSelector":{"nodeName":"%b"}}',
        b'{"nodeName":"x","unknown":{"nodeName":"%b"}}',
        b'{"nodeName":"x","nodeName":"%b"}',
        b'{"nodeName":"x","hostname":"y","nodeSelector":{"hostname":"%b"}}',
        b'{"nodeSelector":{"nodeName":"%b"},"hostname":"y"}',
        b'{"hostname":"x","nodeName":"%b"}',
    ],
)
def test_only_the_last_name_of_the_spec_itself_counts(spec: bytes) -> None:
    views = PodViews()
    for node in ("n1", "", "", "n1", "x", "n1"):
        body = pod_of(spec % node.encode())
        assert seen(views.decode, body) == seen(FULL, body)
