"""The kinds: what they are called, what they default to, and their own rules."""

import copy
import re
from typing import Any

import pytest
from tests.unit.api.documents import container, controller, pod, typical_pod

from grange.api import codec, kinds, schema
from grange.api.kinds import (
    BUILT_IN,
    CONFIGMAP,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    PODGROUP,
    QUEUE,
    REPLICATIONCONTROLLER,
    SECRET,
    SERVICE,
)
from grange.api.scheme import AnyKind, Scheme
from grange.api.validation import validate
from grange.api.validation.content import decode_base64
from grange.api.validation.podspec import NO_COMMAND

Document = dict[str, Any]


def make(info: AnyKind, **fields: Any) -> Document:
    meta: Document = {"name": "a"}
    if info.namespaced:
        meta["namespace"] = "default"
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": meta, **fields}


def complete(info: AnyKind, document: Document) -> Document:
    assert schema.check(document, info) == []
    schema.apply_defaults(document, info)
    return document


def faults(info: AnyKind, document: Document, old: Document | None = None) -> list[tuple[str, str]]:
    return [(c.field, c.message) for c in validate(complete(info, document), old, info)]


# --- every kind --------------------------------------------------------------------------------------


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
def test_kinds_are_complete(info: AnyKind) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", info.kind)
    assert info.plural == info.plural.lower()
    assert getattr(kinds, info.kind.upper()) is info
    assert all(column.description for column in info.columns)
    assert len({column.name for column in info.columns}) == len(info.columns)


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
def test_columns_and_fields_read_documents_that_lack_everything(info: AnyKind) -> None:
    bare: list[Document] = [{}, {"metadata": {}, "spec": {}, "status": {}}]
    for document in bare:
        for column in info.columns:
            column.cell(document, 0.0)
        assert all(isinstance(read(document), str) for read in info.fields.values())


EXAMPLES: list[tuple[AnyKind, Document]] = [
    (POD, typical_pod()),
    (POD, pod(volumes=[{"name": "v"}, {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}])),
    (NODE, make(NODE, status={"capacity": {"cpu": "4"}})),
    (NAMESPACE, make(NAMESPACE)),
    (SERVICE, make(SERVICE, spec={"ports": [{"port": 80}], "sessionAffinity": "ClientIP"})),
    (EVENT, make(EVENT, involvedObject={"kind": "Pod", "namespace": "default", "name": "a"})),
    (CONFIGMAP, make(CONFIGMAP, data={"a": "b"})),
    (SECRET, make(SECRET, stringData={"a": "b"})),
    (LEASE, make(LEASE, spec={"holderIdentity": "a", "leaseDurationSeconds": 10})),
    (REPLICATIONCONTROLLER, controller()),
    (PODGROUP, make(PODGROUP, spec={"minMember": 2, "topology": {"key": "rack"}})),
    (QUEUE, make(QUEUE, spec={"capacity": {"cpu": "4"}, "cohort": "all"})),
]  # fmt: skip


@pytest.mark.parametrize(("info", "document"), EXAMPLES)
def test_defaults_are_idempotent_fit_the_schema_and_the_view(
    info: AnyKind, document: Document
) -> None:
    document = copy.deepcopy(document)
    assert faults(info, document) == []
    once = copy.deepcopy(document)
    schema.apply_defaults(document, info)
    assert document == once
    assert schema.check(document, info) == []
    view = codec.decode_view(codec.encode(document), info.view)
    assert view.metadata.name == document["metadata"]["name"]
    assert codec.convert(document, info.view) == view


def test_kinds_are_found_by_the_words_that_people_use() -> None:
    scheme = Scheme(BUILT_IN)
    for word, info in (
        ("pods", POD),
        ("pod", POD),
        ("po", POD),
        ("Pod", POD),
        ("svc", SERVICE),
        ("ns", NAMESPACE),
        ("no", NODE),
        ("cm", CONFIGMAP),
        ("ev", EVENT),
        ("grc", REPLICATIONCONTROLLER),
        ("pg", PODGROUP),
        ("replicationcontrollers.grange.dev", REPLICATIONCONTROLLER),
        ("replicationcontroller.grange.dev", REPLICATIONCONTROLLER),
        ("replicationcontrollers.v1alpha1.grange.dev", REPLICATIONCONTROLLER),
        ("leases.coordination.k8s.io", LEASE),
    ):
        assert scheme.named(word) is info
    assert scheme.named("nonsense") is None


