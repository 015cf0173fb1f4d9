"""Our kinds as CustomResourceDefinitions: Kubernetes takes them, and judges objects as we do."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from tests.unit.api import customresources
from tests.unit.api.customresources import INT_OR_STRING, KEEPS_UNKNOWN, violations
from tests.unit.api.documents import controller
from tests.unit.api.jobs import gangjob, role, template as pod_template
from tests.unit.api.test_robustness import whole

from grange.api import crds, quantity, schema, schema_builder
from grange.api.kinds import (
    AUDITRECORD,
    BUILT_IN,
    GANGJOB,
    PODGROUP,
    QUEUE,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
)
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.schema.structural import structural
from grange.api.scheme import AnyKind, Column, KindInfo, Scaling
from grange.api.validation import validate

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "kubernetes.md").read_text()
OURS = crds.installable(BUILT_IN)
APPLY_LIMIT_BYTES = 256 * 1024  # of annotations; kubectl apply keeps the whole object in one
every_kind = pytest.mark.parametrize("info", OURS, ids=lambda info: info.kind)


def version_of(info: AnyKind) -> Document:
    [version] = crds.definition(info)["spec"]["versions"]
    assert isinstance(version, dict)
    return version


def at_path(part: Document, path: str) -> Document:
    """The schema of a field; of a map's values for each of their keys."""
    for name in path.removeprefix(".").split("."):
        part = part["properties"][name] if "properties" in part else part["additionalProperties"]
    return part


# --- what is published -----------------------------------------------------------------------------------


def test_every_kind_that_kubernetes_does_not_know_is_reported() -> None:
    foreign = [info for info in BUILT_IN if not info.schema.startswith("io.k8s.api.")]
    assert foreign == OURS
    assert len(OURS) >= 5


def test_a_kind_that_is_added_later_needs_nothing_else() -> None:
    name = "dev.grange.v1.Thing"
    spec = {"size": schema_builder.whole("How big.", minimum=1, default=3)}
    status = {"size": schema_builder.whole("How big it is.")}
    info: AnyKind = KindInfo(
        group="grange.dev",
        version="v1",
        kind="Thing",
        plural="things",
        view=Resource,
        schema=name,
        definitions=schema_builder.definitions(
            name, "grange.dev", "v1", "A thing.", spec=spec, status=status
        ),
        namespaced=False,
        short_names=("th",),
        categories=("all",),
        columns=(
            Column("Size", cells.integer("spec.size"), type="integer", priority=1),
            Column("Mood", lambda document, now: "good"),
        ),
        fields={"spec.size": lambda document: "", "metadata.name": lambda document: ""},
        scale=Scaling("spec.size", "status.size", lambda document: ""),
    )
    assert crds.installable([info]) == [info]
    made = crds.definition(info)
    assert made["metadata"]["name"] == "things.grange.dev"
    spec = made["spec"]
    assert (spec["group"], spec["scope"]) == ("grange.dev", "Cluster")
    assert spec["names"] == {
        "kind": "Thing",
        "listKind": "ThingList",
        "plural": "things",
        "singular": "thing",
        "shortNames": ["th"],
        "categories": ["all"],
    }
    [version] = spec["versions"]
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    }
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Age", "Size"]
    assert version["additionalPrinterColumns"][0]["type"] == "date"
    assert version["additionalPrinterColumns"][1]["priority"] == 1
    assert version["selectableFields"] == [{"jsonPath": ".spec.size"}]
    assert at_path(version["schema"]["openAPIV3Schema"], "spec.size") == {
        "description": "How big.",
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "default": 3,
    }


