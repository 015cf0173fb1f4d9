"""What the pods of a session look like."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.testsession.session_simulator import WORKER, session_document

from grange.api.kinds.machinelease import LeasedMachine, PoolRequest
from grange.api.kinds.testsession import TestSession
from grange.api.meta import Document
from grange.controllers.testsession import component_pods
from grange.controllers.testsession.component_documents import (
    SessionContext,
    attempt_files,
    driver_files,
    pod_document,
)
from grange.controllers.testsession.component_pods import ComponentPod, WorkerAddress

MOUNT = "/var/run/grange-session"


def context(**spec: Any) -> SessionContext:
    """The context of a session's first attempt."""
    session = msgspec.convert(session_document(**spec), TestSession)
    return SessionContext(session, 0, environment={"GRANGE_SESSION_URL": "http://s"})


def pods(of: SessionContext) -> dict[str, ComponentPod]:
    return {pod.member: pod for pod in component_pods.component_pods(of.session)}


def workers(of: SessionContext, *addresses: str) -> list[WorkerAddress]:
    listed = [pod for pod in component_pods.component_pods(of.session) if not pod.is_driver]
    return [
        WorkerAddress(pod, host, f"n{index}")
        for index, (pod, host) in enumerate(zip(listed, addresses, strict=True))
    ]


def variables(document: Document, container: int = 0) -> dict[str, Any]:
    env = document["spec"]["containers"][container]["env"]
    names = [item["name"] for item in env]
    assert len(names) == len(set(names))
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in env}


def test_pods_are_listed_servers_first_and_the_driver_last() -> None:
    roles = {"proxy": [WORKER], "db": [{**WORKER, "count": 2}]}
    found = pods(context(servers=[WORKER, {**WORKER, "name": "big"}], roles=roles))
    assert [*found] == ["server-0", "big", "client", "db-0", "db-1", "proxy", "driver"]
    assert found["db-1"].name == "qps-db-1"
    assert found["db-1"].component == "db"


@pytest.mark.parametrize("member", ["server", "client", "driver"])
def test_component_learns_its_address_wherever_it_runs(member: str) -> None:
    """So that a server binds it, and does not collide with other programs of the machine."""
    of = context()
    found = variables(pod_document(of, pods(of)[member], ()))
    assert found["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_driver_gets_the_addresses_in_the_sessions_order() -> None:
    of = context(roles={"proxy": [{**WORKER, "port": 8080}]}, scenario={"rate": "100%", "$(X)": 1})
    document = pod_document(of, pods(of)["driver"], workers(of, "10.0.0.1", "10.0.0.2", "fd00::3"))
    found = variables(document)
    assert found["QPS_WORKERS"] == "10.0.0.1:10000,10.0.0.2:10000,[fd00::3]:8080"
    assert found["GRANGE_SESSION_WORKERS"] == found["QPS_WORKERS"]
    assert found["GRANGE_SESSION_SERVERS"] == "10.0.0.1:10000"
    assert found["GRANGE_SESSION_CLIENTS"] == "10.0.0.2:10000"
    assert found["GRANGE_SESSION_HOSTS_PROXY"] == "[fd00::3]:8080"
    assert found["SCENARIO_JSON"] == '{"rate":"100%","$$(X)":1}', "a variable's $ is doubled"
    assert found["QPS_WORKERS_FILE"] == f"{MOUNT}/workers"
    assert found["SCENARIOS_FILE"] == f"{MOUNT}/scenario.json"
    assert found["GRANGE_SESSION_URL"] == "http://s"
    assert "WORKER_KIND" not in found


def test_workers_get_their_kind_and_port() -> None:
    of = context(clients=[{**WORKER, "port": 7000}])
    found = variables(pod_document(of, pods(of)["client"]))
    assert (found["WORKER_KIND"], found["DRIVER_PORT"]) == ("client", "7000")
    assert found["GRANGE_SESSION"] == "qps"
    assert found["GRANGE_SESSION_COMPONENT"] == "client"
    assert found["GRANGE_SESSION_ROLE"] == "client"
    assert "QPS_WORKERS" not in found


def test_no_container_starts_without_the_files_of_its_attempt() -> None:
    template: Document = {
        "spec": {
            "initContainers": [{"name": "clone", "image": "git"}],
            "containers": [{"name": "main", "image": "a"}, {"name": "proxy", "image": "b"}],
        }
    }
    own = [{"name": "GRANGE_SESSION_ATTEMPT", "value": "7"}]
    template["spec"]["containers"][0]["env"] = own
    of = context(servers=[{"template": template}])
    spec = pod_document(of, pods(of)["server"])["spec"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        found = {item["name"]: item for item in container["env"]}["GRANGE_SESSION_ATTEMPT"]
        assert found["valueFrom"]["configMapKeyRef"] == {"name": of.files, "key": "attempt"}
    assert attempt_files(of)["data"]["attempt"] == "0"
    assert replace(of, attempt=1).files != of.files


def test_variables_of_the_component_win_over_ours() -> None:
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "a", "env": [{"name": "B", "value": "own"}]}]
        }
    }
    env = [{"name": "WORKER_KIND", "value": "mine"}, {"name": "B", "value": "component"}]
    of = context(servers=[{"template": template, "env": env}])
    found = variables(pod_document(of, pods(of)["server"]))
    assert (found["WORKER_KIND"], found["B"]) == ("mine", "own")