def test_the_scheme_serves_kinds_by_path_and_by_kind() -> None:
    scheme = Scheme((POD,))
    assert scheme.resource("", "v1", "pods") is POD
    assert scheme.kind("v1", "Pod") is POD
    scheme.add(LEASE)
    assert list(scheme) == [POD, LEASE]


def test_paths_are_those_of_kubernetes() -> None:
    assert POD.path("default", "a", "log") == "/api/v1/namespaces/default/pods/a/log"
    assert POD.path() == "/api/v1/pods"
    assert NODE.path(name="n") == "/api/v1/nodes/n"
    assert LEASE.path("x") == "/apis/coordination.k8s.io/v1/namespaces/x/leases"
    assert (POD.qualified, LEASE.qualified) == ("pods", "leases.coordination.k8s.io")
    assert (POD.api_version, LEASE.api_version) == ("v1", "coordination.k8s.io/v1")
    assert REPLICATIONCONTROLLER.singular == "replicationcontroller"


def test_fields_are_read_as_selectors_compare_them() -> None:
    document = pod(nodeName="n", restartPolicy="Never")
    document["status"] = {"phase": "Running", "podIP": "127.0.0.9"}
    read = {path: reader(document) for path, reader in POD.fields.items()}
    assert read == {
        "spec.nodeName": "n",
        "spec.restartPolicy": "Never",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "status.phase": "Running",
        "status.podIP": "127.0.0.9",
        "status.nominatedNodeName": "",
    }
    assert NODE.fields["spec.unschedulable"]({"spec": {"unschedulable": True}}) == "true"
    assert NODE.fields["spec.unschedulable"]({}) == "false"
    assert EVENT.fields["source"]({"source": {"component": "agent"}}) == "agent"
    assert EVENT.fields["involvedObject.name"]({"involvedObject": {"name": "a"}}) == "a"
    assert SECRET.fields["type"]({"type": "Opaque"}) == "Opaque"


# --- pods ----------------------------------------------------------------------------------------------


def test_pods_get_what_their_programs_need() -> None:
    document = complete(
        POD, container(ports=[{"containerPort": 80}], readinessProbe={"httpGet": {"port": 80}})
    )
    spec = document["spec"]
    assert (
        spec["restartPolicy"],
        spec["terminationGracePeriodSeconds"],
        spec["schedulerName"],
    ) == (
        "Always",
        30,
        "default-scheduler",
    )
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert spec["containers"][0]["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert document["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_pods_keep_all_their_fields() -> None:
    given = pod(restartPolicy="Never", terminationGracePeriodSeconds=0, schedulerName="mine")
    spec = complete(POD, copy.deepcopy(given))["spec"]
    containers = given["spec"].pop("containers")
    assert {key: spec[key] for key in given["spec"]} == given["spec"]
    assert [{**now, **was} for now, was in zip(spec["containers"], containers, strict=True)] == (
        spec["containers"]
    )


def test_pods_outlive_a_short_absence_of_their_node() -> None:
    keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in keys
    ]
    mine = {"key": keys[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for given, expected in (
        ([], added),
        ([mine], [mine, added[1]]),
        ([{"operator": "Exists"}], [{"operator": "Exists"}]),
        ([{"key": "a", "operator": "Exists"}], [{"key": "a", "operator": "Exists"}, *added]),
    ):
        assert complete(POD, pod(tolerations=given))["spec"]["tolerations"] == expected


def test_requests_default_to_limits() -> None:
    document = complete(
        POD,
        container(resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}),
    )
    assert document["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "100m",
        "memory": "1Gi",
    }


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m"}}, "Burstable"),
        ({"limits": {"cpu": "what"}}, "BestEffort"),
    ],
)
def test_quality_of_service_follows_from_requests_and_limits(
    resources: Document, expected: str
) -> None:
    assert complete(POD, container(resources=resources))["status"]["qosClass"] == expected