@every_kind
def test_paths_lead_to_fields_of_the_schema(info: AnyKind) -> None:
    version = version_of(info)
    root = version["schema"]["openAPIV3Schema"]
    for column in version["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith(".metadata."):
            part = at_path(root, column["jsonPath"])
            assert part.get(INT_OR_STRING) or part["type"] == column["type"], column
    for field in version.get("selectableFields", ()):
        assert at_path(root, field["jsonPath"])["type"] in {"string", "integer", "boolean"}
    for name, path in version.get("subresources", {}).get("scale", {}).items():
        assert path.startswith(".spec." if name.startswith("spec") else ".status.")
        assert at_path(root, path)["type"] == ("string" if "Selector" in name else "integer")
    assert ("status" in root["properties"]) == info.has_status


@every_kind
def test_a_definition_fits_where_kubectl_apply_keeps_it(info: AnyKind) -> None:
    assert len(json.dumps(crds.definition(info))) < APPLY_LIMIT_BYTES


@every_kind
def test_definition_shares_nothing_with_server_schema(info: AnyKind) -> None:
    before = msgspec.json.encode(info.definitions)

    def spoil(value: Any) -> None:
        for inner in [*(value.values() if isinstance(value, dict) else value)]:
            if isinstance(inner, dict | list):
                spoil(inner)
        value.clear()

    spoil(crds.definition(info))
    assert msgspec.json.encode(info.definitions) == before
    assert crds.definition(info)["spec"]["group"] == info.group


# --- the rules of Kubernetes for schemas ------------------------------------------------------------


@every_kind
def test_schemas_keep_every_rule_for_structural_schemas(info: AnyKind) -> None:
    assert violations(structural(info)) == []


TEXT: Document = {"type": "string"}
BROKEN: tuple[tuple[str, Document], ...] = (
    ("1 type", {}),
    ("1 type", {"type": "object", "properties": {"a": {}}}),
    ("1 type", {"type": "object", "additionalProperties": {"description": "b"}}),
    ("1 type", {"type": "array"}),
    ("1 type", {"type": "array", "items": {}}),
    ("2 ", {"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]}),
    ("2 ", {"type": "object", "properties": {"a": TEXT}, "not": {"properties": {"b": {}}}}),
    ("2 ", {"type": "object", "allOf": [{"items": {}}]}),
    ("3 ", {"type": "object", "not": {"type": "string"}}),
    ("3 ", {"type": "object", "oneOf": [{"description": "a"}]}),
    ("3 ", {"type": "object", "allOf": [{"allOf": [{"nullable": True}]}]}),
    ("3 ", {"type": "object", "properties": {"a": TEXT}, "not": {"properties": {"a": TEXT}}}),
    (
        "4 ",
        {"type": "object", "properties": {"metadata": {"type": "object", "required": ["name"]}}},
    ),
    (
        "4 ",
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"labels": TEXT}}},
        },
    ),
    ("forbidden", {"type": "object", "$ref": "#/definitions/x"}),
    ("forbidden", {"type": "array", "items": TEXT, "uniqueItems": True}),
    ("forbidden", {"type": "object", "additionalProperties": False}),
    ("forbidden", {"type": "object", "properties": {}, "additionalProperties": TEXT}),
    ("unknown", {"type": "object", "x-kubernetes-patch-merge-key": "name"}),
    ("default", {"type": "integer", "default": "x"}),
    ("default", {"type": "object", "properties": {}, "default": {"a": 1}}),
    ("int-or-string", {"type": "string", INT_OR_STRING: True}),
    ("preserve", {"type": "string", KEEPS_UNKNOWN: True}),
    ("list-map-keys", {"type": "array", "items": TEXT, "x-kubernetes-list-type": "map"}),
    (
        "list-map-keys",
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": TEXT}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
    ),
)


@pytest.mark.parametrize(("rule", "broken"), BROKEN)
def test_a_schema_that_breaks_a_rule_is_found_out(rule: str, broken: Document) -> None:
    assert [found for found in violations(broken) if found.startswith(rule)]


def test_recursive_schema_is_cut_at_its_recursion() -> None:
    name = "dev.grange.v1.Tree"
    kind: AnyKind = KindInfo(
        group="grange.dev",
        version="v1",
        kind="Tree",
        plural="trees",
        view=Resource,
        schema=name,
        definitions={
            name: {
                "type": "object",
                "properties": {"spec": {"$ref": f"#/definitions/{name}Spec"}},
            },
            f"{name}Spec": {
                "type": "object",
                "properties": {"left": {"$ref": f"#/definitions/{name}Spec"}},
            },
        },
    )
    assert violations(structural(kind)) == []
    assert at_path(structural(kind), "spec.left") == {KEEPS_UNKNOWN: True}


# --- objects ----------------------------------------------------------------------------------------


def bare(document: Document) -> Document:
    """Without its metadata, which every server judges by itself."""
    return {**copy.deepcopy(document), "metadata": {}}


@cache
def published(info: AnyKind) -> Document:
    return structural(info)


def found_there(info: AnyKind, document: Document) -> list[str]:
    return customresources.faults(published(info), bare(document))


def named(info: AnyKind) -> Document:
    """What our own server has put into its metadata before it judges an object."""
    scope = {"namespace": "default"} if info.namespaced else {}
    return {"name": "x", "uid": "u", **scope}


