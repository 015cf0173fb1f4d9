"""Tables: the columns and cells that kubectl shows."""

from typing import Any

import pytest
from tests.unit.api.documents import controller, pod

from grange.api import tables, timestamps
from grange.api.kinds import (
    BUILT_IN,
    CONFIGMAP,
    EVENT,
    LEASE,
    NODE,
    POD,
    REPLICATIONCONTROLLER,
    SECRET,
    SERVICE,
)
from grange.api.scheme import AnyKind

Document = dict[str, Any]
NOW = timestamps.parse("2026-11-21T12:00:00Z").timestamp()
BORN = "2026-11-21T11:55:00Z"


def row(info: AnyKind, document: Document) -> dict[str, Any]:
    """The cells of one document by the names of their columns."""
    table = tables.table(info, [document], now=NOW, list_meta={})
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("info", "shown", "wide"),
    [
        (POD, "Name Ready Status Restarts Age", "IP Node Nominated_Node Readiness_Gates"),
        (
            NODE,
            "Name Status Roles Age Version Isolation",
            "Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        ),
        (SERVICE, "Name Type Cluster-IP External-IP Port(s) Age", "Selector"),
        (EVENT, "Last_Seen Type Reason Object Message", "Subobject Source First_Seen Count Name"),
        (REPLICATIONCONTROLLER, "Name Desired Current Ready Updated Placement Age", "Strategy Nodes Containers Paused"),
        (LEASE, "Name Holder Age", ""),
        (SECRET, "Name Type Data Age", ""),
        (CONFIGMAP, "Name Data Age", ""),
    ],
)  # fmt: skip
def test_columns_are_those_of_kubectl(info: AnyKind, shown: str, wide: str) -> None:
    columns = tables.columns_of(info)
    assert [c.name.replace(" ", "_") for c in columns if c.priority == 0] == shown.split()
    assert [c.name.replace(" ", "_") for c in columns if c.priority > 0] == wide.split()


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
def test_rows_have_a_cell_for_every_column(info: AnyKind) -> None:
    table = tables.table(
        info, [{}, {"metadata": {"name": "a"}}], now=NOW, list_meta={"resourceVersion": "7"}
    )
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "7"}
    for definition, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True):
        assert set(definition) == {"name", "type", "format", "description", "priority"}
        expected: dict[str, type] = {"integer": int, "boolean": bool, "string": str}
        assert isinstance(cell, expected[definition["type"]])


def test_rows_carry_what_was_asked_for() -> None:
    document = pod()
    rows = {
        include: tables.table(POD, [document], now=NOW, list_meta={}, include=include)["rows"][0][
            "object"
        ]
        for include in ("Metadata", "Object", "None")
    }
    assert rows["Metadata"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document["metadata"],
    }
    assert rows["Object"] is document
    assert rows["None"] is None


def test_name_column_has_the_format_of_names() -> None:
    table = tables.table(POD, [], now=NOW, list_meta={})
    assert [c["format"] for c in table["columnDefinitions"]][:2] == ["name", ""]


def test_ages_are_short_and_honest() -> None:
    document = pod()
    assert row(POD, document)["Age"] == "<unknown>"
    document["metadata"]["creationTimestamp"] = BORN
    assert row(POD, document)["Age"] == "5m"
    document["metadata"]["creationTimestamp"] = "nonsense"
    assert row(POD, document)["Age"] == "<unknown>"


# --- pods ------------------------------------------------------------------------------------------


def running(**more: Any) -> Document:
    return {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}, **more}


def waiting(reason: str, **more: Any) -> Document:
    return {
        "name": "main",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason}},
        **more,
    }


def ended(code: int = 0, **terminated: Any) -> Document:
    return {"name": "main", "state": {"terminated": {"exitCode": code, **terminated}}}


def pod_with(*containers: Document, init: list[Document] | None = None, **status: Any) -> Document:
    document = pod(
        containers=[{"name": c["name"]} for c in containers] or [{"name": "main"}],
        initContainers=[{"name": c["name"], **c.pop("spec", {})} for c in init or []],
    )
    document["status"] = {
        "containerStatuses": list(containers),
        "initContainerStatuses": init or [],
        **status,
    }
    return document


INITIALIZED = [{"type": "Initialized", "status": "True"}]