def test_volumes_environment_and_hooks_get_their_defaults() -> None:
    document = complete(
        POD,
        pod(
            hostNetwork=True,
            volumes=[
                {"name": "a"},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ],
            containers=[
                {
                    "name": "main",
                    "command": ["serve"],
                    "ports": [{"containerPort": 80}],
                    "env": [
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "lifecycle": {
                        "preStop": {"httpGet": {"port": 80}},
                        "postStart": {"exec": {"command": ["x"]}},
                    },
                }
            ],
        ),
    )
    spec = document["spec"]
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {
            "name": "c",
            "projected": {
                "defaultMode": 420,
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            },
        },
    ]
    main = spec["containers"][0]
    assert main["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
    assert main["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert main["lifecycle"]["preStop"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}


def test_pods_at_work_are_deleted_gracefully() -> None:
    graceful = POD.graceful
    assert graceful is not None
    assert graceful({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    assert not graceful({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}})
    assert not graceful({"spec": {}})


# --- nodes ---------------------------------------------------------------------------------------------


def test_nodes_offer_all_they_have() -> None:
    document = complete(NODE, make(NODE, status={"capacity": {"cpu": "4"}}))
    assert document["status"]["allocatable"] == {"cpu": "4"}


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        ([{"key": "", "effect": "NoExecute"}], ("spec.taints[0].key", "Required value")),
        ([{"key": "a", "effect": ""}], ("spec.taints[0].effect", "Required value")),
        (
            [{"key": "a", "effect": "Never"}],
            (
                "spec.taints[0].effect",
                'Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            ),
        ),
        (
            [{"key": "a", "effect": "NoExecute"}] * 2,
            ("spec.taints[1]", 'Duplicate value: "a:NoExecute"'),
        ),
    ],
)
def test_taints_are_judged(taints: list[Document], expected: tuple[str, str]) -> None:
    assert faults(NODE, make(NODE, spec={"taints": taints})) == [expected]


def test_taints_have_qualified_keys_and_label_values() -> None:
    found = faults(
        NODE, make(NODE, spec={"taints": [{"key": "a b", "value": "c d", "effect": "NoExecute"}]})
    )
    assert [path for path, _ in found] == ["spec.taints[0].key", "spec.taints[0].value"]


def test_amounts_of_nodes_are_quantities() -> None:
    found = faults(NODE, make(NODE, status={"capacity": {"cpu": "4", "memory": "lots"}}))
    assert [path for path, _ in found] == ["status.capacity.memory", "status.allocatable.memory"]


# --- namespaces ----------------------------------------------------------------------------------------


def test_namespaces_get_their_name_as_label_and_a_finalizer() -> None:
    document = complete(NAMESPACE, make(NAMESPACE))
    assert document["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert document["spec"] == {"finalizers": ["kubernetes"]}
    assert document["status"] == {"phase": "Active"}


def test_namespaces_on_their_way_out_do_not_get_finalizers_back() -> None:
    document = make(NAMESPACE, spec={})
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "finalizers" not in complete(NAMESPACE, document)["spec"]


# --- services ------------------------------------------------------------------------------------------


def service(**spec: Any) -> Document:
    return make(SERVICE, spec={"ports": [{"port": 80}], **spec})


def test_services_get_their_defaults() -> None:
    document = complete(SERVICE, service(sessionAffinity="ClientIP"))
    assert document["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "type": "ClusterIP",
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    assert document["status"] == {"loadBalancer": {}}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({"clusterIP": "None"}, {"clusterIPs": ["None"], "ipFamilies": ["IPv4"]}),
        ({"type": "NodePort"}, {"externalTrafficPolicy": "Cluster"}),
        ({"externalIPs": ["192.0.2.1"]}, {"externalTrafficPolicy": "Cluster"}),
        ({"type": "LoadBalancer"}, {"allocateLoadBalancerNodePorts": True}),
    ],
)
def test_services_get_the_defaults_of_their_type(spec: Document, more: Document) -> None:
    completed = complete(SERVICE, service(**spec))["spec"]
    assert {key: completed.get(key) for key in more} == more


def test_external_services_get_no_addresses() -> None:
    spec = complete(SERVICE, service(type="ExternalName", externalName="a.b"))["spec"]
    assert not {"ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "clusterIPs"} & {*spec}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterIP": "10.0.0"}, "spec.clusterIP"),
        ({"clusterIP": "::1"}, "spec.clusterIP"),
        ({"type": "NodePort", "clusterIP": "None"}, "spec.clusterIP"),
        ({"clusterIPs": ["127.1.0.1"]}, "spec.clusterIPs"),
        ({"clusterIP": "127.1.0.1", "clusterIPs": ["127.1.0.1", "::1"]}, "spec.clusterIPs"),
        ({"ports": [{"port": 1, "nodePort": 30000}]}, "spec.ports[0].nodePort"),
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        ({"ipFamilies": ["IPv5"]}, "spec.ipFamilies[0]"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "spec.ipFamilyPolicy"),
        ({"type": "NodePort", "externalTrafficPolicy": "x"}, "spec.externalTrafficPolicy"),
        (
            {"type": "ExternalName", "externalName": "a.b", "clusterIP": "127.1.0.1"},
            "spec.clusterIP",
        ),
        (
            {"type": "NodePort", "ports": [{"port": n, "name": f"p{n}", "nodePort": 30000} for n in (1, 2)]},
            "spec.ports[1].nodePort",
        ),
    ],
)  # fmt: skip
def test_addresses_of_services_are_judged(spec: Document, field: str) -> None:
    assert [path for path, _ in faults(SERVICE, service(**spec))] == [field]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (service(ports=[]), ("spec.ports", "Required value: a service needs at least one port")),
        (
            service(type="Magic"),
            (
                "spec.type",
                'Unsupported value: "Magic": supported values: '
                '"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"',
            ),
        ),
        (
            service(sessionAffinity="x"),
            ("spec.sessionAffinity", 'Unsupported value: "x": supported values: "ClientIP", "None"'),
        ),
        (
            service(internalTrafficPolicy="x"),
            ("spec.internalTrafficPolicy", 'Unsupported value: "x": supported values: "Cluster", "Local"'),
        ),
        (service(ports=[{"port": 0}]), ("spec.ports[0].port", "Invalid value: 0: must be between 1 and 65535, inclusive")),
        (
            service(ports=[{"port": 1, "targetPort": 70000}]),
            ("spec.ports[0].targetPort", "Invalid value: 70000: must be between 1 and 65535, inclusive"),
        ),
        (
            service(ports=[{"port": 1, "nodePort": -1}]),
            ("spec.ports[0].nodePort", "Invalid value: -1: must be between 1 and 65535, inclusive"),
        ),
        (
            service(ports=[{"port": 1, "protocol": "x"}]),
            ("spec.ports[0].protocol", 'Unsupported value: "x": supported values: "TCP", "UDP", "SCTP"'),
        ),
        (
            service(ports=[{"port": 1, "name": "a"}, {"port": 2}]),
            ("spec.ports[1].name", "Required value: ports need names where there are several"),
        ),
        (
            service(ports=[{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]),
            ("spec.ports[1].name", 'Duplicate value: "a"'),
        ),
        (
            service(ports=[{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]),
            ("spec.ports[1]", 'Duplicate value: "TCP 1"'),
        ),
    ],
)  # fmt: skip
def test_services_are_judged(document: Document, expected: tuple[str, str]) -> None:
    assert faults(SERVICE, document) == [expected]


