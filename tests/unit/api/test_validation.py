"""Rules beyond the schema: every message, with the path of its field."""

import copy
from typing import Any

import pytest
from tests.unit.api.documents import container, pod, typical_pod

from grange.api import schema
from grange.api.kinds import BUILT_IN, CONFIGMAP, NAMESPACE, NODE, POD, SERVICE
from grange.api.scheme import AnyKind
from grange.api.status import shown
from grange.api.validation import validate
from grange.api.validation.causes import Faults
from grange.api.validation.podspec import NO_COMMAND

Document = dict[str, Any]
C = "spec.containers[0]"
LABEL = "must be a lower-case label: letters a-z, digits and '-', beginning and ending with a letter or digit"
SUBDOMAIN = (
    "must be a lower-case DNS name: letters a-z, digits, '-' and '.', "
    "every part beginning and ending with a letter or digit"
)
QUALIFIED = (
    "name part must consist of letters, digits, '-', '_' and '.', "
    "beginning and ending with a letter or digit, like 'example.com/my-name'"
)
VALUE = (
    "must be empty or consist of letters, digits, '-', '_' and '.', "
    "beginning and ending with a letter or digit"
)
NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_LARGER = "must be less than or equal to 2147483647"


def faults(
    document: Document, old: Document | None = None, info: AnyKind = POD
) -> list[tuple[str, str]]:
    """The causes of a document that its schema accepts."""
    assert schema.check(document, info) == []
    return [(cause.field, cause.message) for cause in validate(document, old, info)]


def test_right_documents_have_no_faults() -> None:
    assert faults(pod()) == []
    assert faults(typical_pod()) == []


def named(**metadata: Any) -> Document:
    return {**pod(), "metadata": {"name": "a", "namespace": "default", **metadata}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (named(name="A"), ("metadata.name", f'Invalid value: "A": {SUBDOMAIN}')),
        (named(name=""), ("metadata.name", "Required value: name or generateName is required")),
        (
            named(name="", generateName="A-"),
            ("metadata.generateName", f'Invalid value: "A-": {SUBDOMAIN}'),
        ),
        (named(namespace=""), ("metadata.namespace", "Required value")),
        (named(namespace="a.b"), ("metadata.namespace", f'Invalid value: "a.b": {LABEL}')),
        (named(labels={"-a": "b"}), ("metadata.labels", f'Invalid value: "-a": {QUALIFIED}')),
        (named(labels={"a": "b c"}), ("metadata.labels", f'Invalid value: "b c": {VALUE}')),
        (
            named(annotations={"a b": ""}),
            ("metadata.annotations", f'Invalid value: "a b": {QUALIFIED}'),
        ),
        (
            named(annotations={"a": "x" * 300_000}),
            ("metadata.annotations", "Too long: may not be more than 262144 bytes"),
        ),
        (
            named(finalizers=["a b"]),
            ("metadata.finalizers[0]", f'Invalid value: "a b": {QUALIFIED}'),
        ),
        (
            named(finalizers=["mine"]),
            (
                "metadata.finalizers[0]",
                'Invalid value: "mine": must be prefixed with a domain, like example.com/name',
            ),
        ),
        (
            named(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]),
            ("metadata.ownerReferences[0].name", "Required value: must not be empty"),
        ),
        (
            named(
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                    for n in "ab"
                ]
            ),
            (
                "metadata.ownerReferences",
                "Invalid value: 2: only one reference can have controller: true",
            ),
        ),
    ],
)
def test_metadata_is_judged(document: Document, expected: tuple[str, str]) -> None:
    assert faults(document) == [expected]


def test_generated_names_and_standard_finalizers_are_fine() -> None:
    assert faults(named(name="", generateName="web-")) == []
    assert faults(named(finalizers=["orphan", "example.com/hold"])) == []