@pytest.mark.parametrize(
    ("document", "ready", "status"),
    [
        ({}, "0/0", "Unknown"),
        (pod_with(phase="Pending"), "0/1", "Pending"),
        (pod_with(running(), phase="Running"), "1/1", "Running"),
        (pod_with(running(), waiting("CrashLoopBackOff"), phase="Running"), "1/2", "CrashLoopBackOff"),
        (pod_with(waiting("ContainerCreating"), phase="Pending"), "0/1", "ContainerCreating"),
        (pod_with(ended(0, reason="Completed"), phase="Succeeded"), "0/1", "Completed"),
        (pod_with(ended(1, reason="Error"), phase="Failed"), "0/1", "Error"),
        (pod_with(ended(3), phase="Failed"), "0/1", "ExitCode:3"),
        (pod_with(ended(137, signal=9), phase="Failed"), "0/1", "Signal:9"),
        (pod_with(phase="Failed", reason="Evicted"), "0/1", "Evicted"),
        (
            pod_with(phase="Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]),
            "0/1",
            "SchedulingGated",
        ),
        # one container is through, another still runs
        (
            pod_with(ended(0, reason="Completed"), running(name="b"), phase="Running", conditions=[{"type": "Ready", "status": "True"}]),
            "1/2",
            "Running",
        ),
        (pod_with(ended(0, reason="Completed"), running(name="b"), phase="Running"), "1/2", "NotReady"),
        # init containers
        (pod_with(init=[waiting("PodInitializing", name="i")], phase="Pending"), "0/1", "Init:0/1"),
        (
            pod_with(init=[{**ended(0), "name": "i"}, {**running(), "name": "j"}], phase="Pending"),
            "0/1",
            "Init:1/2",
        ),
        (pod_with(init=[waiting("CrashLoopBackOff", name="i")]), "0/1", "Init:CrashLoopBackOff"),
        (pod_with(init=[{**ended(1, reason="Error"), "name": "i"}]), "0/1", "Init:Error"),
        (pod_with(init=[{**ended(2), "name": "i"}]), "0/1", "Init:ExitCode:2"),
        (pod_with(init=[{**ended(137, signal=9), "name": "i"}]), "0/1", "Init:Signal:9"),
        (pod_with(running(), init=[{**ended(0), "name": "i"}], phase="Running"), "1/1", "Running"),
        # a sidecar counts as a container
        (
            pod_with(running(), init=[{**running(name="s"), "started": True, "spec": {"restartPolicy": "Always"}}], phase="Running"),
            "2/2",
            "Running",
        ),
        # on its way out
        ({**pod_with(running(), phase="Running"), "metadata": {"deletionTimestamp": BORN}}, "1/1", "Terminating"),
        ({**pod_with(ended(0, reason="Completed"), phase="Succeeded"), "metadata": {"deletionTimestamp": BORN}}, "0/1", "Completed"),
        ({**pod_with(phase="Running", reason="NodeLost"), "metadata": {"deletionTimestamp": BORN}}, "0/1", "Unknown"),
    ],
)  # fmt: skip
def test_pods_show_what_they_are_doing(document: Document, ready: str, status: str) -> None:
    cells = row(POD, document)
    assert (cells["Ready"], cells["Status"]) == (ready, status)


def test_restarts_are_counted_with_the_time_of_the_last() -> None:
    again = running(
        restartCount=2, lastState={"terminated": {"finishedAt": "2026-11-21T11:59:00Z"}}
    )
    before = running(
        restartCount=1, name="b", lastState={"terminated": {"finishedAt": "2026-11-21T11:00:00Z"}}
    )
    assert row(POD, pod_with(again, before, phase="Running"))["Restarts"] == "3 (60s ago)"
    assert row(POD, pod_with(running(), phase="Running"))["Restarts"] == "0"
    assert row(POD, pod_with(running(restartCount=2), phase="Running"))["Restarts"] == "2"
    broken = running(restartCount=2, lastState={"terminated": {"finishedAt": "x"}})
    assert row(POD, pod_with(broken, phase="Running"))["Restarts"] == "2"


def test_restarts_count_init_containers_until_they_are_through() -> None:
    init = waiting("CrashLoopBackOff", name="i", restartCount=4)
    assert row(POD, pod_with(init=[init], phase="Pending"))["Restarts"] == "4"
    done = {**ended(0), "name": "i", "restartCount": 4}
    assert row(POD, pod_with(running(), init=[done], phase="Running"))["Restarts"] == "0"
    sidecar = {
        **running(name="s", restartCount=2),
        "started": True,
        "spec": {"restartPolicy": "Always"},
    }
    assert row(POD, pod_with(running(), init=[sidecar], phase="Running"))["Restarts"] == "2"


def test_wide_cells_of_pods() -> None:
    document = pod(nodeName="n", readinessGates=[{"conditionType": "a"}, {"conditionType": "b"}])
    document["status"] = {
        "podIP": "127.0.0.9",
        "nominatedNodeName": "m",
        "conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}],
    }
    cells = row(POD, document)
    assert [cells[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "127.0.0.9",
        "n",
        "m",
        "1/2",
    ]
    assert row(POD, pod())["Readiness Gates"] == "<none>"


def test_initialized_pod_shows_containers_with_late_sidecar() -> None:
    late = waiting("PodInitializing", name="s", spec={"restartPolicy": "Always"})
    document = pod_with(running(), init=[late], phase="Running", conditions=INITIALIZED)
    assert row(POD, document)["Ready"] == "1/2"


# --- other kinds -----------------------------------------------------------------------------------


def test_nodes_show_whether_they_take_pods() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert row(NODE, ready)["Status"] == "Ready"
    assert (
        row(NODE, {**ready, "spec": {"unschedulable": True}})["Status"]
        == "Ready,SchedulingDisabled"
    )
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert row(NODE, lost)["Status"] == "NotReady"
    assert row(NODE, {})["Status"] == "Unknown"


def test_nodes_show_roles_and_addresses() -> None:
    document = {
        "metadata": {
            "labels": {
                "node-role.kubernetes.io/worker": "",
                "node-role.kubernetes.io/": "",
                "kubernetes.io/role": "agent",
            }
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.2"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "Linux", "kernelVersion": "6", "containerRuntimeVersion": "process"},
        },
    }  # fmt: skip
    cells = row(NODE, document)
    assert cells["Roles"] == "agent,worker"
    assert (cells["Internal-IP"], cells["External-IP"]) == ("127.0.0.2", "<none>")
    assert (cells["Version"], cells["OS-Image"], cells["Container-Runtime"]) == (
        "v1",
        "Linux",
        "process",
    )
    assert row(NODE, {})["Roles"] == "<none>"


def test_nodes_show_what_separates_their_pods() -> None:
    labels = {"grange.dev/isolation": "landlock"}
    assert row(NODE, {"metadata": {"labels": labels}})["Isolation"] == "landlock"
    assert row(NODE, {})["Isolation"] == "<none>"


@pytest.mark.parametrize(
    ("document", "address", "ports"),
    [
        (
            {
                "spec": {
                    "ports": [
                        {"port": 80, "protocol": "TCP"},
                        {"port": 53, "nodePort": 30000, "protocol": "UDP"},
                    ]
                }
            },
            "<none>",
            "80/TCP,53:30000/UDP",
        ),
        ({"spec": {"externalIPs": ["1.2.3.4"]}}, "1.2.3.4", "<none>"),
        (
            {"spec": {"type": "ExternalName", "externalName": "example.com"}},
            "example.com",
            "<none>",
        ),
        ({"spec": {"type": "LoadBalancer"}}, "<pending>", "<none>"),
        (
            {
                "spec": {"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]},
                "status": {"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}, {"hostname": "lb"}]}},
            },
            "5.6.7.8,lb,1.2.3.4",
            "<none>",
        ),
    ],
)
def test_services_show_how_they_are_reached(document: Document, address: str, ports: str) -> None:
    cells = row(SERVICE, document)
    assert (cells["External-IP"], cells["Port(s)"]) == (address, ports)


def test_services_show_their_selector() -> None:
    assert row(SERVICE, {"spec": {"selector": {"b": "2", "a": "1"}}})["Selector"] == "a=1,b=2"


def test_events_read_as_sentences() -> None:
    document = {
        "lastTimestamp": BORN,
        "firstTimestamp": "2026-11-21T11:00:00Z",
        "type": "Normal",
        "reason": "Started",
        "message": "Started container main",
        "count": 3,
        "source": {"component": "agent", "host": "n"},
        "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{main}"},
    }
    cells = row(EVENT, document)
    assert [cells[n] for n in ("Last Seen", "Type", "Reason", "Object", "Message")] == [
        "5m",
        "Normal",
        "Started",
        "pod/web",
        "Started container main",
    ]
    assert [cells[n] for n in ("First Seen", "Count", "Source", "Subobject")] == [
        "60m",
        3,
        "agent, n",
        "spec.containers{main}",
    ]


def test_events_of_the_newer_form_read_the_same() -> None:
    document = {
        "eventTime": "2026-11-21T11:00:00.000000Z",
        "series": {"count": 9, "lastObservedTime": "2026-11-21T11:59:30.000000Z"},
        "reportingComponent": "scheduler",
        "involvedObject": {"kind": "Pod"},
    }
    cells = row(EVENT, document)
    assert (cells["Last Seen"], cells["First Seen"], cells["Count"]) == ("30s", "60m", 9)
    assert (cells["Source"], cells["Object"]) == ("scheduler", "pod")
    assert row(EVENT, {"metadata": {"creationTimestamp": BORN}})["Last Seen"] == "5m"
    assert row(EVENT, {})["Count"] == 1


def test_replication_controllers_show_their_counts_and_nodes() -> None:
    document = controller(
        nodeSelector={
            "matchLabels": {"zone": "a"},
            "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["x", "y"]}],
        }
    )
    document["status"] = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1}
    cells = row(REPLICATIONCONTROLLER, document)
    assert [cells[n] for n in ("Desired", "Current", "Ready", "Updated")] == [3, 3, 2, 1]
    assert (cells["Nodes"], cells["Containers"]) == ("zone=a,gpu In (x,y)", "main")
    assert row(REPLICATIONCONTROLLER, controller())["Nodes"] == "<all>"
    assert row(REPLICATIONCONTROLLER, {})["Containers"] == "<none>"


def test_contents_are_counted() -> None:
    assert row(CONFIGMAP, {"data": {"a": ""}, "binaryData": {"b": ""}})["Data"] == 2
    assert row(SECRET, {"data": {"a": ""}})["Data"] == 1
    assert row(LEASE, {"spec": {"holderIdentity": "me"}})["Holder"] == "me"