def ways_out(document: Any, part: Document) -> Iterator[str]:
    """What only a server of Kubernetes refuses: known, and listed in the documentation."""
    if isinstance(document, float) and part.get(INT_OR_STRING):
        yield "a quantity with a point and without quotes"
    if isinstance(document, list):
        keys = part.get("x-kubernetes-list-map-keys") or ()
        named = [str([item.get(key) for key in keys]) for item in document if keys]
        if len({*named}) < len(named):
            yield "two conditions of one type"
        for item in document:
            yield from ways_out(item, part.get("items") or {})
    if isinstance(document, dict):
        properties, values = part.get("properties") or {}, part.get("additionalProperties")
        for field, value in document.items():
            yield from ways_out(value, properties.get(field, values) or {})


@every_kind
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data(), wrong=st.sampled_from([0.0, 0.0, 0.02, 0.2]))
def test_definition_accepts_and_refuses_what_our_schema_does(
    info: AnyKind, data: st.DataObject, wrong: float
) -> None:
    """Between our schema and our rules: what it takes fits the schema, what we take it takes."""
    document = bare(whole(data, info, wrong))
    there = found_there(info, document)
    ours = schema.check(here := copy.deepcopy(document), info)
    if ours:
        assert there, [f"{cause.field}: {cause.message}" for cause in ours][:3]
        return
    # What our own programs write to a status is not judged by rules.
    if all(
        found.startswith(".status.") and found.endswith((": pattern", ": length"))
        for found in there
    ):
        return
    schema.apply_defaults(here, info)
    here["metadata"] = named(info)
    refused = bool(validate(here, None, info)) or any(ways_out(document, published(info)))
    assert refused, there[:3]


MINIMAL: dict[str, Document] = {
    "ReplicationController": controller()["spec"],
    "RollingUpdate": {"new": "web", "old": "was", "desired": 2, "minimum": 1},
    "AuditRecord": {"event": "MembershipChanged", "controller": "web"},
    "PodGroup": {"minMember": 1},
    "Queue": {"capacity": {"cpu": "1"}},
    "GangJob": gangjob()["spec"],
    "TFJob": {"tfReplicaSpecs": {"Worker": {"template": pod_template("tensorflow")}}},
    "MachineLease": {"machines": [{"pool": "workers"}]},
    "LeasePolicy": {},
    "TestSession": {"driver": {"command": ["true"]}},
    "NodePool": {"provider": "local"},
    "Machine": {"pool": "workers", "provider": "local"},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"template": pod_template("pytorch")}}},
}


def of(info: AnyKind, **spec: Any) -> Document:
    return {"metadata": {"name": "x"}, "spec": {**MINIMAL[info.kind], **spec}}


def both(info: AnyKind, document: Document) -> tuple[bool, bool]:
    """Whether we refuse it, and whether Kubernetes would."""
    there = bool(found_there(info, document))
    here = copy.deepcopy(document)
    here["metadata"] = named(info)
    if schema.check(here, info):
        return True, there
    schema.apply_defaults(here, info)
    old = {**here, "spec": copy.deepcopy(MINIMAL[info.kind])}
    schema.apply_defaults(old, info)
    return bool(validate(here, None, info) or validate(here, old, info)), there


@every_kind
def test_an_object_with_the_least_fields_is_taken_by_both(info: AnyKind) -> None:
    document = of(info)
    assert both(info, document) == (False, False)


BAD_SPECS: tuple[tuple[AnyKind, Document], ...] = (
    (REPLICATIONCONTROLLER, {"replicas": -1}),
    (REPLICATIONCONTROLLER, {"replicas": None}),
    (REPLICATIONCONTROLLER, {"replica": 1}),
    (REPLICATIONCONTROLLER, {"placement": "Anywhere"}),
    (REPLICATIONCONTROLLER, {"rollout": {"maxSurge": "101%"}}),
    (REPLICATIONCONTROLLER, {"rollout": {"maxSurge": -1}}),
    (REPLICATIONCONTROLLER, {"rollout": {"canary": "few"}}),
    (REPLICATIONCONTROLLER, {"rollout": {"minReadySeconds": -1}}),
    (REPLICATIONCONTROLLER, {"template": {"spec": {"containers": [{"image": "a"}]}}}),
    (ROLLINGUPDATE, {"new": ""}),
    (ROLLINGUPDATE, {"new": "Web"}),
    (ROLLINGUPDATE, {"desired": -1}),
    (ROLLINGUPDATE, {"startingReplicas": {"old": -1}}),
    (AUDITRECORD, {"event": "Party"}),
    (AUDITRECORD, {"controller": ""}),
    (PODGROUP, {"minMember": 0}),
    (PODGROUP, {"scheduleTimeoutSeconds": 0}),
    (PODGROUP, {"queue": "A b"}),
    (PODGROUP, {"topology": {"key": ""}}),
    (PODGROUP, {"minResources": {"cpu": "much"}}),
    (GANGJOB, {"framework": "Mine"}),
    (GANGJOB, {"replicaSpecs": {"worker": role(-1)}}),
    (GANGJOB, {"replicaSpecs": {"worker": role(restartPolicy="Maybe")}}),
    (GANGJOB, {"replicaSpecs": {"worker": role(replica=1)}}),
    (GANGJOB, {"replicaSpecs": {"worker": {"replicas": 1}}}),
    (GANGJOB, {"runPolicy": {"cleanPodPolicy": "Some"}}),
    (GANGJOB, {"runPolicy": {"backoffLimit": -1}}),
    (GANGJOB, {"successPolicy": {"count": 0}}),
    (GANGJOB, {"failurePolicy": {"rules": [{"onReasons": ["Evicted"]}]}}),
    (QUEUE, {"cohort": "a_b"}),
    (QUEUE, {"capacity": {"cpu": "1 GB"}}),
)