def test_cluster_scoped_objects_have_no_namespace() -> None:
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": "x"}}
    assert faults(document, info=NODE) == [
        ("metadata.namespace", "Forbidden: not allowed on this kind: it is cluster-scoped")
    ]


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp", "generateName"])
def test_identity_does_not_change(field: str) -> None:
    times = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    old = named(generateName="a", uid="1", **times)
    new = named(generateName="a", uid="1", **times)
    new["metadata"][field] = "2027-01-01T00:00:00Z" if field == "creationTimestamp" else "other"
    found = faults(new, old)
    assert [path for path, _ in found] == [f"metadata.{field}"]
    assert found[0][1].endswith(": field is immutable")


def test_objects_on_their_way_out_gain_no_finalizers() -> None:
    old = named(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/a"])
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"].append("example.com/b")
    assert faults(new, old) == [
        (
            "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted: example.com/b",
        )
    ]
    new["metadata"]["finalizers"] = []
    assert faults(new, old) == []


# --- pods ------------------------------------------------------------------------------------------

PROBE = {"tcpSocket": {"port": 80}}
ENV = f"{C}.env[0]"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pod(containers=[]), ("spec.containers", "Required value: a pod needs at least one container")),
        (pod(containers=[{"name": "a"}]), (f"{C}.command", f"Required value: {NO_COMMAND}")),
        (pod(containers=[{"name": "a", "command": [""]}]), (f"{C}.command[0]", f"Required value: {NO_COMMAND}")),
        (container(name=""), (f"{C}.name", "Required value")),
        (container(name="A"), (f"{C}.name", f'Invalid value: "A": {LABEL}')),
        (
            pod(containers=[{"name": "a", "command": ["x"]}] * 2),
            ("spec.containers[1].name", 'Duplicate value: "a"'),
        ),
        (
            pod(initContainers=[{"name": "main", "command": ["x"]}]),
            (f"{C}.name", 'Duplicate value: "main"'),
        ),
        (
            pod(initContainers=[{"name": "i", "command": ["x"], "readinessProbe": PROBE}]),
            (
                "spec.initContainers[0].readinessProbe",
                "Forbidden: may not be set for init containers without restartPolicy=Always",
            ),
        ),
        (
            pod(restartPolicy="Sometimes"),
            (
                "spec.restartPolicy",
                'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
            ),
        ),
        (
            pod(dnsPolicy="x"),
            (
                "spec.dnsPolicy",
                'Unsupported value: "x": supported values: '
                '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"',
            ),
        ),
        (
            pod(preemptionPolicy="x"),
            ("spec.preemptionPolicy", 'Unsupported value: "x": supported values: "PreemptLowerPriority", "Never"'),
        ),
        (
            container(imagePullPolicy="x"),
            (f"{C}.imagePullPolicy", 'Unsupported value: "x": supported values: "Always", "IfNotPresent", "Never"'),
        ),
        (
            pod(terminationGracePeriodSeconds=-1),
            ("spec.terminationGracePeriodSeconds", f"Invalid value: -1: {NOT_NEGATIVE}"),
        ),
        (
            pod(activeDeadlineSeconds=0),
            ("spec.activeDeadlineSeconds", "Invalid value: 0: must be greater than or equal to 1"),
        ),
        (
            pod(terminationGracePeriodSeconds=2**31),
            ("spec.terminationGracePeriodSeconds", f"Invalid value: 2147483648: {NOT_LARGER}"),
        ),
        (
            pod(activeDeadlineSeconds=2**31),
            ("spec.activeDeadlineSeconds", f"Invalid value: 2147483648: {NOT_LARGER}"),
        ),
        (pod(hostname="A"), ("spec.hostname", f'Invalid value: "A": {LABEL}')),
        (pod(nodeName="A"), ("spec.nodeName", f'Invalid value: "A": {SUBDOMAIN}')),
        (pod(schedulerName="A"), ("spec.schedulerName", f'Invalid value: "A": {SUBDOMAIN}')),
        # ports
        (
            container(ports=[{"containerPort": 0}]),
            (f"{C}.ports[0].containerPort", "Required value"),
        ),
        (
            container(ports=[{"containerPort": 70_000}]),
            (f"{C}.ports[0].containerPort", "Invalid value: 70000: must be between 1 and 65535, inclusive"),
        ),
        (
            container(ports=[{"containerPort": 1, "hostPort": -1}]),
            (f"{C}.ports[0].hostPort", "Invalid value: -1: must be between 1 and 65535, inclusive"),
        ),
        (
            container(ports=[{"containerPort": 1, "name": "1"}]),
            (
                f"{C}.ports[0].name",
                "Invalid value: \"1\": must consist of a-z, digits and single '-' between them, "
                "with at least one letter",
            ),
        ),
        (
            container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
            (f"{C}.ports[1].name", 'Duplicate value: "a"'),
        ),
        (
            container(ports=[{"containerPort": 1, "protocol": "ICMP"}]),
            (f"{C}.ports[0].protocol", 'Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"'),
        ),
        # environment
        (container(env=[{"name": ""}]), (f"{ENV}.name", "Required value")),
        (
            container(env=[{"name": "A=B"}]),
            (f"{ENV}.name", "Invalid value: \"A=B\": must consist of printable ASCII characters other than '='"),
        ),
        (
            container(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            (
                f"{ENV}.valueFrom",
                'Invalid value: ["fieldRef"]: may not be specified when `value` is not empty',
            ),
        ),
        (
            container(env=[{"name": "A", "valueFrom": {}}]),
            (
                f"{ENV}.valueFrom",
                "Invalid value: []: specify exactly one of "
                "configMapKeyRef, fieldRef, fileKeyRef, resourceFieldRef, secretKeyRef",
            ),
        ),
        (
            container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": "k"}}}]),
            (f"{ENV}.valueFrom.configMapKeyRef.name", "Required value"),
        ),
        (
            container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": ""}}}]),
            (f"{ENV}.valueFrom.secretKeyRef.key", "Required value"),
        ),
        (
            container(envFrom=[{"prefix": "=", "configMapRef": {"name": "c"}}]),
            (
                f"{C}.envFrom[0].prefix",
                "Invalid value: \"=\": must consist of printable ASCII characters other than '='",
            ),
        ),
        (
            container(envFrom=[{}]),
            (f"{C}.envFrom[0]", "Invalid value: []: specify exactly one of configMapRef and secretRef"),
        ),
        (
            container(envFrom=[{"secretRef": {}}]),
            (f"{C}.envFrom[0].secretRef.name", "Required value"),
        ),
        # resources
        (
            container(resources={"limits": {"cpu": "lots"}}),
            (
                f"{C}.resources.limits.cpu",
                'Invalid value: "lots": "lots" is not a quantity: write a number with an optional '
                "suffix, like 500m, 2, 1.5Gi or 100M",
            ),
        ),
        (
            container(resources={"requests": {"cpu": "-1"}}),
            (f"{C}.resources.requests.cpu", f'Invalid value: "-1": {NOT_NEGATIVE}'),
        ),
        (
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}),
            (
                f"{C}.resources.requests.cpu",
                'Invalid value: "2": must be less than or equal to cpu limit of 1500m',
            ),
        ),
        (
            container(resources={"limits": {"a b": 1}}),
            (f"{C}.resources.limits.a b", f'Invalid value: "a b": {QUALIFIED}'),
        ),
        # volumes
        (pod(volumes=[{"name": ""}]), ("spec.volumes[0].name", "Required value")),
        (pod(volumes=[{"name": "a.b"}]), ("spec.volumes[0].name", f'Invalid value: "a.b": {LABEL}')),
        (pod(volumes=[{"name": "a"}, {"name": "a"}]), ("spec.volumes[1].name", 'Duplicate value: "a"')),
        (
            pod(volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            ("spec.volumes[0].hostPath", "Forbidden: may not specify more than 1 volume type"),
        ),
        (pod(volumes=[{"name": "a", "configMap": {}}]), ("spec.volumes[0].configMap.name", "Required value")),
        (pod(volumes=[{"name": "a", "secret": {}}]), ("spec.volumes[0].secret.secretName", "Required value")),
        (
            pod(volumes=[{"name": "a", "hostPath": {"path": "/a/../b"}}]),
            ("spec.volumes[0].hostPath.path", "Invalid value: \"/a/../b\": must not contain '..'"),
        ),
        (
            pod(volumes=[{"name": "a", "hostPath": {"path": ""}}]),
            ("spec.volumes[0].hostPath.path", "Required value"),
        ),
        (
            pod(volumes=[{"name": "a", "secret": {"secretName": "s", "items": [{"key": "k", "path": "/x"}]}}]),
            ("spec.volumes[0].secret.items[0].path", 'Invalid value: "/x": must be a relative path'),
        ),
        (
            container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            (f"{C}.volumeMounts[0].name", 'Not found: "v"'),
        ),
        (
            container(volumeMounts=[{"name": "", "mountPath": "/v"}]),
            (f"{C}.volumeMounts[0].name", "Required value"),
        ),
        (
            pod(
                volumes=[{"name": "v"}],
                containers=[{"name": "a", "command": ["x"], "volumeMounts": [{"name": "v", "mountPath": ""}]}],
            ),
            (f"{C}.volumeMounts[0].mountPath", "Required value"),
        ),
        (
            pod(
                volumes=[{"name": "v"}],
                containers=[
                    {"name": "a", "command": ["x"], "volumeMounts": [{"name": "v", "mountPath": "/v"}] * 2}
                ],
            ),
            (f"{C}.volumeMounts[1].mountPath", 'Invalid value: "/v": must be unique'),
        ),
        (
            pod(
                volumes=[{"name": "v"}],
                containers=[
                    {
                        "name": "a",
                        "command": ["x"],
                        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "/etc"}],
                    }
                ],
            ),
            (f"{C}.volumeMounts[0].subPath", 'Invalid value: "/etc": must be a relative path'),
        ),
        # probes and hooks
        (
            container(livenessProbe={}),
            (
                f"{C}.livenessProbe",
                "Required value: must specify an action: one of exec, httpGet, tcpSocket, grpc",
            ),
        ),
        (
            container(livenessProbe={**PROBE, "exec": {"command": ["x"]}}),
            (f"{C}.livenessProbe.tcpSocket", "Forbidden: may not specify more than 1 action"),
        ),
        (
            container(livenessProbe={"exec": {}}),
            (f"{C}.livenessProbe.exec.command", "Required value"),
        ),
        (
            container(readinessProbe={"tcpSocket": {"port": "No"}}),
            (
                f"{C}.readinessProbe.tcpSocket.port",
                "Invalid value: \"No\": must consist of a-z, digits and single '-' between them, "
                "with at least one letter",
            ),
        ),
        (
            container(readinessProbe={"httpGet": {"port": 0}}),
            (
                f"{C}.readinessProbe.httpGet.port",
                "Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
        ),
        (
            container(readinessProbe={"httpGet": {"port": 1, "scheme": "ftp"}}),
            (
                f"{C}.readinessProbe.httpGet.scheme",
                'Unsupported value: "ftp": supported values: "HTTP", "HTTPS"',
            ),
        ),
        (
            container(readinessProbe={**PROBE, "periodSeconds": -1}),
            (f"{C}.readinessProbe.periodSeconds", f"Invalid value: -1: {NOT_NEGATIVE}"),
        ),
        (
            container(livenessProbe={**PROBE, "successThreshold": 2}),
            (f"{C}.livenessProbe.successThreshold", "Invalid value: 2: must be 1"),
        ),
        (
            container(lifecycle={"preStop": {}}),
            (
                f"{C}.lifecycle.preStop",
                "Required value: must specify an action: one of exec, httpGet, tcpSocket, sleep",
            ),
        ),
    ],
)  # fmt: skip
def test_pod_specs_are_judged(document: Document, expected: tuple[str, str]) -> None:
    assert faults(document) == [expected]


