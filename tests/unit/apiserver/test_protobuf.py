"""What typed Go clients send must become the very document that JSON would have given."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.apiserver.server import CONFIGMAPS, PODS, Server, pod

from grange.api import schema
from grange.api.kinds import BUILT_IN
from grange.api.status import ApiError, BadRequest, TooLarge, UnsupportedMediaType
from grange.apiserver import protobuf


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 0xFFFF_FFFF_FFFF_FFFF
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    body = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(body)) + body


def pair(field: int, key: str, value: str | bytes) -> bytes:
    return text(field, text(1, key) + text(2, value))


def wrapped(api_version: str, kind: str, raw: bytes) -> bytes:
    unknown = text(1, text(1, api_version) + text(2, kind)) + text(2, raw) + text(3, "")
    return b"k8s\x00" + unknown + text(4, "")


def named(name: str) -> bytes:
    """Metadata as Go sends it: with every empty string and the zero time."""
    labels = pair(11, "app", "web")
    zero_time = text(8, b"")
    return text(1, text(1, name) + text(2, "") + text(3, "") + number(7, 0) + zero_time + labels)


META = {"name": "x", "labels": {"app": "web"}}


def test_configmap_is_read() -> None:
    raw = named("x") + pair(2, "a", "b") + pair(2, "c", "") + pair(3, "d", b"\x00\xff")
    assert protobuf.decode(wrapped("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": META,
        "data": {"a": "b", "c": ""},
        "binaryData": {"d": "AP8="},
    }


def test_secret_holds_base64_as_in_json() -> None:
    raw = named("x") + pair(2, "password", "hunter2") + text(3, "Opaque") + number(5, 0)
    read = protobuf.decode(wrapped("v1", "Secret", raw))
    assert read["data"] == {"password": "aHVudGVyMg=="}
    assert (read["type"], read["immutable"]) == ("Opaque", False)


def test_service_with_ports_of_both_kinds_is_read() -> None:
    named_port = text(1, "http") + number(3, 80) + text(4, number(1, 1) + text(3, "web"))
    plain_port = number(3, 81) + text(4, number(1, 0) + number(2, 8081) + text(3, ""))
    spec = text(1, named_port) + text(1, plain_port + number(5, 0)) + pair(2, "app", "web")
    spec += text(4, "ClusterIP") + text(17, "") + number(13, 0)
    read = protobuf.decode(wrapped("v1", "Service", named("x") + text(2, spec)))
    assert read["spec"] == {
        "ports": [
            {"name": "http", "port": 80, "targetPort": "web"},
            {"port": 81, "targetPort": 8081},
        ],
        "selector": {"app": "web"},
        "type": "ClusterIP",
        "ipFamilyPolicy": "",
    }


def test_zero_of_a_pointer_is_kept_because_it_means_something() -> None:
    uid = text(2, text(1, "u"))
    raw = number(1, 0) + uid + number(3, 0) + text(5, "All")
    assert protobuf.decode(wrapped("v1", "DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "orphanDependents": False,
        "dryRun": ["All"],
    }


def test_numbers_are_signed_and_times_are_instants() -> None:
    meta = text(1, text(1, "x") + number(10, -5) + text(9, number(1, 1_767_225_600)))
    read = protobuf.decode(wrapped("v1", "Namespace", meta + text(2, text(1, "kubernetes"))))
    assert read["metadata"]["deletionGracePeriodSeconds"] == -5
    assert read["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    assert read["spec"] == {"finalizers": ["kubernetes"]}


def test_fields_of_newer_versions_are_skipped() -> None:
    newer = number(90, 7) + text(91, "x") + varint(92 << 3 | 1) + b"12345678"
    newer += varint(93 << 3 | 5) + b"1234"
    assert protobuf.decode(wrapped("v1", "ConfigMap", newer + named("x")))["metadata"] == META


@pytest.mark.parametrize(
    ("version", "kind"),
    [("grange.dev/v1alpha1", "Queue"), ("apps/v1", "Deployment"), ("v2", "Pod")],
)
def test_kind_that_is_not_known_is_refused_with_advice(version: str, kind: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=rf"reads {kind} as JSON.*kubectl apply -f"):
        protobuf.decode(wrapped(version, kind, named("x")))


def test_pod_is_read() -> None:
    """As Go sends it: plain fields even where they are zero, pointers only where they are set."""
    quantity = pair(1, "cpu", text(1, "250m"))
    probe = text(1, text(2, text(1, "/ok") + text(2, number(1, 0) + number(2, 80)))) + number(2, 0)
    selector = text(1, text(1, "settings")) + text(2, "key")
    env = text(1, "A") + text(2, "") + text(3, text(3, selector))
    container = text(1, "main") + text(2, "img") + text(3, "/bin/app") + text(5, "")
    container += text(7, env) + text(8, quantity) + text(10, probe) + number(16, 0)
    volume = text(1, "data") + text(2, text(19, text(1, text(1, "settings"))))
    common = text(1, "debug") + text(2, "img")
    spec = text(1, volume) + text(2, container) + text(3, "Always") + number(4, 0)
    spec += pair(7, "zone", "a") + number(11, 0) + text(34, text(1, common) + text(2, "main"))
    owner = text(1, "Job") + text(3, "j") + text(4, "u") + text(5, "batch/v1") + number(6, 1)
    managed = text(1, "op") + text(4, number(1, 1_767_225_600)) + text(7, text(1, '{"f:a":{}}'))
    meta = text(1, text(1, "x") + text(13, owner) + text(17, managed))
    assert protobuf.decode(wrapped("v1", "Pod", meta + text(2, spec) + text(3, text(1, "")))) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "ownerReferences": [
                {
                    "kind": "Job",
                    "name": "j",
                    "uid": "u",
                    "apiVersion": "batch/v1",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "op", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:a": {}}}
            ],
        },
        "spec": {
            "volumes": [{"name": "data", "configMap": {"name": "settings"}}],
            "containers": [
                {
                    "name": "main",
                    "image": "img",
                    "command": ["/bin/app"],
                    "env": [
                        {
                            "name": "A",
                            "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "key"}},
                        }
                    ],
                    "resources": {"limits": {"cpu": "250m"}},
                    "livenessProbe": {"httpGet": {"path": "/ok", "port": 80}},
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"zone": "a"},
            "ephemeralContainers": [
                {"name": "debug", "image": "img", "targetContainerName": "main"}
            ],
        },
        "status": {},
    }


def test_budget_and_lease_are_read() -> None:
    spec = text(1, number(1, 1) + number(2, 0) + text(3, "50%")) + text(2, pair(1, "app", "web"))
    read = protobuf.decode(wrapped("policy/v1", "PodDisruptionBudget", named("x") + text(2, spec)))
    assert read["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    renewed = text(4, number(1, 1_767_225_600) + number(2, 123_456_789))
    spec = text(1, "me") + number(2, 15) + renewed + number(5, 0)
    read = protobuf.decode(wrapped("coordination.k8s.io/v1", "Lease", named("x") + text(2, spec)))
    assert read["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z",
        "leaseTransitions": 0,
    }


def test_required_zeros_are_kept() -> None:
    """A status without exitCode would be refused."""
    ended = text(3, number(1, 0) + number(2, 0) + text(3, ""))
    container = text(1, "main") + text(2, ended) + number(4, 0) + number(5, 0) + text(6, "")
    status = text(8, container + text(7, ""))
    read = protobuf.decode(wrapped("v1", "Pod", named("x") + text(3, status)))
    assert read["status"]["containerStatuses"] == [
        {
            "name": "main",
            "state": {"terminated": {"exitCode": 0}},
            "ready": False,
            "restartCount": 0,
            "image": "",
            "imageID": "",
        }
    ]


SAMPLES = {
    "int": b"\x01",
    "bool": b"\x01",
    "string": text(0, "a")[1:],
    "bytes": text(0, "a")[1:],
    "quantity": text(0, text(1, "1"))[1:],
    "time": text(0, number(1, 1_767_225_600))[1:],
    "microtime": text(0, number(1, 1_767_225_600))[1:],
    "json": text(0, text(1, '{"a":"b"}'))[1:],
    "int-or-string": text(0, number(2, 80))[1:],
}


def sample(lines: dict[str, str], name: str) -> bytes:
    """A message with every field set, from the lines of the table."""
    out = b""
    for field in lines[name].split()[1:]:
        number_, _, kind = field.split(":")
        kind = kind.rstrip("?!")
        plain = kind.removeprefix("[]").removeprefix("{}").removeprefix("=")
        value = SAMPLES.get(plain) or text(0, sample(lines, plain))[1:]
        wire = 0 if plain in ("int", "bool") else 2
        if kind.startswith("{}"):
            value, wire = text(0, text(1, "k") + varint(2 << 3 | wire) + value)[1:], 2
        out += varint(int(number_) << 3 | wire) + value
    return out


def test_every_field_that_is_read_is_one_of_the_schema() -> None:
    table = Path(protobuf.__file__).with_name("protobuf_messages.txt").read_text().splitlines()
    lines = {line.partition(" ")[0]: line for line in table if line[0] not in "#@"}
    bodies = [line[1:].split() for line in table if line.startswith("@")]
    kinds = {(info.api_version, info.kind): info for info in BUILT_IN}
    checked = set()
    for version, kind, message in bodies:
        document = protobuf.decode(wrapped(version, kind, sample(lines, message)))
        if info := kinds.get((version, kind)):
            assert schema.check(document, info) == []
            checked.add(kind)
    own = {info.kind for info in BUILT_IN if info.schema in info.definitions}
    assert {info.kind for info in BUILT_IN} - own == checked


def test_number_of_fields_is_bounded() -> None:
    body = wrapped("v1", "ConfigMap", number(4, 1) * protobuf.FIELDS_MAX)
    with pytest.raises(TooLarge, match="fields"):
        protobuf.decode(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "magic"),
        (b"k8s\x00\x0a\x05ab", "too early"),
        (b"k8s\x00\xff", "middle of a number"),
        (b"k8s\x00\x0b", "wire type 3"),
        (wrapped("v1", "ConfigMap", text(1, text(1, b"\xff"))), "UTF-8"),
        (wrapped("v1", "ConfigMap", number(1, 5)), "message was expected"),
        (wrapped("v1", "ConfigMap", text(4, "x")), "number was expected"),
        (wrapped("v1", "ConfigMap", text(1, text(8, number(1, 1 << 62)))), "out of range"),
    ],
)
def test_damaged_body_is_a_bad_request_that_names_the_damage(body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        protobuf.decode(body)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["ConfigMap", "Service", "DeleteOptions", ""]))
def test_any_bytes_are_read_or_refused_in_words(raw: bytes, kind: str) -> None:
    for body in (raw, b"k8s\x00" + raw, wrapped("v1", kind, raw)):
        with suppress(ApiError):
            protobuf.decode(body)


async def test_server_takes_protobuf_for_writes_and_deletes(server: Server) -> None:
    body = wrapped("v1", "ConfigMap", named("x") + pair(2, "a", "b"))
    made = await server.ask("POST", CONFIGMAPS, body, media=protobuf.MEDIA_TYPE)
    assert (made.code, made.body["data"]) == (201, {"a": "b"})
    wrong = wrapped("v1", "DeleteOptions", text(2, text(1, "other")))
    path = f"{CONFIGMAPS}/x"
    assert (await server.ask("DELETE", path, wrong, media=protobuf.MEDIA_TYPE)).code == 409
    right = wrapped("v1", "DeleteOptions", number(1, 0))
    assert (await server.ask("DELETE", path, right, media=protobuf.MEDIA_TYPE)).code == 200
    wrong = wrapped("grange.dev/v1alpha1", "Queue", b"")
    answer = await server.ask("POST", PODS, wrong, media=protobuf.MEDIA_TYPE)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


async def test_pod_in_protobuf_is_created_and_its_status_written(server: Server) -> None:
    await server.made(PODS, pod("other"))
    spec = text(2, text(1, "main") + text(3, "/bin/app"))
    body = wrapped("v1", "Pod", named("x") + text(2, spec))
    made = await server.ask("POST", PODS, body, media=protobuf.MEDIA_TYPE)
    assert (made.code, made.body["spec"]["restartPolicy"]) == (201, "Always")
    status = wrapped("v1", "Pod", named("x") + text(3, text(1, "Running")))
    done = await server.ask("PUT", f"{PODS}/x/status", status, media=protobuf.MEDIA_TYPE)
    assert (done.code, done.body["status"]["phase"]) == (200, "Running")