@pytest.mark.parametrize(("info", "spec"), BAD_SPECS)
def test_what_a_schema_can_express_is_refused_by_both(info: AnyKind, spec: Document) -> None:
    assert both(info, of(info, **spec)) == (True, True)


def template(**more: Any) -> Document:
    """The smallest controller's template with something more in its spec."""
    made = copy.deepcopy(MINIMAL["ReplicationController"]["template"])
    made["spec"] |= more
    return {"template": made}


NAMELESS: Document = {"containers": [{"name": "a b", "command": ["x"]}]}
LEFT_TO_US: tuple[tuple[str, AnyKind, Document], ...] = (
    ("between fields", REPLICATIONCONTROLLER, {"rollout": {"maxUnavailable": 0, "maxSurge": 0}}),
    ("between fields", REPLICATIONCONTROLLER, {"rollout": {"minReadySeconds": 600}}),
    ("between fields", ROLLINGUPDATE, {"new": "was"}),
    ("between fields", ROLLINGUPDATE, {"minimum": 3}),
    ("between fields", QUEUE, {"borrowingLimit": {"cpu": "1"}}),
    ("between fields", GANGJOB, {"replicaSpecs": {"worker": role(2, minReplicas=3)}}),
    ("about changes", GANGJOB, {"framework": "MPI"}),
    ("about changes", ROLLINGUPDATE, {"new": "another"}),
    ("about changes", AUDITRECORD, {"message": "another"}),
    ("about changes", PODGROUP, {"queue": "another"}),
    ("about pods", REPLICATIONCONTROLLER, template(nodeName="n")),
    ("about pods", REPLICATIONCONTROLLER, template(restartPolicy="Never")),
    ("about pods", REPLICATIONCONTROLLER, template(**NAMELESS)),
    ("labels", REPLICATIONCONTROLLER, {"podLabels": {"a": "b c"}}),
    ("labels", PODGROUP, {"topology": {"key": "a b"}}),
    ("signs", QUEUE, {"capacity": {"cpu": "-1"}}),
)


@pytest.mark.parametrize(("group", "info", "spec"), LEFT_TO_US)
def test_what_is_left_to_our_own_server(group: str, info: AnyKind, spec: Document) -> None:
    """Each example stands for a group of rules that docs/how-to/kubernetes.md lists."""
    assert f"| {group} |" in PAGE
    assert both(info, of(info, **spec)) == (True, False)


@pytest.mark.parametrize(
    ("info", "document"),
    [
        (QUEUE, of(QUEUE, capacity={"cpu": 0.5})),
        (
            QUEUE,
            {
                **of(QUEUE),
                "status": {
                    "conditions": [
                        {
                            "type": "A",
                            "status": "True",
                            "reason": "B",
                            "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ]
                    * 2
                },
            },
        ),
    ],
)
def test_what_only_kubernetes_refuses(info: AnyKind, document: Document) -> None:
    assert both(info, document) == (False, True)


@given(
    st.from_regex(quantity.PATTERN, fullmatch=True)
    | st.text("0123456789.eEkKMGim+- ")
    | st.from_regex(r"[0-9]{1,2}e[+-]?[0-9]{1,4}", fullmatch=True)
)
@example("1e007")
@example("1e060")
@example("1e61")
@example("1" * 41)
def test_quantities_of_a_schema_are_readable(text: str) -> None:
    part = at_path(published(QUEUE), "spec.capacity.cpu")
    try:
        quantity.parse(text)
    except quantity.QuantityError:
        assert customresources.faults(part, text)
    else:
        assert customresources.faults(part, text) == []