def test_field_references_name_what_pods_know_of_themselves() -> None:
    def referring(path: str) -> Document:
        return container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}])

    for fine in (
        "metadata.name",
        "status.podIP",
        "metadata.labels['app']",
        "metadata.annotations['A.b/c']",
    ):
        assert faults(referring(fine)) == []
    for wrong in ("spec.volumes", "metadata.labels['a b']", "metadata.labels", ""):
        [(path, message)] = faults(referring(wrong))
        assert path == f"{ENV}.valueFrom.fieldRef.fieldPath"
        assert message.startswith(
            f'Unsupported value: "{wrong}": supported values: "metadata.name", '
        )


def test_absent_ports_of_probes_are_the_schemas_business() -> None:
    document = container(livenessProbe={"tcpSocket": {}})
    assert [cause.field for cause in schema.check(document, POD)] == [
        f"{C}.livenessProbe.tcpSocket.port"
    ]
    [cause] = validate(document, None, POD)
    assert (cause.field, cause.message) == (f"{C}.livenessProbe.tcpSocket.port", "Required value")


# --- scheduling ------------------------------------------------------------------------------------

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def tolerating(**toleration: Any) -> Document:
    return pod(tolerations=[toleration])


def node_term(**term: Any) -> Document:
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}})


def expression(key: str, operator: str, *values: str) -> Document:
    return node_term(matchExpressions=[{"key": key, "operator": operator, "values": list(values)}])