def test_services_judge_names_and_selectors() -> None:
    found = faults(SERVICE, service(selector={"a": "b c"}, ports=[{"port": 1, "name": "A"}]))
    assert [path for path, _ in found] == ["spec.selector", "spec.ports[0].name"]
    external = make(SERVICE, spec={"type": "ExternalName", "externalName": "A_"})
    assert [path for path, _ in faults(SERVICE, external)] == ["spec.externalName"]


def test_headless_and_external_services_may_lack_ports() -> None:
    assert faults(SERVICE, make(SERVICE, spec={"clusterIP": "None"})) == []
    external = make(SERVICE, spec={"type": "ExternalName", "externalName": "example.com"})
    assert faults(SERVICE, external) == []


def test_a_cluster_address_stays() -> None:
    old = service(clusterIP="127.1.0.1")
    assert faults(SERVICE, service(clusterIP="127.1.0.2"), old) == [
        ("spec.clusterIP", 'Invalid value: "127.1.0.2": may not change once set')
    ]
    assert faults(SERVICE, service(clusterIP="127.1.0.1"), old) == []
    assert faults(SERVICE, service(clusterIP="127.1.0.1"), service()) == []


# --- events, config maps, secrets, leases --------------------------------------------------------------


def test_events_live_where_their_object_lives() -> None:
    def event(namespace: str) -> Document:
        return make(EVENT, involvedObject={"kind": "Pod", "name": "a", "namespace": namespace})

    assert faults(EVENT, event("other")) == [
        ("involvedObject.namespace", 'Invalid value: "other": does not match metadata.namespace')
    ]
    assert faults(EVENT, event("default")) == []
    assert faults(EVENT, event("")) == []  # about something cluster-scoped


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data": {"a/b": ""}}, ("data[a/b]", "Invalid value: \"a/b\": must consist of letters, digits, '-', '_' and '.'")),
        ({"binaryData": {"..": ""}}, ("binaryData[..]", "Invalid value: \"..\": must not begin with '..'")),
        (
            {"data": {"a": ""}, "binaryData": {"a": ""}},
            ("data[a]", 'Invalid value: "a": duplicate of key present in binaryData'),
        ),
        ({"binaryData": {"a": "*"}}, ("binaryData[a]", 'Invalid value: "*": must be base64')),
        ({"data": {"a": "x" * (1 << 20) + "y"}}, ("data", "Too long: may not be more than 1048576 bytes")),
    ],
)  # fmt: skip
def test_config_maps_are_judged(fields: Document, expected: tuple[str, str]) -> None:
    assert faults(CONFIGMAP, make(CONFIGMAP, **fields)) == [expected]


