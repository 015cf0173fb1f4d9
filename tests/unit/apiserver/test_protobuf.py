"""What typed Go clients send must become the very document that JSON would have given."""

from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.apiserver.server import CONFIGMAPS, PODS, Server, pod

from grange.api.status import ApiError, BadRequest, UnsupportedMediaType
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


def test_fields_of_newer_versions_are_skipped_whatever_their_type() -> None:
    newer = number(90, 7) + text(91, "x") + varint(92 << 3 | 1) + b"12345678"
    newer += varint(93 << 3 | 5) + b"1234"
    assert protobuf.decode(wrapped("v1", "ConfigMap", newer + named("x")))["metadata"] == META


def test_kind_that_is_not_known_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedMediaType, match=r"reads Pod as JSON.*kubectl apply -f"):
        protobuf.decode(wrapped("v1", "Pod", named("x")))


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
def test_damaged_body_is_a_bad_request_that_says_how(body: bytes, why: str) -> None:
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
    await server.made(PODS, pod())
    answer = await server.ask("POST", PODS, wrapped("v1", "Pod", b""), media=protobuf.MEDIA_TYPE)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