def pod_term(**term: Any) -> Document:
    return pod(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}})


def spread(**constraint: Any) -> Document:
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return pod(topologySpreadConstraints=[{**usual, **constraint}])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pod(nodeSelector={"a": "b c"}), ("spec.nodeSelector", f'Invalid value: "b c": {VALUE}')),
        (tolerating(key="a b"), ("spec.tolerations[0].key", f'Invalid value: "a b": {QUALIFIED}')),
        (
            tolerating(operator="Equal"),
            (
                "spec.tolerations[0].operator",
                'Invalid value: "Equal": operator must be Exists when `key` is empty, which means all keys',
            ),
        ),
        (
            tolerating(key="a", operator="In"),
            ("spec.tolerations[0].operator", 'Unsupported value: "In": supported values: "Equal", "Exists"'),
        ),
        (
            tolerating(key="a", operator="Exists", value="v"),
            ("spec.tolerations[0].value", 'Invalid value: "v": value must be empty when `operator` is Exists'),
        ),
        (tolerating(key="a", value="b c"), ("spec.tolerations[0].value", f'Invalid value: "b c": {VALUE}')),
        (
            tolerating(key="a", effect="No"),
            (
                "spec.tolerations[0].effect",
                'Unsupported value: "No": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            ),
        ),
        (
            tolerating(key="a", effect="NoSchedule", tolerationSeconds=1),
            (
                "spec.tolerations[0].effect",
                'Invalid value: "NoSchedule": effect must be NoExecute when `tolerationSeconds` is set',
            ),
        ),
        (
            pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
            (NODES, "Required value: must have at least one node selector term"),
        ),
        (
            expression("a", "Near", "b"),
            (
                f"{NODES}[0].matchExpressions[0].operator",
                'Unsupported value: "Near": supported values: '
                '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
            ),
        ),
        (
            expression("a", "In"),
            (
                f"{NODES}[0].matchExpressions[0].values",
                "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
        ),
        (
            expression("a", "Exists", "b"),
            (
                f"{NODES}[0].matchExpressions[0].values",
                "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
        ),
        (
            expression("a", "Gt", "1", "2"),
            (
                f"{NODES}[0].matchExpressions[0].values",
                "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
        ),
        (
            expression("a", "In", "b c"),
            (f"{NODES}[0].matchExpressions[0].values[0]", f'Invalid value: "b c": {VALUE}'),
        ),
        (
            expression("a b", "In", "c"),
            (f"{NODES}[0].matchExpressions[0].key", f'Invalid value: "a b": {QUALIFIED}'),
        ),
        (
            node_term(matchFields=[{"key": "spec.x", "operator": "In", "values": ["a"]}]),
            (
                f"{NODES}[0].matchFields[0].key",
                'Unsupported value: "spec.x": supported values: "metadata.name"',
            ),
        ),
        (
            node_term(matchFields=[{"key": "metadata.name", "operator": "Gt", "values": ["a"]}]),
            (f"{NODES}[0].matchFields[0].operator", 'Unsupported value: "Gt": supported values: "In", "NotIn"'),
        ),
        (
            node_term(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]),
            (
                f"{NODES}[0].matchFields[0].values",
                "Required value: must be exactly one value when `operator` is 'In' or 'NotIn' for node fields",
            ),
        ),
        (
            pod(affinity={"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}),
            (
                f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight",
                "Invalid value: 0: must be in the range 1-100",
            ),
        ),
        (
            pod_term(topologyKey=""),
            (f"spec.affinity.podAntiAffinity.{REQUIRED}[0].topologyKey", "Required value: can not be empty"),
        ),
        (
            pod_term(namespaces=["A"]),
            (f"spec.affinity.podAntiAffinity.{REQUIRED}[0].namespaces[0]", f'Invalid value: "A": {LABEL}'),
        ),
        (
            pod_term(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            (
                f"spec.affinity.podAntiAffinity.{REQUIRED}[0].labelSelector.matchExpressions[0].operator",
                'Unsupported value: "Gt": supported values: "In", "NotIn", "Exists", "DoesNotExist"',
            ),
        ),
        (
            pod(affinity={"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]}}),
            (
                f"spec.affinity.podAffinity.{PREFERRED}[0].weight",
                "Invalid value: 101: must be in the range 1-100",
            ),
        ),
        (
            spread(maxSkew=0),
            ("spec.topologySpreadConstraints[0].maxSkew", "Invalid value: 0: must be greater than zero"),
        ),
        (
            spread(topologyKey=""),
            ("spec.topologySpreadConstraints[0].topologyKey", "Required value: can not be empty"),
        ),
        (
            spread(whenUnsatisfiable="x"),
            (
                "spec.topologySpreadConstraints[0].whenUnsatisfiable",
                'Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway"',
            ),
        ),
        (
            spread(minDomains=0),
            ("spec.topologySpreadConstraints[0].minDomains", "Invalid value: 0: must be greater than zero"),
        ),
        (
            spread(labelSelector={"matchLabels": {"a": "b c"}}),
            (
                "spec.topologySpreadConstraints[0].labelSelector.matchLabels",
                f'Invalid value: "b c": {VALUE}',
            ),
        ),
        (
            pod(topologySpreadConstraints=spread()["spec"]["topologySpreadConstraints"] * 2),
            ("spec.topologySpreadConstraints[1]", 'Duplicate value: "{zone, DoNotSchedule}"'),
        ),
        (
            pod(schedulingGates=[{"name": "a"}, {"name": "a"}]),
            ("spec.schedulingGates[1].name", 'Duplicate value: "a"'),
        ),
    ],
)  # fmt: skip
def test_scheduling_rules_are_judged(document: Document, expected: tuple[str, str]) -> None:
    assert faults(document) == [expected]


def test_scheduling_rules_let_right_ones_through() -> None:
    document = pod(
        nodeSelector={"zone": "a"},
        tolerations=[
            {"operator": "Exists"},
            {"key": "a", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]},
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n"]}
                            ]
                        },
                    ]
                },
                PREFERRED: [{"weight": 1, "preference": {}}],
            },
            "podAffinity": {
                PREFERRED: [{"weight": 100, "podAffinityTerm": {"topologyKey": "zone"}}]
            },
        },
        schedulingGates=[{"name": "example.com/wait"}],
    )
    assert faults(document) == []