@pytest.mark.parametrize(("info", "value"), [(CONFIGMAP, "x"), (SECRET, "eA==")])
def test_immutable_content_stays(info: AnyKind, value: str) -> None:
    frozen = "Forbidden: field is immutable when `immutable` is set"
    old = make(
        info, data={"a": value}, immutable=True, **({"type": "Opaque"} if info is SECRET else {})
    )
    changed = make(info, data={"b": value}, immutable=False)
    assert faults(info, changed, old) == [("immutable", frozen), ("data", frozen)]
    assert faults(info, make(info, data={"a": value}, immutable=True), old) == []


def test_secrets_take_plain_text_and_keep_base64() -> None:
    document = complete(
        SECRET, make(SECRET, data={"a": "eA==", "b": "eA=="}, stringData={"b": "é"})
    )
    assert document["type"] == "Opaque"
    assert document["data"] == {"a": "eA==", "b": "w6k="}
    assert "stringData" not in document
    assert decode_base64("w6\nk=") == "é".encode()
    assert decode_base64("*") is None


def test_secrets_are_judged_without_being_reported() -> None:
    [(path, message)] = faults(SECRET, make(SECRET, data={"a": "hunter2!"}))
    assert (path, message) == (
        "data[a]",
        'Invalid value: "": must be base64; use stringData for plain text',
    )
    assert "hunter2" not in message
    assert faults(SECRET, make(SECRET, type="kubernetes.io/tls", data={"tls.crt": ""})) == [
        ("data[tls.key]", "Required value")
    ]
    assert [path for path, _ in faults(SECRET, make(SECRET, data={"a/b": ""}))] == ["data[a/b]"]


def test_the_type_of_a_secret_stays() -> None:
    old = make(SECRET, type="Opaque")
    assert faults(SECRET, make(SECRET, type="example.com/x"), old) == [
        ("type", 'Invalid value: "example.com/x": field is immutable')
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"leaseDurationSeconds": 0},
            ("spec.leaseDurationSeconds", "Invalid value: 0: must be greater than 0"),
        ),
        (
            {"leaseTransitions": -1},
            ("spec.leaseTransitions", "Invalid value: -1: must be greater than or equal to 0"),
        ),
    ],
)
def test_leases_are_judged(spec: Document, expected: tuple[str, str]) -> None:
    assert faults(LEASE, make(LEASE, spec=spec)) == [expected]


