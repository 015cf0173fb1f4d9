"""Checking against schemas: quick for what is right, thorough for what is wrong."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.api.documents import container, controller, pod, typical_pod

from grange.api import codec, schema
from grange.api.kinds import BUILT_IN, CONFIGMAP, POD, REPLICATIONCONTROLLER
from grange.api.meta import Resource
from grange.api.schema import checking
from grange.api.schema.definitions import Definitions, Schema, builtin
from grange.api.schema.reporter import Reporter
from grange.api.scheme import AnyKind, KindInfo
from grange.api.validation.causes import CAUSES_MAX


def faults(document: Any, info: AnyKind = POD) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in schema.check(document, info)]


def test_right_documents_have_no_faults() -> None:
    assert faults(typical_pod()) == []
    assert faults(controller(), REPLICATIONCONTROLLER) == []
    assert faults({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}, CONFIGMAP) == []


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (pod(replcas=1), "spec.replcas", 'unknown field "spec.replcas"'),
        (
            pod(nodeNmae="n"),
            "spec.nodeNmae",
            'unknown field "spec.nodeNmae"; did you mean "nodeName"?',
        ),
        (
            container(prots=[]),
            "spec.containers[0].prots",
            'unknown field "spec.containers[0].prots"; did you mean "ports"?',
        ),
        ({**pod(), "extra": 1}, "extra", 'unknown field "extra"'),
        (
            pod(activeDeadlineSeconds="5"),
            "spec.activeDeadlineSeconds",
            "expected integer, got string",
        ),
        (
            pod(activeDeadlineSeconds=1.5),
            "spec.activeDeadlineSeconds",
            "expected integer, got number",
        ),
        (
            pod(activeDeadlineSeconds=True),
            "spec.activeDeadlineSeconds",
            "expected integer, got boolean",
        ),
        (pod(hostNetwork="yes"), "spec.hostNetwork", "expected boolean, got string"),
        (pod(nodeName=5), "spec.nodeName", "expected string, got integer"),
        (pod(containers={}), "spec.containers", "expected array, got object"),
        (pod(containers=["x"]), "spec.containers[0]", "expected object, got string"),
        (pod(nodeSelector=[]), "spec.nodeSelector", "expected object, got array"),
        (pod(nodeSelector={"a": 1}), "spec.nodeSelector[a]", "expected string, got integer"),
        (
            container(command=[None]),
            "spec.containers[0].command[0]",
            "Invalid value: must not be null",
        ),
        (
            container(command=["a", 1]),
            "spec.containers[0].command[1]",
            "expected string, got integer",
        ),
        (pod(containers=[{}]), "spec.containers[0].name", "Required value"),
        (pod(containers=[{"name": None}]), "spec.containers[0].name", "Required value"),
        (
            container(ports=[{"containerPort": 2**31}]),
            "spec.containers[0].ports[0].containerPort",
            f"Invalid value: {2**31}: must be between {-(2**31)} and {2**31 - 1}",
        ),
        (
            container(resources={"limits": {"cpu": True}}),
            "spec.containers[0].resources.limits[cpu]",
            "expected quantity, got boolean",
        ),
        (
            container(livenessProbe={"tcpSocket": {"port": 1.5}}),
            "spec.containers[0].livenessProbe.tcpSocket.port",
            "expected integer or string, got number",
        ),
        (
            {**pod(), "metadata": {"creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp",
            'Invalid value: "yesterday": must be an RFC 3339 time like 2026-11-21T10:19:00Z',
        ),
    ],
)
def test_every_fault_is_named_with_its_path(document: Any, field: str, message: str) -> None:
    assert faults(document) == [(field, message)]


def test_all_faults_are_reported_at_once() -> None:
    document = pod(containers=[{"nam": 1, "command": "x"}], hostPID=1)
    assert [field for field, _ in faults(document)] == [
        "spec.containers[0].name",
        "spec.containers[0].nam",
        "spec.containers[0].command",
        "spec.hostPID",
    ]


def test_faults_are_bounded() -> None:
    assert len(schema.check({f"x{i}": 1 for i in range(1000)}, POD)) == CAUSES_MAX
    assert len(schema.check(pod(containers=[1] * 1000), POD)) == CAUSES_MAX


def test_our_own_kind_is_checked_by_its_own_schema() -> None:
    document = controller(placement="Round", rollout={"maxSurge": 1.5})
    assert faults(document, REPLICATIONCONTROLLER) == [
        ("spec.placement", 'Unsupported value: "Round": supported values: "OnePerNode", "Packed"'),
        ("spec.rollout.maxSurge", "expected integer or string, got number"),
    ]
    document = controller()
    del document["spec"]["replicas"], document["spec"]["template"]
    assert faults(document, REPLICATIONCONTROLLER) == [
        ("spec.replicas", "Required value"),
        ("spec.template", "Required value"),
    ]
    document = controller()
    document["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    assert faults(document, REPLICATIONCONTROLLER) == [
        (
            "spec.template.spec.containers[0].comand",
            'unknown field "spec.template.spec.containers[0].comand"; did you mean "command"?',
        )
    ]


def test_null_means_absent_and_is_removed() -> None:
    document = pod(nodeName=None, nodeSelector={"a": None, "b": "c"})
    document["metadata"]["creationTimestamp"] = None
    document["status"] = None
    expected = pod(nodeSelector={"b": "c"})
    assert faults(document) == []
    assert document == expected


def test_what_the_schema_leaves_open_is_left_alone() -> None:
    document = controller()
    left_open: dict[str, object] = {"a": None, "b": [None, {}]}
    document["status"] = {"history": [{"revision": 1, "templateHash": "x", "template": left_open}]}
    before = copy.deepcopy(document)
    assert faults(document, REPLICATIONCONTROLLER) == []
    assert document == before


def test_unknown_fields_are_distinguished_and_can_be_dropped() -> None:
    document = pod(replcas=1, hostPID=1)
    causes = schema.check(document, POD)
    assert [schema.is_unknown_field(cause) for cause in causes] == [True, False]
    left = schema.drop_unknown(document, POD)
    assert [cause.field for cause in left] == ["spec.hostPID"]
    assert "replcas" not in document["spec"]


def test_definitions_that_are_no_kind_are_checked_too() -> None:
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    assert schema.check_definition({"gracePeriodSeconds": 5}, name) == []
    assert schema.check_definition({"gracePeriodSeconds": "5"}, name) != []


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
def test_every_kind_has_a_schema_and_a_list_that_compile_exactly(info: AnyKind) -> None:
    assert builtin().get(info.schema) is not None
    assert builtin().get(f"{info.schema}List") is not None
    assert checking._compiled(info).exact
    assert schema.check({"spec": 1}, info) or schema.check({"data": 1}, info)


# --- the quick way and the thorough way agree -----------------------------------------------------

INSTANTS = ("2026-01-01T00:00:00.000000+00:00", "2026-01-01T00:00:00+0000", "2026-01-01 00:00:00Z")
PLAIN = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        7,
        2**40,
        2**70,
        1.5,
        "",
        "a",
        "10",
        "2026-01-01T00:00:00Z",
        "5%",
        *INSTANTS,
    ]
)
SCHEMAS: st.SearchStrategy[Schema] = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "string"},
            {"type": "string", "format": "date-time"},
            {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"},
            {"type": "string", "format": "quantity"},
            {"type": "string", "format": "int-or-string"},
            {"x-kubernetes-int-or-string": True},
            {"type": "string", "enum": ["a", "10"]},
            {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^[a0-9]"},
            {"type": "integer"},
            {"type": "integer", "format": "int32", "minimum": 0},
            {"type": "integer", "format": "int64", "maximum": 10},
            {"type": "number", "minimum": 0, "maximum": 5},
            {"type": "boolean"},
            {"type": "object"},
            {"type": "array"},
            {"type": "string", "nullable": True},
        ]
    ),
    lambda inner: st.one_of(
        inner.map(lambda part: {"type": "array", "items": part, "maxItems": 2}),
        inner.map(lambda part: {"type": "object", "additionalProperties": part}),
        st.tuples(
            st.dictionaries(st.sampled_from(["a", "b-c", "def"]), inner, min_size=1),
            st.booleans(),
            st.booleans(),
        ).map(
            lambda made: {
                "type": "object",
                "properties": made[0],
                "required": list(made[0])[:1] if made[1] else [],
                "x-kubernetes-preserve-unknown-fields": made[2],
            }
        ),
    ),
    max_leaves=5,
)


def values(part: Schema) -> st.SearchStrategy[Any]:
    """Values near a schema: mostly of its shape, sometimes not."""
    anything = PLAIN | st.sampled_from([[], {}, [1], {"a": 1}, {"z": "a"}]).map(copy.deepcopy)
    if "properties" in part:
        fields = {name: values(inner) for name, inner in part["properties"].items()}
        shaped: st.SearchStrategy[Any] = st.fixed_dictionaries({}, optional=fields)
        return shaped | st.builds(lambda a, b: {**a, "zz": b}, shaped, PLAIN) | anything
    if isinstance(part.get("additionalProperties"), dict):
        return (
            st.dictionaries(st.sampled_from(["k", "l"]), values(part["additionalProperties"]))
            | anything
        )
    if "items" in part:
        return st.lists(values(part["items"]), max_size=3) | anything
    return anything


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_compiled_type_accepts_what_the_reporter_accepts(
    data: st.DataObject,
) -> None:
    part = data.draw(SCHEMAS)
    value = data.draw(values(part))
    definitions = Definitions({"T": part}, builtin())
    compiled = checking._compile("T", definitions)
    if not compiled.exact:
        return
    before = copy.deepcopy(value)
    if before is None:
        return  # null at the very top has no member to be removed from; documents are objects
    reporter = Reporter(definitions)
    reporter.visit(part, value, "")
    try:
        msgspec.convert(before, compiled.type)
        accepted = True
    except msgspec.ValidationError:
        accepted = False
    assert accepted is (not reporter.causes and value == before)


def test_recursive_definitions_are_checked_thoroughly() -> None:
    tree: Schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "below": {"type": "array", "items": {"$ref": "#/definitions/Tree"}},
        },
    }
    info = KindInfo(
        group="example.com",
        version="v1",
        kind="Tree",
        plural="trees",
        view=Resource,
        schema="Tree",
        definitions={"Tree": tree},
    )
    assert schema.check({"below": [{"below": [{"name": "a"}]}]}, info) == []
    assert faults({"below": [{"below": [{"nam": "a"}]}]}, info) == [
        ("below[0].below[0].nam", 'unknown field "below[0].below[0].nam"; did you mean "name"?')
    ]
    schema.apply_defaults({"below": []}, info)


def test_enumerations_of_non_strings_are_checked_thoroughly() -> None:
    definitions = Definitions({"T": {"enum": [1, 2]}})
    assert not checking._compile("T", definitions).exact
    for value, right in ((1, True), (3, False), (True, False), ("1", False)):
        reporter = Reporter(definitions)
        reporter.visit({"enum": [1, 2]}, value, "f")
        assert (not reporter.causes) is right


# --- defaults --------------------------------------------------------------------------------------


def test_schema_defaults_fill_what_is_absent_at_every_depth() -> None:
    part: Schema = {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "default": {},
                "properties": {"b": {"type": "integer", "default": 1}},
            },
            "c": {"type": "array", "items": {"properties": {"d": {"default": []}}}},
            "e": {"additionalProperties": {"properties": {"f": {"default": "x"}}}},
        },
    }
    info = KindInfo(
        group="example.com",
        version="v1",
        kind="Thing",
        plural="things",
        view=Resource,
        schema="Thing",
        definitions={"Thing": part},
    )
    first: Any = {"c": [{}, {"d": [1]}], "e": {"k": {}}}
    second: Any = {}
    schema.apply_defaults(first, info)
    schema.apply_defaults(second, info)
    assert first == {"a": {"b": 1}, "c": [{"d": []}, {"d": [1]}], "e": {"k": {"f": "x"}}}
    assert second == {"a": {"b": 1}}
    # Defaults are values of the schema: no document may change them for the next.
    first["c"][0]["d"].append("mine")
    third: Any = {"c": [{}]}
    schema.apply_defaults(third, info)
    assert third["c"] == [{"d": []}]


def test_controller_defaults_come_from_its_schema() -> None:
    document = controller()
    schema.apply_defaults(document, REPLICATIONCONTROLLER)
    assert document["spec"]["placement"] == "Packed"
    assert document["spec"]["strategy"] == "Static"
    assert document["spec"]["rollout"] == {
        "maxUnavailable": "25%",
        "maxSurge": "25%",
        "minReadySeconds": 0,
        "progressDeadlineSeconds": 600,
        "type": "RollingUpdate",
        "revisionHistoryLimit": 5,
    }
    assert document["status"] == {"replicas": 0}
    # What the pods get is decided when they are made: a later default must not look like a change.
    assert document["spec"]["template"]["spec"] == pod()["spec"]


def test_checked_documents_survive_defaults_and_encoding() -> None:
    document = typical_pod()
    assert schema.check(document, POD) == []
    schema.apply_defaults(document, POD)
    assert schema.check(document, POD) == []
    assert codec.decode_document(codec.encode(document)) == document


# --- what schemas of run-time kinds may contain ----------------------------------------------------------

THING: Schema = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"},
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "ratio": {"type": "number", "minimum": 0.5},
        "list": {"type": "array", "minItems": 1, "maxItems": 2},
        "maybe": {"type": "object", "nullable": True, "properties": {"x": {"default": 1}}},
        "anything": {},
        "missing": {"$ref": "#/definitions/no.such"},
        "map": {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
        "plain": {"type": "object"},
    },
}
THINGS = KindInfo(
    group="example.com",
    version="v1",
    kind="Thing",
    plural="things",
    view=Resource,
    schema="Thing",
    definitions={"Thing": THING},
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"text": "b"}, [("text", "Invalid value: must have at least 2 characters"), ("text", 'Invalid value: "b": must match ^a')]),
        ({"text": "abcd"}, [("text", "Too long: may not have more than 3 characters")]),
        ({"count": 0}, [("count", "Invalid value: 0: must be greater than or equal to 1")]),
        ({"count": 6}, [("count", "Invalid value: 6: must be less than or equal to 5")]),
        ({"ratio": 0.1}, [("ratio", "Invalid value: 0.1: must be greater than or equal to 0.5")]),
        ({"ratio": "x"}, [("ratio", "expected number, got string")]),
        ({"list": []}, [("list", "Invalid value: must have at least 1 items")]),
        ({"list": [1, None, {}]}, [("list", "Too long: may not have more than 2 items")]),
        ({"plain": []}, [("plain", "expected object, got array")]),
    ],
)  # fmt: skip
def test_bounds_and_patterns_are_checked(document: Any, expected: list[tuple[str, str]]) -> None:
    assert faults(document, THINGS) == expected


def test_null_stays_where_the_schema_allows_it() -> None:
    document: Any = {
        "maybe": None,
        "anything": None,
        "missing": None,
        "map": {"a": None},
        "plain": {"b": None},
    }
    before = copy.deepcopy(document)
    assert faults(document, THINGS) == []
    schema.apply_defaults(document, THINGS)
    assert document == before
    # The reporter, which some other fault calls in, leaves it too.
    assert [field for field, _ in faults({**document, "count": 9}, THINGS)] == ["count"]
    assert document == before


def test_a_schema_that_is_not_there_allows_everything() -> None:
    info = KindInfo(
        group="", version="v1", kind="X", plural="xs", view=Resource, schema="no.such.Schema"
    )
    assert schema.check({"a": 1}, info) == []
    schema.apply_defaults({"a": 1}, info)