# --- updates of pods ---------------------------------------------------------------------------------

FIXED = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "
    "`spec.terminationGracePeriodSeconds` and additions to `spec.tolerations`"
)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pod(), container(args=["x"]), [(f"{C}.args", FIXED)]),
        (pod(), pod(restartPolicy="Never"), [("spec.restartPolicy", FIXED)]),
        (
            pod(),
            pod(nodeName="n"),
            [("spec.nodeName", "Forbidden: is set through the binding subresource only")],
        ),
        (
            pod(),
            pod(containers=[*pod()["spec"]["containers"], {"name": "b", "command": ["x"]}]),
            [("spec.containers", "Forbidden: containers may not be added or removed")],
        ),
        (
            pod(tolerations=[{"key": "a", "operator": "Exists"}]),
            pod(tolerations=[{"key": "b", "operator": "Exists"}]),
            [("spec.tolerations", "Forbidden: existing tolerations may not change, only be added to")],
        ),
        (
            pod(activeDeadlineSeconds=5),
            pod(activeDeadlineSeconds=6),
            [("spec.activeDeadlineSeconds", "Invalid value: 6: must be less than or equal to previous value 5")],
        ),
        (
            pod(activeDeadlineSeconds=5),
            pod(),
            [("spec.activeDeadlineSeconds", "Invalid value: null: must be less than or equal to previous value 5")],
        ),
        (
            pod(),
            pod(schedulingGates=[{"name": "a"}]),
            [("spec.schedulingGates", "Forbidden: gates may only be removed")],
        ),
        # what may change
        (pod(), container(image="x"), []),
        (pod(), pod(activeDeadlineSeconds=5), []),
        (pod(activeDeadlineSeconds=5), pod(activeDeadlineSeconds=4), []),
        (pod(), pod(terminationGracePeriodSeconds=5), []),
        (pod(), pod(tolerations=[{"key": "a", "operator": "Exists"}]), []),
        (pod(schedulingGates=[{"name": "a"}]), pod(), []),
        (pod(), pod(), []),
    ],
)  # fmt: skip
def test_pods_change_in_few_ways_only(
    before: Document, after: Document, expected: list[tuple[str, str]]
) -> None:
    assert faults(after, before) == expected


