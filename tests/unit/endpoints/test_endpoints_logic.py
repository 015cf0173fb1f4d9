"""Which endpoints a Service has."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from grange.api.kinds.endpointslice import EndpointSlice
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.controllers.endpoints import logic


def service(*ports: dict[str, Any], **spec: Any) -> Service:
    given_ports = list(ports) or [{"name": "http", "port": 80, "targetPort": 8080}]
    document = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"selector": {"app": "web"}, "ports": given_ports, **spec},
    }
    return msgspec.convert(document, Service)


def pod(
    name: str,
    ip: str = "127.9.0.1",
    *,
    ready: bool = True,
    phase: str = "Running",
    deleted: bool = False,
    **spec: Any,
) -> Pod:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {
        "podIP": ip,
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    containers = spec.pop("containers", [{"name": "main"}])
    spec = {"containers": containers, "nodeName": "vm-1", **spec}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def applied(wanted: list[logic.WantedSlice]) -> list[EndpointSlice]:
    documents = [
        {
            "metadata": {"name": item.name, "namespace": "default"},
            "addressType": "IPv4",
            "endpoints": list(item.endpoints),
            "ports": list(item.ports),
        }
        for item in wanted
    ]
    return [msgspec.convert(document, EndpointSlice) for document in documents]


def names(wanted: list[logic.WantedSlice]) -> list[list[str]]:
    return [[item["targetRef"]["name"] for item in found.endpoints] for found in wanted]


def test_endpoint_states_where_a_pod_is_and_how_it_is() -> None:
    [found] = logic.slices(service(), [pod("a", hostname="a", subdomain="web")], [])
    assert found.ports == ({"name": "http", "port": 8080, "protocol": "TCP"},)
    assert found.endpoints == (
        {
            "addresses": ["127.9.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "a", "uid": "uid-a"},
            "nodeName": "vm-1",
            "hostname": "a",
        },
    )


@pytest.mark.parametrize(
    ("ready", "deleted", "publish", "conditions"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, False, (False, False, True)),
        (False, False, True, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
)
def test_conditions_follow_kep_1672(
    ready: bool, deleted: bool, publish: bool, conditions: tuple[bool, bool, bool]
) -> None:
    [found] = logic.slices(
        service(publishNotReadyAddresses=publish), [pod("a", ready=ready, deleted=deleted)], []
    )
    [endpoint] = found.endpoints
    assert tuple(endpoint["conditions"].values()) == conditions


def test_pods_that_cannot_be_reached_are_left_out() -> None:
    pods = [pod("a", ip=""), pod("b", phase="Failed"), pod("c", phase="Succeeded")]
    assert logic.slices(service(), pods, []) == []
    assert logic.subsets(service(), pods) == ([], False)


def test_named_ports_are_those_of_each_pod() -> None:
    """During an update two ports of one name are in use."""
    named = service({"name": "http", "port": 80, "targetPort": "web"}, {"name": "x", "port": 81})
    pods = [
        pod("a", containers=[{"name": "m", "ports": [{"name": "web", "containerPort": 8080}]}]),
        pod("b", containers=[{"name": "m", "ports": [{"name": "web", "containerPort": 9090}]}]),
        pod("c"),
    ]
    found = logic.slices(named, pods, [])
    assert sorted((ports[0]["port"], len(ports)) for ports in (item.ports for item in found)) == [
        (81, 1),
        (8080, 2),
        (9090, 2),
    ]
    assert sorted(names(found)) == [["a"], ["b"], ["c"]]
    subsets, _ = logic.subsets(named, pods)
    assert len(subsets) == 3


def test_legacy_object_has_ready_and_waiting_addresses() -> None:
    pods = [pod("a"), pod("b", "127.9.0.2", ready=False), pod("c", "127.9.0.3", deleted=True)]
    [subset], is_over = logic.subsets(service(), pods)
    assert [item["ip"] for item in subset["addresses"]] == ["127.9.0.1"]
    assert [item["ip"] for item in subset["notReadyAddresses"]] == ["127.9.0.2"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert not is_over


def test_objects_are_bounded() -> None:
    pods = [pod(f"p-{n:04}", f"127.9.{n // 250}.{n % 250 + 1}") for n in range(2_001)]
    found = logic.slices(service(), pods, [])
    assert sorted(len(item.endpoints) for item in found) == [1, 1000, 1000]
    [subset], is_over = logic.subsets(service(), pods)
    assert len(subset["addresses"]) == 1000
    assert is_over


def test_one_pods_change_is_one_slices_change() -> None:
    pods = [pod(f"p-{n:04}", f"127.9.{n // 250}.{n % 250 + 1}") for n in range(2_000)]
    before = logic.slices(service(), pods, [])
    after = logic.slices(service(), pods[1:], applied(before))
    assert len([1 for a, b in zip(before, after, strict=True) if a != b]) == 1
    refilled = logic.slices(service(), [*pods[1:], pod("q")], applied(after))
    assert len([1 for a, b in zip(after, refilled, strict=True) if a != b]) == 1


PODS = st.lists(
    st.builds(
        pod,
        st.integers(0, 30).map(lambda number: f"p-{number}"),
        st.sampled_from(["", "127.9.0.1", "127.9.0.2"]),
        ready=st.booleans(),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        deleted=st.booleans(),
    ),
    unique_by=lambda item: item.metadata.name,
    max_size=12,
)


@given(PODS, PODS)
def test_every_reachable_pod_is_one_endpoint(before: list[Pod], after: list[Pod]) -> None:
    first = logic.slices(service(), before, [])
    found = logic.slices(service(), after, applied(first))
    listed = [name for group in names(found) for name in group]
    assert sorted(listed) == sorted(p.metadata.name for p in after if logic.is_endpoint(p))
    assert logic.slices(service(), after, applied(found)) == found  # nothing more to do