def test_pods_are_pinned_to_their_machine_and_lease() -> None:
    own = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 2}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "a"}],
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {required: own}},
        }
    }
    of = context(servers=[{"template": template}])
    of = replace(of, lease_uid="L", nodes={"qps-server": "w1"})
    document = pod_document(of, pods(of)["server"])
    assert document["metadata"]["labels"]["grange.dev/machine-lease"] == "L"
    spec = document["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "grange.dev/machine-lease": "L"}
    [toleration] = spec["tolerations"]
    assert (toleration["key"], toleration["value"]) == ("grange.dev/machine-lease", "L")
    terms = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["w1"]}
    assert [term["matchFields"] for term in terms] == [[pin], [pin]]
    assert all(term["matchExpressions"] for term in terms)
    assert "affinity" not in pod_document(of, pods(of)["client"])["spec"]


def test_defaults_of_the_template_are_kept() -> None:
    template = {
        "metadata": {"labels": {"app": "x", "grange.dev/test-session": "other"}},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "a"}]},
    }
    of = context(servers=[{"template": template}])
    document = pod_document(of, pods(of)["server"])
    assert document["spec"]["restartPolicy"] == "OnFailure"
    labels = document["metadata"]["labels"]
    assert (labels["app"], labels["grange.dev/test-session"]) == ("x", "qps")
    assert pod_document(of, pods(of)["client"])["spec"]["restartPolicy"] == "Never"
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-qps"


def test_paths_are_below_the_root_where_mounts_are_links() -> None:
    of = replace(context(), link_mounts=True)
    found = variables(pod_document(of, pods(of)["driver"], workers(of, "a", "b")))
    assert found["QPS_WORKERS_FILE"] == f"$(GRANGE_ROOT){MOUNT}/workers"


def test_long_lists_are_in_the_file_alone() -> None:
    of = context(servers=[{**WORKER, "count": 9000}], clients=[])
    many = workers(of, *["192.168.100.100"] * 9000)
    found = variables(pod_document(of, pods(of)["driver"], many))
    assert "QPS_WORKERS" not in found
    assert driver_files(of, many)["data"]["workers"].count(",") == 8999


def test_files_have_scenario_metadata_and_machines() -> None:
    of = context(scenario={"rate": 1})
    data = attempt_files(of)["data"]
    assert json.loads(data["scenario.json"]) == {"rate": 1}
    assert json.loads(data["metadata.json"])["name"] == "qps"
    info = json.loads(driver_files(of, workers(of, "1.1.1.1", "2.2.2.2"))["data"]["node_info.json"])
    assert info["servers"] == [{"name": "qps-server", "ip": "1.1.1.1", "node": "n0"}]


def test_machines_are_asked_for_and_assigned_by_pool() -> None:
    of = context(servers=[{**WORKER, "count": 2, "pool": "big"}])
    listed = component_pods.component_pods(of.session)
    policy = {"client": "big", "driver": "small"}
    assert component_pods.machine_requests(listed, policy) == (
        PoolRequest(pool="big", count=3),
        PoolRequest(pool="small", count=1),
    )
    machines = [LeasedMachine(pool="big", node=f"b{index}") for index in range(3)]
    machines.append(LeasedMachine(pool="small", node="s"))
    assert component_pods.assign(listed, machines, policy) == {
        "qps-server-0": "b0",
        "qps-server-1": "b1",
        "qps-client": "b2",
        "qps-driver": "s",
    }
    assert component_pods.assign(listed, machines[1:], policy) is None
    assert component_pods.machine_requests(listed, {}) == (PoolRequest(pool="big", count=2),)


@pytest.mark.parametrize(
    ("host", "text"),
    [("10.0.0.1", "10.0.0.1:5"), ("::1", "[::1]:5"), ("a.example", "a.example:5")],
)
def test_addresses_have_brackets_where_needed(host: str, text: str) -> None:
    assert component_pods.host_and_port(host, 5) == text