def test_an_unchanged_spec_is_not_judged_again() -> None:
    """Rules may grow stricter: an old pod must still be able to report its status."""
    old = pod(containers=[{"name": "a"}])
    assert faults(copy.deepcopy(old), old) == []


# --- causes ----------------------------------------------------------------------------------------


def test_values_in_messages_are_cut_short() -> None:
    assert shown("a" * 1000) == '"' + "a" * 199 + "…"
    assert shown({"a": 1}) == '{"a": 1}'


def test_every_cause_has_the_reason_that_clients_know() -> None:
    faults_found = Faults()
    faults_found.required("f")
    faults_found.invalid("f", 1, "no")
    faults_found.not_supported("f", 1, ["a"])
    faults_found.duplicate("f", 1)
    faults_found.not_found("f", 1)
    faults_found.forbidden("f", "no")
    faults_found.too_long("f", "no")
    assert [cause.reason.removeprefix("FieldValue") for cause in faults_found.causes] == [
        "Required",
        "Invalid",
        "NotSupported",
        "Duplicate",
        "NotFound",
        "Forbidden",
        "TooLong",
    ]


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
def test_rules_take_documents_that_lack_everything(info: AnyKind) -> None:
    assert {cause.field for cause in validate({}, None, info)} >= {"metadata.name"}
    assert validate({"metadata": {}}, {}, info)
    changed = [cause.field for cause in validate({}, {}, info)]
    assert not [field for field in changed if field.startswith("metadata")]


def test_names_follow_the_rule_of_the_kind() -> None:
    def fault(info: AnyKind, name: str) -> bool:
        meta = {"name": name, **({"namespace": "d"} if info.namespaced else {})}
        spec = {"ports": [{"port": 1}]} if info is SERVICE else {}
        return any(
            c.field == "metadata.name"
            for c in validate({"metadata": meta, "spec": spec}, None, info)
        )

    assert fault(NAMESPACE, "a.b")
    assert fault(SERVICE, "1a")
    assert not fault(CONFIGMAP, "a.b")