# --- our own replication controller ----------------------------------------------------------------------

PERCENT = "must be a number of pods, or a percentage like 25%"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (controller(template={}), ("spec.template", "Required value: set the pod to run")),
        (controller(template={"metadata": {}}), ("spec.template.spec", "Required value: specify what the pods run")),
        (
            controller(template={"spec": {"containers": []}}),
            ("spec.template.spec.containers", "Required value: a pod needs at least one container"),
        ),
        (
            controller(template={"spec": {"containers": [{"name": "a"}]}}),
            ("spec.template.spec.containers[0].command", f"Required value: {NO_COMMAND}"),
        ),
        (
            controller(template={"metadata": {"name": "a"}, "spec": pod()["spec"]}),
            (
                "spec.template.metadata.name",
                "Forbidden: every pod gets its own: a template may carry labels and annotations only",
            ),
        ),
        (
            controller(template={"spec": pod(nodeName="n")["spec"]}),
            (
                "spec.template.spec.nodeName",
                "Forbidden: the scheduler places every pod; use spec.nodeSelector to choose nodes",
            ),
        ),
        (
            controller(template={"spec": pod(restartPolicy="Never")["spec"]}),
            (
                "spec.template.spec.restartPolicy",
                'Unsupported value: "Never": supported values: "Always"',
            ),
        ),
        (
            controller(nodeSelector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            (
                "spec.nodeSelector.matchExpressions[0].operator",
                'Unsupported value: "Gt": supported values: "In", "NotIn", "Exists", "DoesNotExist"',
            ),
        ),
        (
            controller(rollout={"maxSurge": "lots"}),
            ("spec.rollout.maxSurge", f'Invalid value: "lots": {PERCENT}'),
        ),
        (
            controller(rollout={"maxUnavailable": "101%"}),
            ("spec.rollout.maxUnavailable", f'Invalid value: "101%": {PERCENT}'),
        ),
        (
            controller(rollout={"maxUnavailable": -1}),
            ("spec.rollout.maxUnavailable", "Invalid value: -1: must be greater than or equal to 0"),
        ),
        (
            controller(rollout={"maxUnavailable": 0, "maxSurge": "0%"}),
            (
                "spec.rollout.maxUnavailable",
                "Invalid value: 0: may not be 0 when `maxSurge` is 0: nothing could ever be replaced",
            ),
        ),
        (
            controller(rollout={"minReadySeconds": 600}),
            ("spec.rollout.progressDeadlineSeconds", "Invalid value: 600: must be greater than minReadySeconds"),
        ),
    ],
)  # fmt: skip
def test_replication_controllers_are_judged(document: Document, expected: tuple[str, str]) -> None:
    assert faults(REPLICATIONCONTROLLER, document) == [expected]


def test_replication_controllers_judge_labels_everywhere() -> None:
    document = controller(podLabels={"a": "b c"})
    document["spec"]["template"]["metadata"] = {"labels": {"-": ""}, "annotations": {"-": ""}}
    assert [path for path, _ in faults(REPLICATIONCONTROLLER, document)] == [
        "spec.podLabels",
        "spec.template.metadata.labels",
        "spec.template.metadata.annotations",
    ]


def test_an_unchanged_template_is_not_judged_again() -> None:
    """Rules may grow stricter: an old controller must still be able to scale."""
    old = controller(template={"spec": {"containers": [{"name": "a"}]}})
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 1
    assert faults(REPLICATIONCONTROLLER, new, old) == []


def test_replicas_are_required_without_asking_the_schema() -> None:
    document = controller()
    del document["spec"]["replicas"]
    found = [cause.field for cause in validate(document, None, REPLICATIONCONTROLLER)]
    assert found == ["spec.replicas"]
    document["spec"] |= {"replicas": 1, "placement": "x", "strategy": "y"}
    found = [cause.field for cause in validate(document, None, REPLICATIONCONTROLLER)]
    assert found == ["spec.placement", "spec.strategy"]


