"""OpenAPI: what kubectl looks for is there, and every reference leads somewhere."""

from collections.abc import Iterator
from typing import Any

import pytest

from grange.api import kinds, schema
from grange.api.meta import Resource
from grange.api.schema.definitions import builtin
from grange.api.schema.descriptions import DESCRIPTIONS, KINDS
from grange.api.scheme import AnyKind, KindInfo, Scheme

SCHEME = Scheme(kinds.BUILT_IN)
GROUPS = ("v1", "coordination.k8s.io/v1", "grange.dev/v1alpha1")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


@pytest.mark.parametrize("group", GROUPS)
def test_every_reference_of_version_3_leads_somewhere(group: str) -> None:
    document = schema.openapi_v3(SCHEME, group)
    schemas = document["components"]["schemas"]
    found = set(references(document))
    assert found
    assert {name.removeprefix("#/components/schemas/") for name in found} <= schemas.keys()


def test_every_reference_of_version_2_leads_somewhere() -> None:
    document = schema.openapi_v2(SCHEME)
    found = {name.removeprefix("#/definitions/") for name in references(document)}
    assert found <= document["definitions"].keys()
    assert document["swagger"] == "2.0"


@pytest.mark.parametrize("info", kinds.BUILT_IN, ids=lambda info: info.kind)
def test_every_kind_can_be_patched_with_field_validation(info: AnyKind) -> None:
    """kubectl leaves checking to the server only if it finds this parameter on PATCH."""
    document = schema.openapi_v3(SCHEME, info.api_version)
    gvk = {"group": info.group, "version": info.version, "kind": info.kind}
    patches = [
        operations["patch"]
        for operations in document["paths"].values()
        if operations.get("patch", {}).get("x-kubernetes-group-version-kind") == gvk
    ]
    assert patches
    for operation in patches:
        assert "fieldValidation" in [
            p["name"] for p in operation["parameters"] if p["in"] == "query"
        ]
        assert operation["x-kubernetes-action"] == "patch"
        assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]
    named = document["components"]["schemas"][info.schema]["x-kubernetes-group-version-kind"]
    assert gvk in named


def test_paths_have_the_operations_that_are_served() -> None:
    paths = schema.openapi_v3(SCHEME, "v1")["paths"]
    verbs = {path: sorted(set(item) - {"parameters"}) for path, item in paths.items()}
    assert verbs["/api/v1/pods"] == ["get"]
    assert verbs["/api/v1/namespaces/{namespace}/pods"] == ["delete", "get", "post"]
    assert verbs["/api/v1/namespaces/{namespace}/pods/{name}"] == ["delete", "get", "patch", "put"]
    assert verbs["/api/v1/namespaces/{namespace}/pods/{name}/status"] == ["get", "patch", "put"]
    assert verbs["/api/v1/nodes/{name}"] == ["delete", "get", "patch", "put"]
    assert "/api/v1/namespaces/{namespace}/configmaps/{name}/status" not in verbs
    item = paths["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert [p["name"] for p in item["parameters"]] == ["name", "namespace"]


def test_scale_is_described_as_what_it_is() -> None:
    document = schema.openapi_v3(SCHEME, "grange.dev/v1alpha1")
    name = "/apis/grange.dev/v1alpha1/namespaces/{namespace}/replicationcontrollers/{name}"
    item = document["paths"][f"{name}/scale"]
    assert sorted(set(item) - {"parameters"}) == ["get", "patch", "put"]
    gvk = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    definition = "io.k8s.api.autoscaling.v1.Scale"
    reference = {"$ref": f"#/components/schemas/{definition}"}
    for verb in ("get", "patch", "put"):
        assert item[verb]["x-kubernetes-group-version-kind"] == gvk
        answer = item[verb]["responses"]["200"]["content"]["application/json"]
        assert answer == {"schema": reference}
    sent = item["put"]["requestBody"]["content"]["application/json"]
    assert sent == {"schema": reference}
    assert document["components"]["schemas"][definition]["x-kubernetes-group-version-kind"] == [gvk]
    assert definition not in schema.openapi_v3(SCHEME, "v1")["components"]["schemas"]


def test_operations_have_names_of_their_own() -> None:
    names = [
        operation["operationId"]
        for item in schema.openapi_v2(SCHEME)["paths"].values()
        for verb, operation in item.items()
        if verb != "parameters"
    ]
    assert len(names) == len(set(names))
    assert "patchCoreV1NamespacedPod" in names


def test_merge_keys_are_published() -> None:
    schemas = schema.openapi_v3(SCHEME, "v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


def test_text_or_number_is_written_as_each_version_writes_it() -> None:
    name = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    third = schema.openapi_v3(SCHEME, "v1")["components"]["schemas"][name]
    assert third == {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema.openapi_v2(SCHEME)["definitions"][name] == {
        "format": "int-or-string",
        "type": "string",
    }
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    assert schema.openapi_v3(SCHEME, "v1")["components"]["schemas"][quantity] == {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    }


def test_kinds_made_at_run_time_are_published_too() -> None:
    info = KindInfo(
        group="example.com",
        version="v1",
        kind="Thing",
        plural="things",
        view=Resource,
        schema="com.example.v1.Thing",
        definitions={"com.example.v1.Thing": {"type": "object", "properties": {"spec": {"$ref": "#/definitions/no.such"}}}},
        namespaced=False,
    )  # fmt: skip
    document = schema.openapi_v3(Scheme((info,)), "example.com/v1")
    schemas = document["components"]["schemas"]
    assert schemas["com.example.v1.ThingList"]["required"] == ["items"]
    assert schemas["no.such"] == {"type": "object"}
    assert "/apis/example.com/v1/things/{name}" in document["paths"]


def test_fields_that_are_described_exist() -> None:
    known = builtin()
    missing = [
        f"{definition}.{name}"
        for definition, fields in DESCRIPTIONS.items()
        for name in fields
        if name not in (known.get(definition) or {}).get("properties", {})
    ]
    assert not missing


def test_kinds_that_are_described_exist() -> None:
    assert not [definition for definition in KINDS if builtin().get(definition) is None]


@pytest.mark.parametrize("info", kinds.BUILT_IN, ids=lambda info: info.plural)
def test_every_kind_has_a_description(info: AnyKind) -> None:
    older = schema.openapi_v2(SCHEME)["definitions"]
    newer = schema.openapi_v3(SCHEME, info.api_version)["components"]["schemas"]
    for definitions in (older, newer):
        assert definitions[info.schema]["description"].endswith(".")
        listed = definitions[f"{info.schema}List"]["description"]
        assert listed == f"A list of objects of kind {info.kind}."


def test_every_definition_with_a_kind_has_a_description() -> None:
    missing = [
        name
        for name, definition in schema.openapi_v2(SCHEME)["definitions"].items()
        if "x-kubernetes-group-version-kind" in definition and not definition.get("description")
    ]
    assert not missing


def test_fields_of_kubernetes_are_described() -> None:
    document = schema.openapi_v3(SCHEME, "v1")
    container = document["components"]["schemas"]["io.k8s.api.core.v1.Container"]
    assert container["properties"]["env"]["description"] == "Environment variables."
    probe = container["properties"]["livenessProbe"]
    assert probe["description"] == "How to find out that the program must be restarted."
    stored = builtin().get("io.k8s.api.core.v1.Container")
    assert stored is not None
    assert "description" not in stored["properties"]["env"]