# --- gangs and queues --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"minMember": 1, "minResources": {"cpu": "-1"}}, "spec.minResources.cpu", "or equal to 0"),
        ({"minMember": 1, "minResources": {"cpu": "x"}}, "spec.minResources.cpu", "x"),
        ({"minMember": 1, "scheduleTimeoutSeconds": 0}, "spec.scheduleTimeoutSeconds", "forever"),
        ({"minMember": 1, "queue": "A_b"}, "spec.queue", "A_b"),
        ({"minMember": 1, "topology": {"key": ""}}, "spec.topology.key", "name a label of nodes"),
        ({"minMember": 1, "topology": {"key": "a b"}}, "spec.topology.key", "a b"),
        (
            {"minMember": 1, "minParts": [{"matchLabels": {}, "minMember": 1}]},
            "spec.minParts[0].matchLabels",
            "name labels",
        ),
        (
            {"minMember": 1, "minParts": [{"matchLabels": {"a": "b c"}, "minMember": 1}]},
            "spec.minParts[0].matchLabels",
            "b c",
        ),
    ],
)
def test_groups_that_could_never_run_are_refused(spec: Document, field: str, message: str) -> None:
    found = faults(PODGROUP, make(PODGROUP, spec=spec))
    assert [at for at, _ in found] == [field]
    assert message in found[0][1]


def test_rolling_update_schema_requires_members_and_mode() -> None:
    [none] = schema.check(make(PODGROUP, spec={"minMember": 0}), PODGROUP)
    assert none.field == "spec.minMember"
    assert none.message.endswith("must be greater than or equal to 1")
    missing = schema.check(make(PODGROUP, spec={}), PODGROUP)
    assert [cause.field for cause in missing] == ["spec.minMember"]
    topology = {"key": "rack", "mode": "Perhaps"}
    wrong = schema.check(make(PODGROUP, spec={"minMember": 1, "topology": topology}), PODGROUP)
    assert [cause.field for cause in wrong] == ["spec.topology.mode"]
    wrong = schema.check(make(PODGROUP, spec={"minMember": 1, "admission": "Perhaps"}), PODGROUP)
    assert [cause.field for cause in wrong] == ["spec.admission"]


def test_a_group_stays_in_its_queue() -> None:
    old = complete(PODGROUP, make(PODGROUP, spec={"minMember": 1, "queue": "a"}))
    new = make(PODGROUP, spec={"minMember": 2, "queue": "b"})
    assert [at for at, _ in faults(PODGROUP, new, old)] == ["spec.queue"]
    assert faults(PODGROUP, make(PODGROUP, spec={"minMember": 2, "queue": "a"}), old) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"capacity": {"cpu": "-1"}}, "spec.capacity.cpu"),
        ({"capacity": {"cpu": "1"}, "borrowingLimit": {"cpu": "1"}}, "spec.borrowingLimit"),
        (
            {"capacity": {"cpu": "1"}, "cohort": "a", "borrowingLimit": {"memory": "1"}},
            "spec.borrowingLimit.memory",
        ),
        ({"capacity": {"cpu": "1"}, "cohort": "A b"}, "spec.cohort"),
    ],
)
def test_queues_that_make_no_sense_are_refused(spec: Document, field: str) -> None:
    assert [at for at, _ in faults(QUEUE, make(QUEUE, spec=spec))] == [field]


@pytest.mark.parametrize(
    "info", [info for info in BUILT_IN if info.group == "grange.dev"], ids=lambda info: info.kind
)
def test_no_word_in_a_status_is_refused_for_being_unknown(info: AnyKind) -> None:
    """One that another version wrote would make the server refuse every write of the object."""
    definitions = info.definitions

    def enumerated(schema: Any, path: str) -> list[str]:
        if not isinstance(schema, dict):
            return []
        found = [path] if "enum" in schema else []
        name = str(schema.get("$ref", "")).removeprefix("#/definitions/")
        parts = {**schema.get("properties", {}), "[]": schema.get("items")}
        found += enumerated(definitions.get(name), path)
        return found + [
            hit for key, part in parts.items() for hit in enumerated(part, f"{path}.{key}")
        ]

    properties = definitions[info.schema]["properties"]
    assert enumerated(properties.get("status"), "status") == []
    if info is REPLICATIONCONTROLLER:
        assert "spec.placement" in enumerated(properties["spec"], "spec"), "it is looked for"
